"""LZF: whatever goes in comes out, repeats become short, and broken bytes are errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veckm.io import lzf

# Few letters repeat often, many letters never: both kinds of tokens come up.
texts = st.one_of(st.binary(max_size=600), st.text("ab", max_size=2000).map(str.encode))


@given(data=texts)
def test_what_goes_in_comes_out(data: bytes) -> None:
    assert lzf.decompress(lzf.compress(data), len(data)) == data


def test_repeats_become_short_and_long_inputs_go_in_blocks() -> None:
    data = bytes(range(50)) * 30_000  # more than a block
    packed = lzf.compress(data)
    assert len(packed) < len(data) / 60
    assert lzf.decompress(packed, len(data)) == data


def test_noise_grows_by_one_byte_in_32() -> None:
    noise = np.random.default_rng(0).bytes(3200)
    assert len(lzf.compress(noise)) <= 3200 * 33 / 32


def test_the_format_as_it_is_described() -> None:
    assert lzf.decompress(b"\x02abc", 3) == b"abc"  # a run of three
    assert lzf.decompress(b"\x00a\x20\x00", 4) == b"aaaa"  # a copy of three from one back
    assert (
        lzf.decompress(b"\x02abc\xe0\x01\x02", 13) == b"abcabcabcabca"
    )  # of ten, length 7 + 1 + 2


@pytest.mark.parametrize(
    ("data", "size", "message"),
    [
        (b"\x05ab", 6, "end within a run"),
        (b"\x00a\x20", 4, "end within a copy"),
        (b"\x00a\xe0", 40, "end within a copy"),
        (b"\x20\x00", 3, "before their beginning"),
        (b"\x00a\x20\x05", 4, "before their beginning"),
        (b"\x02abc", 2, "more than 2"),
        (b"\x02abc", 4, "stand for 3, not 4"),
        (b"\x02abc", 10**12, "cannot stand for"),
    ],
)
def test_broken_bytes_are_errors(data: bytes, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lzf.decompress(data, size)
