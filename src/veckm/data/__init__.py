"""Clouds to try things on: procedural shapes now, datasets next."""

from veckm.data import shapes
from veckm.data.shapes import Shape

__all__ = ["Shape", "shapes"]
