"""Mixed precision: the number format of the products in a forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from veckm.engines.device import native_bfloat16
from veckm.training.recipe import Recipe


@dataclass(frozen=True)
class Precision:
    """What autocast rounds the factors of products to; weights and steps stay in float32.

    bfloat16 has the range of float32. In float16 small gradients become zero, so a scaler
    multiplies the loss; it skips steps whose gradients are infinite and halves its factor then.
    """

    products: torch.dtype = torch.float32  #: float32 (no autocast), bfloat16 or float16
    scale: float = 2.0**16  #: first factor of the loss, for float16

    @classmethod
    def of(cls, recipe: Recipe, device: torch.device) -> Precision:
        """Half precision on CUDA unless ``amp=False``: bfloat16 where the processor has it.

        On a CPU only with ``amp_cpu=True``, and only where it has instructions for bfloat16.
        """
        if device.type == "cpu" and recipe.amp and recipe.amp_cpu:
            return cls(torch.bfloat16) if native_bfloat16() else cls()
        if not recipe.amp or device.type != "cuda":
            return cls()
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return cls(torch.bfloat16 if native else torch.float16)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """For forward passes."""
        mixed = self.products != torch.float32
        return torch.autocast(device.type, self.products if mixed else None, enabled=mixed)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Of the loss; does nothing but for float16."""
        scaled = self.products == torch.float16
        return torch.amp.GradScaler(device.type, self.scale, enabled=scaled)

    def __str__(self) -> str:
        name = str(self.products).removeprefix("torch.")
        mixed = {torch.bfloat16: " by autocast", torch.float16: " by autocast, the loss scaled"}
        return f"products in {name}{mixed.get(self.products, '')}"
