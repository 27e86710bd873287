"""Normals and curvature of a cloud, without parameters.

`estimate.py` is the task as users call it: statistics of the whole cloud (`stats.py`), the cloud at
several scales (`pyramid.py`), normals by the trained `network.py` or from moments (`untrained.py`),
their signs (`orient.py`, `consistent.py`), and curvature. `examples.py` and `train.py` train the
network; `classical.py` and `evaluate.py` are for comparison.
"""

from veckm.tasks.normals.estimate import (
    Estimate,
    Method,
    estimate,
    estimate_normals,
    load,
    save,
)
from veckm.tasks.normals.orient import Orientation

__all__ = ["Estimate", "Method", "Orientation", "estimate", "estimate_normals", "load", "save"]
