"""LZF, the compression of PCD files: literal runs and copies of what came before.

A byte below 32 starts a run of one more literal bytes than it says. Any other has in its upper
three bits the length of a copy less two, 7 meaning that the next byte is to be added; its lower
five bits and one more byte are the distance back less one.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

#: A copy of three bytes stands for at most so many.
LONGEST = 264
_FARTHEST = 1 << 13
_RUN = 32
_BLOCK = 1 << 20


def decompress(data: bytes, size: int) -> bytearray:
    """The ``size`` bytes that ``data`` stands for.

    Args:
        data: compressed bytes.
        size: their number when they are not; anything else in ``data`` is a ValueError.
    """
    if size > LONGEST // 3 * (len(data) + 3):
        raise ValueError(f"{len(data)} compressed bytes cannot stand for {size}")
    out = bytearray(size)
    at = end = 0
    total = len(data)
    try:
        while at < total:
            control = data[at]
            at += 1
            if control < _RUN:
                length = control + 1
                piece: bytes | bytearray = data[at : at + length]
                at += length
                if len(piece) < length:
                    raise ValueError("the compressed bytes end within a run")
            else:
                length = (control >> 5) + 2
                if length == 9:
                    length += data[at]
                    at += 1
                back = ((control & 31) << 8) + data[at] + 1
                at += 1
                if back > end:
                    raise ValueError("the compressed bytes copy from before their beginning")
                piece = out[end - back : min(end - back + length, end)]
                if back < length:  # it goes on into what it has just written
                    piece = (piece * (length // back + 1))[:length]
            if end + length > size:
                raise ValueError(f"the compressed bytes stand for more than {size}")
            out[end : end + length] = piece
            end += length
    except IndexError:
        raise ValueError("the compressed bytes end within a copy") from None
    if end != size:
        raise ValueError(f"the compressed bytes stand for {end}, not {size}")
    return out


def compress(data: bytes) -> bytes:
    """Bytes that :func:`decompress` turns into ``data`` again."""
    return b"".join(
        _compress_block(data[start : start + _BLOCK]) for start in range(0, len(data), _BLOCK)
    )


def _earlier(block: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where three bytes repeat earlier ones within reach: the places, and where those are."""
    raw = np.frombuffer(block, np.uint8).astype(np.int32)
    key = (raw[:-2] << 16) | (raw[1:-1] << 8) | raw[2:]
    order = np.argsort(key, kind="stable")
    same = key[order[1:]] == key[order[:-1]]
    place, before = order[1:][same], order[:-1][same]
    near = place - before <= _FARTHEST
    place, before = place[near], before[near]
    ascending = np.argsort(place)
    return place[ascending], before[ascending]


def _compress_block(block: bytes) -> bytes:
    if len(block) < 4:
        return _literals(block)
    places, earlier = (found.tolist() for found in _earlier(block))
    out = bytearray()
    at, which = 0, 0
    while True:
        which = bisect_left(places, at, which)
        if which == len(places):
            break
        place, before = places[which], earlier[which]
        out += _literals(block[at:place])
        length = _common(block, before, place)
        back = place - before - 1
        if length < 9:
            out += bytes(((length - 2) << 5 | back >> 8, back & 255))
        else:
            out += bytes((7 << 5 | back >> 8, length - 9, back & 255))
        at = place + length
    return bytes(out + _literals(block[at:]))


def _common(block: bytes, a: int, b: int) -> int:
    """How many bytes at ``a`` and at ``b`` are the same; three are known to be."""
    most = min(LONGEST, len(block) - b)
    length = 3
    while (
        length + 16 <= most
        and block[a + length : a + length + 16] == (block[b + length : b + length + 16])
    ):
        length += 16
    while length < most and block[a + length] == block[b + length]:
        length += 1
    return length


def _literals(piece: bytes) -> bytes:
    return b"".join(
        bytes((len(run) - 1,)) + run
        for run in (piece[start : start + _RUN] for start in range(0, len(piece), _RUN))
    )
