"""Normals and curvature of a cloud, without parameters.

stats.py      statistics of the whole cloud that every part of it needs
pyramid.py    the cloud at several scales: subsets, neighbors, planes
network.py    the trained estimator, which weighs the neighbors
untrained.py  the estimator without training, from moments
estimate.py   both as users call them, with orientation and curvature
orient.py     the sign of each normal
consistent.py signs that agree between neighbors, of a cloud or of tiles
curvature.py  principal curvatures
eigen.py      eigenvectors of symmetric 3 x 3 matrices
classical.py  PCA of k neighbors, for comparison
evaluate.py   angle errors
examples.py   the clouds that the network is trained on
train.py      training of the network
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
