"""Normals and curvature of a cloud, with no parameter to choose.

levels.py     the cloud at several scales: subsets, neighbors, planes
network.py    the trained estimator, which weighs them
free.py       the estimator without training, from moments
estimate.py   both as users call them, with orientation and curvature
orient.py     which of the two directions
curvature.py  how the surface bends
classical.py  PCA and jets of k neighbors, to compare with
paper.py      the network of the VecKM paper and those it was compared with
train.py      how the weights came to be
"""

from veckm.tasks.normals.estimate import (
    Estimate,
    Method,
    Orientation,
    estimate,
    estimate_normals,
    load,
    save,
)

__all__ = ["Estimate", "Method", "Orientation", "estimate", "estimate_normals", "load", "save"]
