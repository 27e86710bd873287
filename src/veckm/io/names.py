"""Names of normals in the formats, and how a cloud changes them on its way from one to another."""

from __future__ import annotations

from collections.abc import Iterable

from veckm.cloud import NORMAL_NAMES


def renamed(
    fields: Iterable[str], normals: tuple[str, ...], keep: Iterable[str] = ()
) -> dict[str, str]:
    """Name in the cloud -> name in the file.

    Args:
        fields: names of the cloud.
        normals: the names that the format has for normals.
        keep: names that the file had already; they stay whatever they are.
    """
    names, kept = list(fields), set(keep)
    out = {name: name for name in names}
    if set(normals) <= set(names):
        return out
    for triple in NORMAL_NAMES:
        if set(triple) <= set(names) and not set(triple) & kept:
            out.update(zip(triple, normals, strict=True))
            break
    return out
