"""Triangle meshes: read from files, and sampled with the normals of their faces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from veckm.data.corrupt import Density, diagonal
from veckm.data.sampling import (
    Seed,
    Shape,
    collect,
    finish,
    make_generator,
    pick,
    uniform,
)
from veckm.inputs import check_count
from veckm.io.meshes import SUFFIXES, read_triangles

__all__ = ["SUFFIXES", "Mesh", "normalize", "read_mesh", "sample_mesh"]


@dataclass(frozen=True, eq=False)
class Mesh:
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
        if not bool(self.vertices.isfinite().all()):
            raise ValueError("vertices have NaN or infinite coordinates")
        if len(self.faces) and not 0 <= int(self.faces.min()) <= int(self.faces.max()) < len(
            self.vertices
        ):
            raise ValueError(
                f"faces name vertices {int(self.faces.min())} to {int(self.faces.max())}, "
                f"but there are {len(self.vertices)}"
            )


def normalize(mesh: Mesh) -> Mesh:
    """The mesh centered at the origin and scaled so that the diagonal of its bounding box is 1.

    Vertices that no face uses are ignored.
    """
    used = mesh.vertices[mesh.faces.reshape(-1)]
    if not len(used) or diagonal(used) == 0:
        raise ValueError("the mesh has no size: all its vertices are the same point")
    center = (used.amax(0) + used.amin(0)) / 2
    return Mesh((mesh.vertices - center) / diagonal(used), mesh.faces)


def sample_mesh(mesh: Mesh, n: int, seed: Seed = 0, density: Density | None = None) -> Shape:
    r"""Sample n points of a mesh, uniformly by area, with the normals of their faces.

    .. math:: x = p_0 + a (p_1 - p_0) + b (p_2 - p_0), \qquad a + b \le 1

    Faces without area are ignored.

    Args:
        mesh: the mesh; it should be near the origin (:func:`normalize`), since the points are
            float32.
        n: number of points.
        seed: an int or a torch.Generator.
        density: probability of keeping a point, (M, 3) -> (M,) in (0, 1]; the result has n points
            all the same.

    Shapes:
        - pos, normal: (n, 3)
    """
    generator, n = make_generator(seed), check_count(n, "n")
    corners = mesh.vertices[mesh.faces]  # (F, 3, 3)
    first, edges = corners[:, 0], corners[:, 1:] - corners[:, :1]
    cross = torch.linalg.cross(edges[:, 0], edges[:, 1])
    area: Tensor = torch.linalg.vector_norm(cross, dim=-1)  # (F,), twice the area
    if not bool((area > 0).any()):
        raise ValueError(f"the mesh has no area: none of its {len(area)} faces has any")
    first, edges, cross, area = (t[area > 0] for t in (first, edges, cross, area))
    normal = cross / area.unsqueeze(-1)

    def trial(m: int) -> tuple[Tensor, Tensor]:
        face = pick(area, uniform(generator, m).cpu())
        ab = uniform(generator, m, 2).cpu()
        ab = torch.where(ab.sum(-1, keepdim=True) > 1, 1 - ab, ab)  # the other half, folded over
        pos = first[face] + (ab.unsqueeze(-1) * edges[face]).sum(1)
        if density is None:
            return pos, normal[face]
        keep = uniform(generator, m).cpu() < _checked(density(pos))
        return pos[keep], normal[face[keep]]

    return finish(*(t.to(generator.device) for t in collect(n, trial)))


def _checked(share: Tensor) -> Tensor:
    if len(share) and not (0 <= float(share.min()) and float(share.max()) <= 1):
        raise ValueError(
            f"a density must be in (0, 1], got {float(share.min())} to {float(share.max())}"
        )
    return share


def read_mesh(path: str | Path) -> Mesh:
    """The triangles of a PLY, OFF, OBJ, STL or GLB file; polygons are split into fans.

    STL repeats the vertices of every face, and so does its mesh.

    Raises:
        veckm.io.FileError: if the file is broken or truncated.
    """
    vertices, faces = read_triangles(Path(path))
    return Mesh(torch.from_numpy(vertices), torch.from_numpy(faces))
