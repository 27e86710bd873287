"""Clouds made by formula: the same numbers for the same seed, and the exact normals with them.

Every function takes the number of points and a ``seed`` (an int or a :class:`torch.Generator`)
and gives a :class:`Shape` with ``pos`` (n, 3) float32 in about the unit ball.

>>> from veckm.data import shapes
>>> shapes.torus(1000, seed=1).pos.shape
torch.Size([1000, 3])
"""

from veckm.data.lidar import lidar
from veckm.data.sampling import Shape
from veckm.data.solids import box, cylinder, sphere, thick_shell, torus, volume
from veckm.data.statue import statue
from veckm.data.variety import random_shape
from veckm.data.views import scan

__all__ = [
    "Shape",
    "box",
    "cylinder",
    "lidar",
    "random_shape",
    "scan",
    "sphere",
    "statue",
    "thick_shell",
    "torus",
    "volume",
]
