"""LZF, the compression of PCD files."""

from __future__ import annotations


def decompress(data: bytes, size: int) -> bytearray:
    """The ``size`` bytes of LZF data, which are literal runs and copies of what came before.

    A byte below 32 starts a run of one more literal bytes than its value. Any other has the length
    of a copy minus two in its upper three bits, 7 meaning that the next byte is added; its lower
    five bits and one more byte are the distance back minus one.
    """
    if size > 88 * (len(data) + 3):  # a copy takes three bytes for at most 264
        raise ValueError(f"{len(data)} compressed bytes cannot be {size} bytes")
    out, at = bytearray(), 0
    try:
        while at < len(data) and len(out) <= size:
            control, at = data[at], at + 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = (control >> 5) + 2
            if length == 9:
                length, at = length + data[at], at + 1
            back, at = ((control & 31) << 8) + data[at] + 1, at + 1
            if back > len(out):
                raise ValueError("the compressed bytes copy from before their beginning")
            piece = out[-back : len(out) - back + length]
            out += (piece * (length // back + 1))[:length]  # it may overlap what it writes
    except IndexError:
        raise ValueError("the compressed bytes end within a copy") from None
    if len(out) != size or at > len(data):
        raise ValueError(f"the compressed bytes are not {size} bytes")
    return out
