"""Eigenvectors of many symmetric 3 x 3 matrices by squaring, differentiable.

A matrix is six numbers (xx, yy, zz, xy, xz, yz) and a vector three, each on the leading axis, so
that every step is a few long vector operations. Squaring a matrix squares the ratios of its
eigenvalues: after a few squarings its columns are the dominant eigenvector, and unlike in
`torch.linalg.eigh` the gradient stays finite where eigenvalues coincide.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Ratios of eigenvalues to the power of 2^6 = 64.
_SQUARINGS = 6
_TINY = 1e-30
#: Traces below this are zero but for rounding.
_FLAT = 1e-12
#: A middle eigenvalue below this share of the trace: the points lie on a line.
_THIN = 1e-10


def packed(m: Tensor) -> Tensor:  # (N, 3, 3) -> (6, N)
    """Full symmetric matrices as six numbers."""
    return m.flatten(1).t()[[0, 4, 8, 1, 2, 5]]


def dot(a: Tensor, b: Tensor) -> Tensor:  # (3, ...), (3, ...) -> (...)
    """a . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def outer(v: Tensor) -> Tensor:  # (3, ...) -> (6, ...)
    """v v^T."""
    x, y, z = v.unbind(0)
    return torch.stack((x * x, y * y, z * z, x * y, x * z, y * z))


def trace(m: Tensor) -> Tensor:  # (6, ...) -> (...)
    """Sum of the diagonal."""
    return m[0] + m[1] + m[2]


def scaled(m: Tensor, noise: Tensor | float = _FLAT) -> Tensor:
    """Divided by its trace: float32 then neither overflows nor vanishes.

    Moments of a lone point and cofactors of points on a line are zero but for rounding, of either
    sign: they become zero.
    """
    size = trace(m)
    return torch.where(size > noise, m / torch.where(size > noise, size, 1.0), 0.0)


def adjugate(m: Tensor) -> Tensor:  # (6, ...) -> (6, ...)
    """The cofactors: the same eigenvectors, each eigenvalue the product of the other two."""
    xx, yy, zz, xy, xz, yz = m.unbind(0)
    return torch.stack(
        (
            yy * zz - yz * yz,
            xx * zz - xz * xz,
            xx * yy - xy * xy,
            xz * yz - xy * zz,
            xy * yz - xz * yy,
            xy * xz - xx * yz,
        )
    )


def squared(m: Tensor) -> Tensor:  # (6, ...) -> (6, ...)
    """m m."""
    xx, yy, zz, xy, xz, yz = m.unbind(0)
    a, b, c = xy * xy, xz * xz, yz * yz
    return torch.stack(
        (
            xx * xx + a + b,
            a + yy * yy + c,
            b + c + zz * zz,
            xy * (xx + yy) + xz * yz,
            xz * (xx + zz) + xy * yz,
            yz * (yy + zz) + xy * xz,
        )
    )


def times(m: Tensor, v: Tensor) -> Tensor:  # (6, ...), (3, ...) -> (3, ...)
    """m v."""
    xx, yy, zz, xy, xz, yz = m.unbind(0)
    x, y, z = v.unbind(0)
    return torch.stack(
        (xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z)
    )


def unit(v: Tensor) -> Tensor:  # (3, ...) -> (3, ...)
    """v / |v|, and the x axis where v is zero."""
    square = dot(v, v)
    nothing = square < _TINY
    length = torch.where(nothing, 1.0, square).sqrt()
    x = torch.where(nothing, 1.0, v[0] / length)
    return torch.stack((x, v[1] / length, v[2] / length))


def dominant(m: Tensor, squarings: int = _SQUARINGS) -> Tensor:  # (6, ...) -> (3, ...)
    """The unit eigenvector of the largest eigenvalue of a positive semidefinite matrix.

    Where all are equal, any unit vector; of the zero matrix, the x axis.
    """
    for k in range(squarings):
        # A trace of one is at least 3^-8 = 1.5e-4 after three squarings: no need to scale each.
        m = squared(scaled(m) if k % 3 == 0 else m)
    xx, yy, zz, xy, xz, yz = m.unbind(0)
    # Every column is a multiple of the eigenvector: the one with the largest diagonal is longest.
    first = (xx >= yy) & (xx >= zz)
    second = yy >= zz
    x = torch.where(first, xx, torch.where(second, xy, xz))
    y = torch.where(first, xy, torch.where(second, yy, yz))
    z = torch.where(first, xz, torch.where(second, yz, zz))
    return unit(torch.stack((x, y, z)))


def smallest(
    m: Tensor,  # (6, ...)
    noise: Tensor | float = _FLAT,  # (...)
    squarings: int = _SQUARINGS,
) -> Tensor:  # (3, ...)
    """The unit eigenvector of the smallest eigenvalue of a positive semidefinite matrix.

    Eigenvalues up to `noise` are zero but for rounding. Where only the largest is not, the points
    lie on a line: the direction across it that is nearest to +z, or to +x if it is vertical. Where
    all are, +z.
    """
    size, m = trace(m), scaled(m, noise)
    cofactors = adjugate(m)
    found = dominant(cofactors, squarings)
    line = trace(cofactors) <= (noise / size.clamp_min(_TINY)).clamp_min(_THIN)
    return torch.where(line, _across(dominant(m, 3)), found) if bool(line.any()) else found


def _across(v: Tensor) -> Tensor:  # (3, ...) -> (3, ...)
    """The unit vector across the unit vector v that is nearest to +z, or to +x."""
    vertical = (v[2].abs() >= 1 - 1e-6).to(v)
    toward = torch.stack((vertical, torch.zeros_like(vertical), 1 - vertical))
    return unit(toward - dot(toward, v) * v)


def spectrum(m: Tensor, v: Tensor) -> Tensor:  # (6, ...), (3, ...) -> (3, ...)
    """Eigenvalues in ascending order, given the eigenvector v of the smallest.

    The smallest by its Rayleigh quotient, the others from trace and cofactors: a small one keeps
    its digits, which the closed formula for all three would lose.
    """
    low = dot(times(m, v), v).clamp_min(0.0)
    both = (trace(m) - low).clamp_min(0.0)
    product = (trace(adjugate(m)) - low * both).clamp_min(0.0)
    root = (both.square() / 4 - product).clamp_min(0.0).sqrt()
    return torch.stack((low, (both / 2 - root).clamp_min(0.0), both / 2 + root))
