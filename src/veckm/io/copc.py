"""COPC: a LAZ whose chunks are the nodes of an octree, kept when it is written again.

Points keep their order and their nodes; only where a node is in the file, and how long, changes.
So a COPC is written from a COPC. Two records say where everything is:

    info, before the points       ... 40: offset of the first page, 48: its length ...
    hierarchy, after the points   pages of entries of 32 bytes:
                                  level, x, y, z (int32), offset (uint64), length, points (int32)

An entry with -1 points is another page, one with 0 points an empty node.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veckm.io.las_header import LasTemplate, Record

INFO, HIERARCHY = ("copc", 1), ("copc", 1000)
_ENTRY = np.dtype([("key", "<i4", (4,)), ("at", "<u8"), ("size", "<i4"), ("points", "<i4")])


@dataclass(frozen=True)
class Octree:
    """The chunks of a COPC as it was read.

    Attributes:
        points: of every chunk, in the order of the file.
        starts: where each chunk began, in bytes.
    """

    points: tuple[int, ...]
    starts: tuple[int, ...]


def is_copc(path: Path) -> bool:
    """By its name, for what is written has nothing else yet."""
    return path.name.lower().endswith(".copc.laz")


def has_octree(template: LasTemplate) -> bool:
    """Whether both records are there, the first where COPC wants it."""
    first = template.records[0].key if template.records else None
    return first == INFO and any(record.key == HIERARCHY for record in template.late)


def moved(
    template: LasTemplate,
    octree: Octree,
    starts: np.ndarray,  # (chunks,) where each is now
    sizes: np.ndarray,  # (chunks,) its bytes
    end: int,
) -> tuple[LasTemplate, Record]:
    """The template with its pages, and the info, as they are when extended records begin at `end`.

    Args:
        template: of the file that was read.
        octree: its chunks.
        starts: bytes before each new chunk.
        sizes: bytes of each new chunk.
        end: where the extended records will be.
    """
    number = next(i for i, record in enumerate(template.late) if record.key == HIERARCHY)
    before = sum(60 + len(record.data) for record in template.late[:number]) + 60
    shift = end - int.from_bytes(template.head[235:243], "little")
    old = int.from_bytes(template.head[235:243], "little") + before
    record = template.late[number]
    places = dict(
        zip(octree.starts, zip(starts.tolist(), sizes.tolist(), strict=True), strict=True)
    )
    info = template.records[0]
    root, length = struct.unpack_from("<QQ", info.data, 40)
    pages = bytearray(record.data)
    _move_page(pages, root - old, length, old, shift, places)
    late = list(template.late)
    late[number] = replace(record, data=bytes(pages))
    data = bytearray(info.data)
    struct.pack_into("<Q", data, 40, root + shift)
    changed = replace(info, data=bytes(data))
    return replace(template, late=tuple(late)), changed


def _move_page(
    pages: bytearray,
    at: int,
    length: int,
    old: int,
    shift: int,
    places: dict[int, tuple[int, int]],
) -> None:
    """One page, in place, and those that it leads to."""
    waiting, seen = [(at, length)], set()
    while waiting:
        at, length = waiting.pop()
        if at in seen or at < 0 or length % 32 or at + length > len(pages):
            raise ValueError("the pages of its octree are broken")
        seen.add(at)
        entries = np.frombuffer(pages, _ENTRY, length // 32, at)
        for entry in entries:
            if entry["points"] == -1:
                waiting.append((int(entry["at"]) - old, int(entry["size"])))
                entry["at"] = int(entry["at"]) + shift  # may be nearer now
            elif entry["points"] > 0:
                if int(entry["at"]) not in places:
                    raise ValueError("a node of its octree is none of its chunks")
                entry["at"], entry["size"] = places[int(entry["at"])]
