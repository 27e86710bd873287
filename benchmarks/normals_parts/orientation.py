"""Which way normals point: the share of points with the right sign, in noise, in memory and tiles.

Truth are closed meshes, whose normals point outwards. Open3D's sign for the whole cloud is
arbitrary: the better of the two is given to it.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from experiments.evaluation import OURS, mean_over_sets
from torch import Tensor

from benchmarks import tables
from benchmarks.harness import log
from benchmarks.normals_parts.cases import Config, Key, Row, has_open3d, percent
from benchmarks.tables import Claim
from veckm import io
from veckm.data.protocol import LabeledCloud
from veckm.scan import Normals, run
from veckm.tasks.normals import estimate

NAME = "orientation"
TITLE = "Orientation"
#: By set the least share of points with the right sign.
WANTED = {"none": 0.98, "low": 0.98, "med": 0.97, "high": 0.95}
TILES = f"{OURS}, in tiles"
K = 30
OPEN3D = f"Open3D, k = {K}"
_TILES = 4  # about so many
#: Seconds that Open3D has for a cloud: on one with several parts it had not ended in four minutes.
_PATIENCE = 60.0

Call = Callable[[], Tensor]


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """Every cloud of even density."""
    for k, cloud in enumerate((c for c in config.clouds() if c.set in WANTED), 1):
        at = cloud.name, cloud.set, len(cloud.pos)
        todo = {
            name: call for name, call in calls(config, cloud).items() if (*at, name) not in known
        }
        log(f"orientation {k}: {cloud.name}, {cloud.set}" + ("" if todo else ", as before"))
        yield [_row(cloud, name, call) for name, call in todo.items()]


def calls(config: Config, cloud: LabeledCloud) -> dict[str, Call]:
    """From the cloud to oriented normals."""
    net, pos = config.net, cloud.pos
    out: dict[str, Call] = {
        OURS: lambda: estimate(pos, net=net, orient="consistent").normal,
        TILES: partial(in_tiles, pos, config.weights),
    }
    if has_open3d():
        out[OPEN3D] = partial(in_time, tangent_planes, pos)
    return out


def in_tiles(pos: Tensor, weights: Path | None) -> Tensor:  # (N, 3) -> (N, 3)
    """By the code for clouds larger than memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        np.save(path / "in.npy", pos.numpy())
        operation = Normals(weights=None if weights is None else str(weights))
        run(path / "in.npy", path / "out.npy", operation, tile=len(pos) // _TILES)
        return torch.from_numpy(np.array(io.read(path / "out.npy").normals))


def tangent_planes(pos: Tensor) -> Tensor:  # (N, 3) -> (N, 3)
    """Open3D's orientation, of its own normals of as many neighbors."""
    import open3d  # not a dependency

    points = open3d.utility.Vector3dVector(pos.double().numpy())
    cloud = open3d.geometry.PointCloud(points)
    cloud.estimate_normals(open3d.geometry.KDTreeSearchParamKNN(K))
    cloud.orient_normals_consistent_tangent_plane(K)
    return torch.from_numpy(np.array(cloud.normals))


def in_time(call: Callable[[Tensor], Tensor], pos: Tensor) -> Tensor:
    """The answer, in a process that can be ended; RuntimeError if there is none."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(call, (pos,)).get(_PATIENCE)
        except multiprocessing.TimeoutError:
            raise RuntimeError(f"no answer in {_PATIENCE:g} s") from None


def share_right(normal: Tensor, truth: Tensor) -> float:  # (N, 3), (N, 3)
    """The share of normals on the side of the true ones."""
    return float(((normal.double() * truth.double()).sum(1) > 0).double().mean())


def _row(cloud: LabeledCloud, name: str, call: Call) -> Row:
    start, note, values = time.perf_counter(), "", {}
    try:
        share = share_right(call(), cloud.normal)
        values["share"] = max(share, 1 - share) if name == OPEN3D else share
    except RuntimeError as error:  # Open3D's, of some clouds
        note = " ".join(str(error).split())
    seconds = [time.perf_counter() - start]
    return Row(NAME, cloud.name, len(cloud.pos), name, cloud.set, values, seconds, note)


def table_of(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Of every method the mean share of each set over the clouds that all methods answered."""
    names = list(dict.fromkeys(row.method for row in rows))
    answered = {n: {(r.cloud, r.set) for r in rows if r.method == n and r.values} for n in names}
    common = set.intersection(*answered.values())
    out = {}
    for name in names:
        shares: dict[str, list[float]] = {}
        for row in rows:
            if row.method == name and (row.cloud, row.set) in common:
                shares.setdefault(row.set, []).append(row.values["share"])
        out[name] = mean_over_sets(shares)
    return out


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Per set the least share, and better than Open3D."""
    table, out = table_of(rows), []
    alone = table_of([row for row in rows if row.method == OURS])[OURS]
    for key, least in WANTED.items():
        if key not in alone:
            continue
        text = f"share of points with the right sign, {key}"
        out.append(Claim(text, f"≥ {percent(least)}", percent(alone[key]), alone[key] >= least))
        if OPEN3D in table and key in table[OPEN3D]:
            mine, rival = table[OURS][key], table[OPEN3D][key]
            values = f"{percent(mine)} / {percent(rival)}"
            out.append(Claim(f"{text}, ours / Open3D", "more", values, mine > rival))
    return out


def markdown(rows: Sequence[Row]) -> str:
    """The means, and the clouds where ours has the fewest."""
    table, clouds = table_of(rows), {row.cloud for row in rows}
    silent = [f"{row.cloud} ({row.set})" for row in rows if row.method == OPEN3D and row.note]
    if silent:
        alone = table_of([row for row in rows if row.method != OPEN3D])
        table = {f"{name}, where Open3D answers": row for name, row in table.items()} | alone
        table[OPEN3D] = table.pop(f"{OPEN3D}, where Open3D answers")
    sets = [key for key in WANTED if key in table[OURS]]
    lines = [
        [name, *(percent(row[key]) if key in row else "-" for key in sets)]
        for name, row in table.items()
    ]
    intro = (
        f"Share of the points whose normal has the right sign, mean over {len(clouds)} closed "
        f"meshes, {rows[0].n:,} points each. Of Open3D the better sign of the whole cloud counts"
        + (f", and it has no answer for {', '.join(silent)}" if silent else "")
        + f"; `{TILES}` is the code for files larger than memory, with about {_TILES} tiles:"
    )
    mine = sorted(
        (r for r in rows if r.method == OURS and r.values), key=lambda r: r.values["share"]
    )
    few = [f"{r.cloud} ({r.set}) {percent(r.values['share'])}" for r in mine[:5]]
    fewest = f"Fewest, of ours: {', '.join(few)}."
    return "\n".join([intro, "", tables.table(["right sign", *sets], lines), "", fewest, ""])
