"""Several processes: the slice of a batch that each takes, and sums over all."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Ranks:
    """The number of this process, and the number of processes."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def mine(self, indices: Sequence[int]) -> Sequence[int]:
        """This process's slice of a joint batch; the slices differ by one in length at most."""
        start = self.rank * len(indices) // self.world
        stop = (self.rank + 1) * len(indices) // self.world
        return indices[start:stop]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world == 1:
            return value
        summed = value.clone()
        distributed.all_reduce(summed)
        return summed


def current() -> Ranks:
    """Those of the present process group; a single process without one."""
    if distributed.is_available() and distributed.is_initialized():
        return Ranks(distributed.get_rank(), distributed.get_world_size())
    return Ranks()


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """A process group under ``torchrun``, from its environment variables.

    A group that exists already is used and left as it is.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if not launched or distributed.is_initialized():
        yield current()
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current()
        distributed.barrier()  # no process leaves while another still needs it
    finally:
        gc.collect()  # a wrapped model that still exists holds the group's threads
        distributed.destroy_process_group()
