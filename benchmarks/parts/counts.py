"""What one encoding would launch on a GPU, and how often it would wait: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

import veckm
from benchmarks import device, tables
from benchmarks.cases import Case, Config, Truth, relative_error
from benchmarks.harness import Row, log
from benchmarks.parts import batches
from benchmarks.tables import Claim

NAME = "counts"
TITLE = "Operations and waits"
_BATCH, _SURFACE = "32 x 1,024 points", "100,000 points"
#: Columns of B for the authors' snippet: its operations do not depend on them, its memory does.
_SNIPPET_P = 256
_CHECKED = {False: "validate=False", True: "validate=True"}


def appendix_b(pos: Tensor, A: Tensor, B: Tensor) -> Tensor:  # (..., N, 3) -> (..., N, D)
    """The forward pass of Appendix B of the paper, line by line."""
    pA, pB, d = pos @ A, pos @ B, A.shape[1]
    eA = torch.concatenate((torch.cos(pA), torch.sin(pA)), dim=-1)
    eB = torch.concatenate((torch.cos(pB), torch.sin(pB)), dim=-1)
    G = torch.matmul(eB, eB.transpose(-1, -2) @ eA)
    G = torch.complex(G[..., :d], G[..., d:]) / torch.complex(eA[..., :d], eA[..., d:])
    return G / torch.norm(G, dim=-1, keepdim=True) * d**0.5


def measure(config: Config) -> Iterator[Row]:
    """The same sizes in a quick run: it takes seconds."""
    log("counts: 32 clouds of 1,024 points")
    batch = Case(NAME, _BATCH, batches.clouds(), 30.0, 6.0)
    exact = batches.exact(batch)
    yield from _case(batch, ("dense", "grid"), lambda G: relative_error(G[:, :16], exact))
    log("counts: 100,000 points")
    surface = Case(NAME, _SURFACE, config.cloud("statue", 100_000), 60.0, 10.0)
    yield from _case(surface, ("grid",), Truth.of(surface, 200).keep)


def _case(
    case: Case, engines: Sequence[str], error: Callable[[Tensor], tuple[float, float]]
) -> Iterator[Row]:
    pos, A, B = (device.moved(x) for x in (case.pos, case.A, case.B(_SNIPPET_P)))
    theirs = {"Appendix B": partial(appendix_b, pos, A, B)}
    if case.pos.dim() == 3:
        theirs["paper"] = partial(batches.paper, pos, A, case.beta)
    for method, call in theirs.items():
        counts, _ = device.count(call)
        yield case.row(method, **vars(counts))
    for engine in engines:
        for validate, setting in _CHECKED.items():
            run = partial(veckm.encode, pos, A, beta=case.beta, eps=case.eps, validate=validate)
            counts, G = device.count(partial(run, engine=engine))  # type: ignore[arg-type]
            mean, most = error(G)
            yield case.row(engine, setting, mean_error=mean, max_error=most, **vars(counts))
    _, took = device.count(lambda: veckm.plan(pos, beta=case.beta, eps=case.eps).engine)
    yield case.row("auto", took=took)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Few operations, and fewer waits."""
    by = {(row.cloud, row.method, row.setting): row for row in rows}
    dense = by[_BATCH, "dense", _CHECKED[False]]
    where = f"dense, {_BATCH}, {_CHECKED[False]}"
    out = [
        _at_most(f"operations that are not views, {where}", dense.kernels, 25, 20),
        _at_most(f"waits, {where}", dense.waits, 0),
    ]
    for setting in _CHECKED.values():
        grid, where = by[_SURFACE, "grid", setting], f"grid, {_SURFACE}, {setting}"
        out.append(_at_most(f"operations, views included, {where}", grid.operations, 600))
        out.append(_at_most(f"waits, {where}", grid.waits, 10))
    return out


def _at_most(text: str, value: int | None, target: int, aim: int | None = None) -> Claim:
    assert value is not None
    aimed = "" if aim is None else f"about {aim}"
    return Claim(text, f"≤ {target}", str(value), value <= target, aimed)


def markdown(rows: Sequence[Row]) -> str:
    """One table, and what auto takes."""
    names = {"Appendix B": "the authors' snippet (Appendix B)", "paper": "the paper's product"}
    lines = []
    for row in rows:
        if row.method != "auto":
            numbers = [str(n) for n in (row.operations, row.kernels, row.waits)]
            name = names.get(row.method, row.method)
            lines.append([row.cloud, name, row.setting, *numbers, tables.error(row)])
    header = ["cloud", "call", "setting", "operations", "not views", "waits", "mean error"]
    taken = [f"{row.took} for {row.cloud}" for row in rows if row.method == "auto"]
    return "\n".join(
        [
            "One call, D = 256, on tensors that claim to lie on a GPU and compute on the CPU: "
            "counted, not timed, and no GPU was involved. Operations are those that torch "
            "dispatches; views launch nothing. A wait is what `torch.cuda.set_sync_debug_mode` "
            "would report. By the rates assumed for GPUs, `auto` takes " + ", ".join(taken) + ".",
            "",
            tables.table(header, lines),
            "",
        ]
    )
