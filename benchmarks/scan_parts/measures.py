"""The measurements: each part creates its files and returns figures; claims follow from them."""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import veckm
from benchmarks.harness import log
from benchmarks.scan_parts import child, fuzz, terrain
from benchmarks.tables import Claim
from veckm.scan.run import TILE

Figures = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes of a run."""

    folder: Path
    points: int = 10_000_000
    memory_points: int = 1_000_000  # of the cloud that goes through in memory
    dask_points: int = 2_000_000
    kills: int = 20
    deaths: int = 10
    mutations: int = 50_000
    killed_points: int = 60_000
    tile: int = TILE


def normals(config: Config) -> Figures:
    """`veckm normals`, with curvature and expected error, of a LAZ larger than its memory limit."""
    return _large(config, "out.laz", "normals", "--orient", "up")


def encode(config: Config) -> Figures:
    """`veckm encode` of the same."""
    options = ("--dim", 64, "--radius", 1.0, "--engine", "neighbors")
    return _large(config, "out.npy", "encode", *options)


def _large(config: Config, output: str, verb: str, *options: object) -> Figures:
    """A verb in memory and in tiles."""
    whole, part = config.folder / "large.laz", config.folder / "part.laz"
    target = config.folder / output
    if not whole.exists():
        terrain.write_laz(whole, config.points)
        terrain.write_laz(part, config.memory_points)
        log(f"made {config.points:,} points, {whole.stat().st_size / 1e6:,.0f} MB")
    small = _ran(child.veckm(verb, part, "-o", target, *options, "--quiet"))
    target.unlink()
    log(f"{verb} in memory: {config.memory_points / small.seconds:,.0f} points/s")
    tiles = ("--tile", config.tile, "--quiet")
    big = _ran(child.veckm(verb, whole, "-o", target, *options, *tiles))
    target.unlink()
    log(f"{verb} in tiles: {config.points / big.seconds:,.0f} points/s, {big.peak / 1e9:.2f} GB")
    sizes = {"points": config.points, "memory_points": config.memory_points, "tile": config.tile}
    return {**sizes, "memory": vars(small), "tiles": vars(big)}


def dask(config: Config) -> Figures:
    """One and two workers, of one thread each, on the same cloud."""
    cloud, target = config.folder / "dask.laz", config.folder / "dask-out.laz"
    terrain.write_laz(cloud, config.dask_points)
    out: Figures = {"points": config.dask_points}
    tile = max(1000, min(config.tile, config.dask_points // 16))
    for workers in (1, 2):
        asked = ("-o", target, "--orient", "up", "--tile", tile, "--quiet")
        ran = _ran(child.veckm("normals", cloud, *asked, "--workers", workers, threads=1))
        out[str(workers)] = vars(ran)
        log(f"{workers} worker(s): {config.dask_points / ran.seconds:,.0f} points/s")
        target.unlink()
    cloud.unlink()
    return out


def ply(config: Config) -> Figures:
    """Reading a binary PLY, in turns with other packages, where they are installed."""
    path = config.folder / "large.ply"
    terrain.write_ply(path, config.points)
    readers: dict[str, Callable[[], object]] = {"veckm": lambda: veckm.read(path).xyz.sum()}
    readers["bytes"] = lambda: sum(path.read_bytes()[:: 1 << 12])
    try:
        import open3d

        readers["Open3D"] = lambda: open3d.io.read_point_cloud(str(path))
    except ImportError:
        log("Open3D is not installed: it is left out")
    try:
        import trimesh

        readers["trimesh"] = lambda: trimesh.load(path)
    except ImportError:
        log("trimesh is not installed: it is left out")
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(4):
        for name, call in readers.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    path.unlink()
    log(", ".join(f"{name} {statistics.median(v[1:]):.2f} s" for name, v in times.items()))
    return {"points": config.points, "seconds": {name: v[1:] for name, v in times.items()}}


def kills(config: Config) -> Figures:
    """Killed by SIGKILL at random moments and run again; the same for single workers."""
    cloud, target = config.folder / "kill.laz", config.folder / "kill-out.laz"
    terrain.write_laz(cloud, config.killed_points)
    tile = max(1000, config.killed_points // 12)
    asked = ("normals", cloud, "-o", target, "--orient", "up", "--tile", tile, "--quiet")
    whole = _ran(child.veckm(*asked))
    right = _digest(target)
    draw = random.Random(0)
    same = ended = 0
    while ended < config.kills:
        target.unlink()
        if not child.killed(asked, draw.uniform(0.3, 1.0) * whole.seconds):
            continue  # it was done before: no kill
        ended += 1
        _ran(child.veckm(*asked))
        same += _digest(target) == right
        log(f"kill {ended}: {same} of {ended} the same")
    out: Figures = {"kills": config.kills, "same": same}
    target.unlink()
    asked = (*asked, "--workers", 2)
    whole = _ran(child.veckm(*asked))
    right, same, ended, missed = _digest(target), 0, 0, 0
    while ended < config.deaths:
        if missed > config.deaths:
            raise RuntimeError(f"found no worker to kill in {missed} runs, killed {ended}")
        target.unlink()
        ran, died = child.worker_killed(asked, draw.uniform(0.3, 1.0) * whole.seconds)
        _ran(ran)
        missed += not died
        if died:
            ended += 1
            same += _digest(target) == right
            log(f"worker killed {ended}: {same} of {ended} the same")
    target.unlink()
    return {**out, "deaths": config.deaths, "survived": same}


def fuzzed(config: Config) -> Figures:
    """Mutated files of every format."""
    counts = fuzz.run(config.mutations, log=log)
    return {"counts": {k: v for k, v in vars(counts).items() if not k.startswith("_")}}


PARTS: dict[str, Callable[[Config], Figures]] = {
    "normals": normals,
    "encode": encode,
    "dask": dask,
    "ply": ply,
    "kills": kills,
    "fuzz": fuzzed,
}


def claims(results: dict[str, Figures]) -> list[Claim]:
    """The targets, with what was measured."""
    out: list[Claim] = []
    for name, most in (("normals", 2.0), ("encode", 4.0)):
        if name in results:
            r = results[name]
            ran, small = r["tiles"], r["memory"]
            peak = ran["peak"] / 1e9
            text = f"peak memory of {name}, {r['points'] / 1e6:g}M points"
            out.append(Claim(text, f"< {most:g} GB", f"{peak:.3f} GB", peak < most))
            pace = r["points"] / ran["seconds"] / (r["memory_points"] / small["seconds"])
            out.append(Claim.at_least(f"{name}: points/s in tiles / in memory", pace, 0.7))
    if "dask" in results:
        r = results["dask"]
        pace = r["1"]["seconds"] / r["2"]["seconds"]
        out.append(Claim.at_least("two Dask workers / one, a thread each", pace, 1.6))
    if "ply" in results:
        times = {k: statistics.median(v) for k, v in results["ply"]["seconds"].items()}
        for peer in ("Open3D", "trimesh"):
            if peer in times:
                text = f"reading PLY: {peer} / veckm"
                out.append(Claim.at_least(text, times[peer] / times["veckm"], 3))
    if "kills" in results:
        r = results["kills"]
        for text, done, of in (
            ("killed and resumed, the same file", r["same"], r["kills"]),
            ("worker killed, the same file", r["survived"], r["deaths"]),
        ):
            out.append(Claim(text, f"{of} of {of}", f"{done} of {of}", done == of))
    if "fuzz" in results:
        c = results["fuzz"]["counts"]
        bad = len(c["failures"])
        text = f"failures of {c['inputs']:,} mutated files"
        out.append(Claim(text, "0", str(bad), bad == 0))
    return out


def _ran(run: child.Ran) -> child.Ran:
    if run.code:
        raise RuntimeError(f"veckm ended with {run.code}: {run.error.strip()[-2000:]}")
    return run


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
