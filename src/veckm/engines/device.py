"""What differs between a CPU and other devices: memory, and what a call costs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def launches(device: torch.device) -> bool:
    """Whether every operation is a launch: few large ones are then better than many small ones."""
    return device.type != "cpu"


def empty(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(rows, columns), uninitialized, on the device and in the dtype of `like`.

    On the CPU the memory comes from NumPy, which asks Linux for huge pages as torch does not:
    touching a fresh result for the first time is then several times faster.
    """
    dtype = dtype or like.dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, columns, dtype=dtype)
    return torch.from_numpy(np.empty((rows, columns), str(dtype).removeprefix("torch.")))
