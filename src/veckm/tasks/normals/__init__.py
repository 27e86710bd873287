"""Normals and curvature of a cloud, without parameters.

`estimate.py` is the task as users call it: statistics of the whole cloud (`stats.py`), the cloud at
several scales (`pyramid.py`), normals by the trained `network.py` or from moments (`untrained.py`),
their signs (`orient.py`), and curvature. `direction.py` chooses the side they are turned to;
`consistent.py` makes neighbors agree, from their votes (`votes.py`) and from what is inside
(`indicator.py`). `examples.py` and `train.py` train the network; `classical.py` and `evaluate.py`
are for comparison.
"""

from veckm.tasks.normals.direction import Direction, choose_direction
from veckm.tasks.normals.estimate import (
    Estimate,
    Method,
    estimate,
    estimate_normals,
    load,
    save,
)
from veckm.tasks.normals.orient import Orientation

__all__ = [
    "Direction",
    "Estimate",
    "Method",
    "Orientation",
    "choose_direction",
    "estimate",
    "estimate_normals",
    "load",
    "save",
]
