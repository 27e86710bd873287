"""Mutated files of every format: each must give a cloud or a FileError, soon and in little memory.

The readers run in a process of its own, whose memory is bounded: an input that hangs, crashes or
asks for too much ends that process, is written down, and another one goes on with the next.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scan_parts.seeds import seeds
from veckm.io import FileError, open_source, read
from veckm.io.formats import find

#: Above what the process has before: a hundred thousand times the length of these files.
MEMORY = 512 << 20
SECONDS = 20.0
_BATCH = 200
_NUMBERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)
_WORDS = (
    b"-1",
    b"0",
    b"1e999",
    b"nan",
    b"999999999999",
    b"4294967296",
    b"1000000000000",
    b"",
    b" ",
)


@dataclass
class Counts:
    """Outcomes of the mutated inputs.

    Attributes:
        inputs: how many there were.
        right: read as a cloud.
        refused: a FileError whose text begins with the path.
        failures: anything else, with the format, the number of the input and what happened.
        formats: inputs by seed.
        slowest: seconds of the slowest input.
        peak: bytes by which the memory of the process grew at most.
    """

    inputs: int = 0
    right: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    formats: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    peak: int = 0


def mutate(data: bytes, generator: np.random.Generator) -> bytes:
    """``data`` with one to eight small mutations."""
    out = bytearray(data)
    for _ in range(int(generator.integers(1, 9))):
        if not out:
            return bytes(out)
        # Headers are short and matter most: half of all damages are there.
        end = min(len(out), 600) if generator.random() < 0.5 else len(out)
        at = int(generator.integers(end))
        kind = int(generator.integers(8))
        if kind == 0:
            out[at] ^= 1 << int(generator.integers(8))
        elif kind == 1:
            out[at] = int(generator.integers(256))
        elif kind == 2:
            width = int(generator.choice([1, 2, 4, 8]))
            number = _NUMBERS[int(generator.integers(len(_NUMBERS)))] % (1 << 8 * width)
            out[at : at + width] = number.to_bytes(width, "little")
        elif kind == 3:
            del out[at : at + int(generator.integers(1, 40))]
        elif kind == 4:
            out[at:at] = out[at : at + int(generator.integers(1, 40))]
        elif kind == 5:
            del out[at:]
        elif kind == 6:
            word = _WORDS[int(generator.integers(len(_WORDS)))]
            out[at : at + len(word)] = word
        else:
            out[at:at] = bytes(generator.integers(0, 256, int(generator.integers(1, 9))).tolist())
    return bytes(out)


def inputs(name: str, data: bytes, number: int, seed: int = 0) -> bytes:
    """The mutated input of a number: the same in every run."""
    generator = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
    if name.endswith(".npz") and number % 2:
        return _inside(data, generator)
    if name.endswith(".e57") and number % 2:
        return _sealed(data, generator)
    return mutate(data, generator)


def _inside(data: bytes, generator: np.random.Generator) -> bytes:
    """An archive one of whose parts is damaged; its checksum would refuse most other damages."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        parts = old.infolist()
        damaged = int(generator.integers(len(parts)))
        for at, info in enumerate(parts):
            body = old.read(info)
            body = mutate(body, generator) if at == damaged else body
            new.writestr(info.filename, body, info.compress_type)
    return out.getvalue()


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(c >> 1) ^ (0x82F63B78 if c & 1 else 0) for c in table]
    return table


_CRC32C = _crc_table()


def _sealed(data: bytes, generator: np.random.Generator) -> bytes:
    """Damaged pages of E57, each 1,020 bytes and a checksum, whose checksums are right again."""
    out = bytearray(data)
    for at in generator.integers(len(out), size=int(generator.integers(1, 5))).tolist():
        out[at] = int(generator.integers(256)) if generator.random() < 0.5 else 48 + at % 10
    for page in range(0, len(out) - 1023, 1024):
        crc = 0xFFFFFFFF
        for byte in out[page : page + 1020]:
            crc = _CRC32C[(crc ^ byte) & 255] ^ (crc >> 8)
        out[page + 1020 : page + 1024] = (crc ^ 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(out)


def judge(path: Path, mesh: bool) -> tuple[str, str]:
    """``right``, ``refused`` or ``failure`` of a file, and what happened."""
    try:
        cloud = read(path, samples=20) if mesh else read(path)
        if not mesh and find(path).source is not None and len(cloud):
            _check_ranges(path, len(cloud))
        return "right", ""
    except FileError as error:
        if str(error).startswith(str(path)):
            return "refused", str(error)
        return "failure", f"a text that does not begin with the path: {error}"
    except Exception:
        return "failure", traceback.format_exc(limit=-3)


def _check_ranges(path: Path, count: int) -> None:
    try:
        source = open_source(path)
    except FileError as error:
        if "in text" in str(error):  # PLY in text has no ranges
            return
        raise
    if source.count != count or len(source.read(count // 2, count)) != count - count // 2:
        raise AssertionError("a range has another number of points than the file")


def run(
    mutations: int = 50_000, seed: int = 0, only: tuple[str, ...] = (), log: Any = None
) -> Counts:
    """Read mutated files, spread evenly over all kinds, and count the outcomes.

    Args:
        mutations: inputs in all.
        seed: of the mutations.
        only: names of seeds, to look at some of them.
        log: called with a line a kind of file.
    """
    chosen = {name: data for name, data in seeds().items() if not only or name in only}
    each = -(-mutations // len(chosen))
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        worker = _Worker(seed, folder)
        for name, data in chosen.items():
            before = len(counts.failures)
            start = time.perf_counter()
            _run_one(worker, name, data, each, counts)
            counts.formats[name] = each
            if log is not None:
                spent = time.perf_counter() - start
                failed = len(counts.failures) - before
                log(f"{name}: {each} inputs, {failed} failures, {spent:.1f} s")
        worker.stop()
    return counts


def _run_one(worker: _Worker, name: str, data: bytes, each: int, counts: Counts) -> None:
    at = 0
    while at < each:
        stop = min(at + _BATCH, each)
        done = worker.ask(name, data, at, stop)
        if isinstance(done, Counts):
            at = stop
        else:  # it hung or crashed at one input
            number, what = done
            counts.failures.append(f"{name} {number}: {what}")
            counts.inputs += 1
            before = worker.ask(name, data, at, number) if number > at else Counts()
            at = number + 1
            if not isinstance(before, Counts):
                continue
            done = before
        counts.inputs += done.inputs
        counts.right += done.right
        counts.refused += done.refused
        counts.failures += done.failures
        counts.slowest = max(counts.slowest, done.slowest)
        counts.peak = max(counts.peak, done.peak)


class _Worker:
    """The process that reads; started again when it dies."""

    def __init__(self, seed: int, folder: str) -> None:
        self._seed, self._folder = seed, folder
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._now = self._context.Value("q", -1)
        self._pipe, theirs = self._context.Pipe()
        arguments = (theirs, self._now, self._seed, self._folder)
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # it has imported everything

    def ask(self, name: str, data: bytes, start: int, stop: int) -> Counts | tuple[int, str]:
        """The counts of a batch, or the number of the input that ended the process, and how."""
        self._now.value = start
        self._pipe.send((name, data, start, stop))
        what, last, since = "crashed", -1, time.monotonic()
        while True:
            try:
                if self._pipe.poll(0.5):
                    found: Counts = self._pipe.recv()
                    return found
            except (EOFError, OSError):
                break
            if not self._process.is_alive():
                break
            if self._now.value != last:
                last, since = self._now.value, time.monotonic()
            elif time.monotonic() - since > SECONDS:
                what = f"took more than {SECONDS:g} s"
                break
        number = int(self._now.value)
        self.stop()
        self._start()
        return number, what

    def stop(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Any, now: Any, seed: int, folder: str) -> None:
    """Judge batches until the pipe is closed."""
    # What a broken file makes a library say is no part of the result.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _warm(folder)
    _bound()
    first = _resident()
    pipe.send("ready")
    while True:
        try:
            name, data, start, stop = pipe.recv()
        except EOFError:
            return
        counts = Counts()
        path = Path(folder) / name
        mesh = name.startswith("mesh") or path.suffix == ".stl"
        for number in range(start, stop):
            now.value = number
            path.write_bytes(inputs(name, data, number, seed))
            begin = time.perf_counter()
            verdict, what = judge(path, mesh)
            counts.slowest = max(counts.slowest, time.perf_counter() - begin)
            counts.inputs += 1
            counts.right += verdict == "right"
            counts.refused += verdict == "refused"
            if verdict == "failure":
                counts.failures.append(f"{name} {number}: {what}")
        counts.peak = max(0, _resident() - first)
        pipe.send(counts)


def _warm(folder: str) -> None:
    """Memory of lazy imports must not count against an input."""
    for name, data in seeds().items():
        path = Path(folder) / f"warm {name}"
        path.write_bytes(data)
        judge(path, name.startswith("mesh") or path.suffix == ".stl")


def _resident() -> int:
    """Peak memory of the process in bytes."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _bound() -> None:
    """Limit memory to the current use plus MEMORY, where the system supports it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    import resource

    line = next(row for row in status.read_text().splitlines() if row.startswith("VmSize"))
    size = int(line.split()[1]) * 1024 + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
