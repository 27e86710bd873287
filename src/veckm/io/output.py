"""Writing clouds, whole or piece by piece; a file appears under its name when it is complete."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.atomic import writing
from veckm.io.crs import describe_crs
from veckm.io.errors import FileError, guarded
from veckm.io.formats import find, open_source, streams
from veckm.io.las import LasTemplate
from veckm.io.source import Source

Append = Callable[[PointCloud], None]


def write(path: str | Path, cloud: PointCloud, **options: Any) -> None:
    """Write a cloud in the format of the name; if it fails, nothing is written.

    A cloud that was read from a file of the same format keeps its fields in their order and dtypes,
    scale, offset, coordinate reference system, records and comments. Normals are renamed as the
    format names them. A COPC is written as LAZ, without its octree.

    Args:
        path: the file.
        cloud: the points.
        options: of the format. PLY: ``format`` (ascii, binary_little_endian, binary_big_endian);
            LAS: ``scale``, ``offset``; PCD: ``data`` (ascii, binary); NPZ: ``compress``.
    """
    path = Path(path)
    kind = find(path, write=True)
    unknown = set(options) - set(kind.options)
    if unknown:
        raise TypeError(f"{kind.name} files have no option {', '.join(sorted(unknown))}")
    if kind.write is not None:
        with guarded(path, f"written as {kind.name}"), writing(path) as file:
            kind.write(file, cloud, **options)
        return
    with _pieces(path, cloud, len(cloud), **options) as append:
        append(cloud)


def create_sink(
    path: str | Path, like: Source, extra: Mapping[str, np.dtype] | None = None
) -> AbstractContextManager[Append]:
    """Write a file piece by piece, in the format of its name, with the fields of another.

    ``with create_sink(...) as append`` gives a function that writes the next points. It must get as
    many points as ``like`` has. The file appears at the end of the block; if an exception was
    raised, there is none.

    Args:
        path: the file to write.
        like: the source whose fields, header, scale and so on are kept.
        extra: names and dtypes of additional fields; normals are ``nx ny nz`` and are renamed as
            the format names them.
    """
    path = Path(path)
    first = like.like()
    if find(path, write=True).extent and not isinstance(first.source, LasTemplate):
        fields = {name: np.zeros((2, *v.shape[1:]), v.dtype) for name, v in first.fields.items()}
        first = PointCloud(like.bounds(), fields=fields, crs=first.crs, source=first.source)
    new = {name: np.zeros(len(first), dtype) for name, dtype in (extra or {}).items()}
    return _pieces(path, first.with_fields(**new), like.count)


def check_writable(path: Path, like: PointCloud) -> None:
    """Raise what :func:`write` would raise for a cloud with such fields, before it is computed."""
    kind = find(path, write=True)
    with guarded(path, f"written as {kind.name}"):
        if kind.write is not None:
            kind.write(io.BytesIO(), like)
        elif kind.writer is not None:
            kind.writer(io.BytesIO(), path, like, len(like))


def check_missing(path: Path) -> None:
    """Raise if the format has no room for points without coordinates."""
    if find(path, write=True).extent:
        raise FileError(
            path, "LAS cannot hold points with NaN coordinates; write .ply, .pcd or .npz"
        )


def changes(path: Path, output: Path) -> list[str]:
    """What is different in an output though nobody asked for it, a line each."""
    was, now = _layout(path), _layout(output)
    kind = find(output).name
    if was and not now:
        crs = was["crs"] and f" and no coordinate reference system ({was['crs']})"
        return [f"{kind} has no scale ({was['scale']}){crs or ''}"]
    if now and not was:
        crs = now["crs"] or "no coordinate reference system"
        return [
            f"{find(path).name} has no scale: LAS {now['version']}, scale {now['scale']}, {crs}"
        ]
    out = [f"{name} {was[name]} became {now[name]}" for name in was if was[name] != now[name]]
    if path.name.lower().endswith(".copc.laz") and kind == "LAS":
        out.append("a plain LAZ: the octree of the COPC is not kept")
    return out


def _layout(path: Path) -> dict[str, str]:
    """What a LAS file has beside its fields; nothing of other files."""
    if not find(path).extent:
        return {}
    like = open_source(path).like()
    assert isinstance(like.source, LasTemplate)
    scales = dict.fromkeys(f"{scale:.6g}" for scale in like.source.header.scales)
    return {
        "version": str(like.source.header.version),
        "scale": " ".join(scales),
        "crs": describe_crs(like).name or "",
    }


@contextmanager
def _pieces(path: Path, like: PointCloud, count: int, **options: Any) -> Iterator[Append]:
    kind = find(path, write=True)
    if kind.writer is None:
        raise FileError(path, f"cannot be written by range; {streams()} can")
    action, expected, written = f"written as {kind.name}", set(like.fields), 0

    def append(cloud: PointCloud) -> None:
        nonlocal written
        with guarded(path, action):
            missing = expected - set(cloud.fields)
            if missing:
                raise ValueError(f"the cloud has no {sorted(missing)}")
            writer.append(cloud)
            written += len(cloud)

    with writing(path) as file:
        with guarded(path, action):
            writer = kind.writer(file, path, like, count, **options)
        yield append
        with guarded(path, action):
            if written != count:
                raise ValueError(f"got {written} points, not {count}")
            writer.finish()
