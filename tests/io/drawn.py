"""Clouds for round trips, made by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from veckm.cloud import PointCloud

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True).filter(
    lambda name: name.lower() not in ("x", "y", "z", "xyz")
)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """The same numbers to the last bit; NaN is NaN."""
    if a.shape != b.shape or a.dtype.newbyteorder("=") != b.dtype.newbyteorder("="):
        return False
    if a.dtype.kind == "f":
        return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | (a != a) & (b != b)).all())
    return bool((a == b).all())


def equal(a: PointCloud, b: PointCloud) -> bool:
    """The same points and fields in the same order."""
    return (
        same(a.xyz, b.xyz)
        and list(a.fields) == list(b.fields)
        and all(same(a.fields[name], b.fields[name]) for name in a.fields)
    )


def floats(width: int) -> st.SearchStrategy[float]:
    """Floats that a file may have; no subnormals, which text of 32 bits may round."""
    most = 2.0**15 if width == 16 else 2.0**100
    return st.floats(-most, most, width=width, allow_subnormal=False)  # type: ignore[arg-type]


@st.composite
def clouds(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = ("u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"),
    least: int = 0,
    pos: tuple[str, ...] = ("f4", "f8"),
) -> PointCloud:
    """Up to 12 points with up to 4 fields of the given dtypes."""
    count = draw(st.integers(least, 12))
    kind = draw(st.sampled_from(pos))
    xyz = draw(hnp.arrays(kind, (count, 3), elements=floats(8 * int(kind[1]))))
    names = draw(st.lists(NAMES, max_size=4, unique=True)) if kinds else []
    fields = {}
    for name in names:
        dtype = np.dtype(draw(st.sampled_from(kinds)))
        elements = None
        if dtype.kind == "f":
            elements = floats(8 * dtype.itemsize) | st.just(float("nan"))
        fields[name] = draw(hnp.arrays(dtype, count, elements=elements))
    return PointCloud(xyz, fields=fields)
