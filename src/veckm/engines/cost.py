"""What things cost: the one place with measured rates, from which every engine predicts its time.

`auto` takes the engine with the smallest prediction, so only ratios matter. The CPU's rates were
measured on two cores (Zen 3, torch 2.13, float32) and fitted to `benchmarks/encode.py --parts
matrix`. The GPU's are read off data sheets of current cards; none of them has been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CostModel:
    """Seconds for the units of work that engines are made of."""

    flop: float  # one multiply or add inside a matrix product of a few hundred rows
    phasor: float  # phase, cosine, sine and interleaving of one complex number
    write: float  # normalize and write one complex number to fresh memory
    window: float  # one squared distance and one exponential, among many at once
    distance: float  # the same in small tiles
    row_byte: float  # gathering or scattering rows
    block: float  # overhead of one block in one pass: Python and thread hand-over, or padding
    call: float  # what planning costs however few the points are
    point: float  # sorting one point
    search: float  # looking up the neighbors of one point
    low_flop: float  # as `flop`, of factors in bfloat16 or float16

    def scaled(self, dtype: torch.dtype) -> CostModel:
        """The same in another precision: float64 takes twice as long in products."""
        if dtype == torch.float32:
            return self
        wide = {name: 2 * getattr(self, name) for name in ("flop", "row_byte", "write", "phasor")}
        return CostModel(**{**self.__dict__, **wide})


CPU = CostModel(
    flop=1 / 1.67e11,
    phasor=0.8e-9,
    write=1.3e-9,
    window=0.4e-9,
    distance=1.8e-9,
    row_byte=0.8e-10,
    block=4.0e-5,
    call=1.5e-3,
    point=2.0e-7,
    search=4.5e-6,
    low_flop=1 / 4.5e11,
)
GPU = CostModel(
    flop=1 / 1.3e13,
    phasor=2e-11,
    write=4e-11,
    window=3e-11,
    distance=3e-11,
    row_byte=1 / 4.0e11,
    block=2e-8,
    call=6e-3,
    point=2e-9,
    search=2e-9,
    low_flop=1 / 1e14,
)


def cost_model(device: torch.device, dtype: torch.dtype) -> CostModel:
    """The rates for tensors on this device."""
    return (CPU if device.type == "cpu" else GPU).scaled(dtype)
