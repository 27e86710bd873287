"""The clouds, the engines as things to call, and the truth to measure them by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

import veckm
from benchmarks.harness import Contender, Row, repeats
from veckm.data import shapes
from veckm.data.sampling import directions, gaussian, make_generator, uniform
from veckm.frequencies import standard_normal

PAPER_P = 4096
CLOUDS: dict[str, Callable[[int], Tensor]] = {
    "statue": lambda n: shapes.statue(n).pos,
    "sphere": lambda n: shapes.sphere(n).pos,
    "volume": lambda n: _shell(n, lambda g: uniform(g, n, 1) ** (1 / 3)),
    "thick shell": lambda n: _shell(n, lambda g: 0.8 + 0.1 * gaussian(g, n, 1)),
    "lidar": lambda n: shapes.lidar(n).pos,
}
_WARM_POINTS = 2000
_LONG = 2.0  # seconds; longer calls are warmed up on a few points


def _shell(n: int, radius: Callable[[torch.Generator], Tensor]) -> Tensor:  # (n, 3)
    """Points in all directions at random radii."""
    generator = make_generator(0)
    return (directions(generator, n) * radius(generator)).float()


@dataclass(frozen=True)
class Config:
    """What a part needs to know about the run."""

    quick: bool
    budget: float  # seconds; engines that expect to take longer are not run
    file: Path | None = None  # a cloud of the user's
    sizes: tuple[int, ...] = ()  # points of the matrix; all if empty
    betas: tuple[float, ...] = ()  # of the matrix; all if empty

    @property
    def names(self) -> list[str]:
        """All clouds."""
        return [*CLOUDS, *([self.file.stem] if self.file else [])]

    def cloud(self, name: str, n: int | None) -> Tensor:  # (n, 3) float32
        """n points of a cloud; n = None means all points of a file."""
        if self.file is not None and name == self.file.stem:
            return _from_file(self.file, n)
        assert n is not None
        return _procedural(name, n)

    def available(self, name: str) -> int:
        """How many points a cloud has."""
        if self.file is not None and name == self.file.stem:
            return len(_from_file(self.file, None))
        return 10**9


@lru_cache(maxsize=2)
def _procedural(name: str, n: int) -> Tensor:
    return CLOUDS[name](n)


@lru_cache(maxsize=1)
def _from_file(path: Path, n: int | None) -> Tensor:
    """Points of a file in the unit ball; fewer ones are a random subset."""
    x = torch.from_numpy(np.load(path)).double()
    if x.dim() != 2 or x.shape[1] < 3:
        raise SystemExit(f"{path}: an array of shape {tuple(x.shape)}, not (N, 3)")
    x = x[:, :3] - (x[:, :3].amax(0) + x[:, :3].amin(0)) / 2
    x = (x / x.norm(dim=1).max()).float()
    pick = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x if n is None else x[pick[:n]]


@dataclass(frozen=True)
class Case:
    """One cloud at one scale."""

    part: str
    cloud: str
    pos: Tensor  # (N, 3), or (B, N, 3)
    alpha: float
    beta: float
    dim: int = 256
    eps: float = 1e-2

    @property
    def points(self) -> int:
        """Of all clouds together."""
        return self.pos[..., 0].numel()

    @property
    def A(self) -> Tensor:
        """(3, dim)."""
        return _unit(self.dim, 1) * self.alpha

    def B(self, p: int = PAPER_P) -> Tensor:  # (3, p)
        """Frequencies of the paper's Theorem 2."""
        return _unit(p, 2) * self.beta

    def encode(
        self, engine: str, *, eps: float | None = None, p: int = PAPER_P, pos: Tensor | None = None
    ) -> Tensor:
        """One call, as a user would make it."""
        return veckm.encode(
            self.pos if pos is None else pos,
            self.A,
            beta=self.beta,
            engine=engine,  # type: ignore[arg-type]
            eps=self.eps if eps is None else eps,
            B=self.B(p),
            progress=False,
        )

    def floor(self) -> Tensor:
        """What no engine goes below: cosine and sine of N x D phases, written as complex."""
        phase = self.pos @ self.A
        out = torch.empty(phase.shape, dtype=torch.complex64)
        real = torch.view_as_real(out)
        torch.cos(phase, out=real[..., 0])
        torch.sin(phase, out=real[..., 1])
        return out

    def plan(self, engine: str = "auto") -> veckm.Plan:
        """What a user keeps who encodes more than once."""
        return veckm.plan(
            self.pos,
            beta=self.beta,
            engine=engine,  # type: ignore[arg-type]
            eps=self.eps,
            B=self.B(),
            columns=2 * self.dim,
            progress=False,
        )

    def choice(self) -> tuple[dict[str, float], str]:
        """Seconds that each engine expects, infinite where it refuses; the engine of auto."""
        plan = self.plan()
        return plan.costs, plan.engine

    def contender(self, engine: str, estimate: float, quick: bool, keep: Keep) -> Contender:
        """An engine, ready to be timed."""
        few = self.pos[:_WARM_POINTS] if self.pos.dim() == 2 else self.pos[:1]
        run = partial(self.encode, engine)
        warm = None if estimate < _LONG else partial(run, pos=few)
        return Contender(engine, run, repeats(estimate, quick), warm, keep)

    def row(self, method: str, setting: str = "", **more: object) -> Row:
        """A row of results about this case."""
        return Row(
            self.part,
            self.cloud,
            self.points,
            self.dim,
            self.alpha,
            self.beta,
            method,
            setting,
            **more,  # type: ignore[arg-type]
        )


Keep = Callable[[Tensor], object]


@lru_cache(maxsize=16)
def _unit(columns: int, seed: int) -> Tensor:  # (3, columns)
    generator = torch.Generator().manual_seed(seed)
    return standard_normal(3, columns, generator=generator).float()


@dataclass(frozen=True)
class Truth:
    """The definition in float64, written out once more, on a sample of the rows."""

    rows: Tensor  # (R,)
    values: Tensor  # (R, D) complex128, norm sqrt(D)

    @classmethod
    def of(cls, case: Case, rows: int) -> Truth:
        """For random rows of a cloud (N, 3)."""
        pick = torch.randperm(len(case.pos), generator=torch.Generator().manual_seed(7))[:rows]
        x = case.pos.double()
        return cls(pick, definition(x, x[pick], case.A.double(), case.beta))

    def keep(self, G: Tensor) -> tuple[float, float]:
        """Mean and largest relative error of encodings (N, D)."""
        return relative_error(G[self.rows], self.values)


def definition(x: Tensor, q: Tensor, A: Tensor, beta: float) -> Tensor:
    """sum_j exp(-beta^2 |x_j - q|^2 / 2) exp(i (x_j - q) A), scaled to norm sqrt(D), in float64."""
    reach = 9 / beta  # exp(-40) is nothing in float64
    far, _ = cKDTree(q.numpy()).query(x.numpy(), distance_upper_bound=reach, workers=-1)
    x = x[torch.from_numpy(far) <= reach]
    real = torch.zeros(len(q), A.shape[1], dtype=torch.float64)
    imag = torch.zeros_like(real)
    for part in x.split(8192):
        squared = sum((q[:, k, None] - part[None, :, k]) ** 2 for k in range(3))
        assert isinstance(squared, Tensor)
        window, angle = torch.exp(-0.5 * beta**2 * squared), part @ A
        real += window @ angle.cos()
        imag += window @ angle.sin()
    G = torch.complex(real, imag) * torch.polar(torch.ones_like(real), -(q @ A))
    return G * (A.shape[1] ** 0.5 / _length(G)[..., None])


def relative_error(G: Tensor, exact: Tensor) -> tuple[float, float]:
    """Mean and largest |G - exact| / |exact| over the rows."""
    error = _length(G.to(exact.dtype) - exact) / _length(exact)
    return float(error.mean()), float(error.max())


def _length(values: Tensor) -> Tensor:
    return torch.view_as_real(values).flatten(-2).square().sum(-1).sqrt()
