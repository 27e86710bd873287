"""Triangle meshes: read from files, and sampled with the normals of their faces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from veckm.data.sampling import Density, Seed, Shape, Surface, diagonal, pick, sample_shape, uniform
from veckm.io.meshes import SUFFIXES, check_triangles, read_triangles


@dataclass(frozen=True, eq=False)
class Mesh(Surface):
    """Triangles, whose vertices are counterclockwise seen from outside.

    Shapes:
        - vertices: (V, 3) float64
        - faces: (F, 3) int64, indices of vertices
    """

    vertices: Tensor
    faces: Tensor

    def __post_init__(self) -> None:
        for name, dtype in (("vertices", torch.float64), ("faces", torch.int64)):
            value: Tensor = getattr(self, name)
            if value.dim() != 2 or value.shape[1] != 3 or value.dtype != dtype:
                raise ValueError(
                    f"{name} must have shape (N, 3) and dtype {dtype}, "
                    f"got {tuple(value.shape)} of {value.dtype}"
                )
        check_triangles(self.vertices.numpy(), self.faces.numpy())

    @cached_property
    def _cross(self) -> Tensor:  # (F, 3)
        corners = self.vertices[self.faces]
        edges = corners[:, 1:] - corners[:, :1]
        cross: Tensor = torch.linalg.cross(edges[:, 0], edges[:, 1])
        return cross

    @cached_property
    def areas(self) -> Tensor:  # (F,)
        """The area of every face."""
        area: Tensor = torch.linalg.vector_norm(self._cross, dim=-1) / 2
        return area

    def draw(self, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:  # (m, 3), (m,)
        """m points, uniform by area, and the faces that they are on; never one without area."""
        face = pick(self.areas, uniform(generator, m))
        ab = uniform(generator, m, 2)
        ab = torch.where(ab.sum(-1, keepdim=True) > 1, 1 - ab, ab)  # the other half, folded over
        corners = self.vertices[self.faces[face]]
        edges = corners[:, 1:] - corners[:, :1]
        return corners[:, 0] + (ab.unsqueeze(-1) * edges).sum(1), face

    def sample(self, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
        if not bool((self.areas > 0).any()):
            raise ValueError(f"the mesh has no area: none of its {len(self.faces)} faces has any")

        def trial(m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
            pos, face = self.draw(m, generator)
            if density is not None:
                share = density(pos)
                if m and not 0 <= float(share.min()) <= float(share.max()) <= 1:
                    span = f"{float(share.min())} to {float(share.max())}"
                    raise ValueError(f"a density must be in (0, 1], got {span}")
                keep = uniform(generator, m) < share
                pos, face = pos[keep], face[keep]
            return pos, torch.nn.functional.normalize(self._cross[face], dim=-1, eps=0)

        return sample_shape(n, seed, trial, 1 << 17, "the density is too low")

    def extent(self, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        return self.vertices[self.faces.reshape(-1)]

    def normalized(self) -> Mesh:
        """Centered at the origin and scaled so that the diagonal of its bounding box is 1.

        Points are float32, which is most exact there. Vertices that no face uses are ignored.
        """
        used = self.vertices[self.faces.reshape(-1)]
        if not len(used) or diagonal(used) == 0:
            raise ValueError("the mesh has no size: all its vertices are the same point")
        center = (used.amax(0) + used.amin(0)) / 2
        return Mesh((self.vertices - center) / diagonal(used), self.faces)


def read_mesh(path: str | Path) -> Mesh:
    """The triangles of a PLY, OFF, OBJ, STL or GLB file; polygons are split into fans.

    STL repeats the vertices of every face, and so does its mesh.

    Raises:
        veckm.io.FileError: if the file is broken or truncated.
    """
    vertices, faces = read_triangles(Path(path))
    return Mesh(torch.from_numpy(vertices), torch.from_numpy(faces))


def load_meshes(folder: str | Path) -> dict[str, Mesh]:
    """All meshes of a folder by the names of their files, sorted by name, normalized."""
    paths = sorted(path for path in Path(folder).glob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise FileNotFoundError(f"{folder}: has no meshes ({' '.join(SUFFIXES)})")
    return {path.stem: read_mesh(path).normalized() for path in paths}
