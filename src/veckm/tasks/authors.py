"""How the program of VecKM's authors trains: recipe, loss and augmentation of a task."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from veckm.data.augment import Augment
from veckm.tasks.labeling import Classification, PartSegmentation
from veckm.training.recipe import Recipe


class Training(NamedTuple):
    """What :func:`veckm.training.train` needs beside a model and samples."""

    task: Classification | PartSegmentation
    recipe: Recipe
    augment: Augment


def authors_training(task: Classification | PartSegmentation) -> Training:
    """The authors' training of a task, with its number of classes and of points.

    Objects: SGD with labels smoothed and points dropped, a cosine from 0.01 to 0.0001. Parts: Adam,
    half the rate every 20 epochs. Not taken over: batch norms of parts whose momentum halves too,
    and points that are drawn with repetitions.
    """
    if isinstance(task, PartSegmentation):
        recipe = Recipe(251, 16, 1e-3, 1e-4, last_rate=1e-5, halve_every=20)
        return Training(task, recipe, Augment(0.1, (0.8, 1.25), per_axis=False))
    # Theirs gives 0.2 to the wrong classes, torch's to all of them.
    smoothing = 0.2 * task.num_classes / max(1, task.num_classes - 1)
    recipe = Recipe(250, 32, 1e-2, 5e-4, optimizer="sgd", last_rate=1e-4)
    augment = Augment(0.2, (2 / 3, 3 / 2), drop=0.875, keep_dropped=True)
    return Training(replace(task, smoothing=smoothing), recipe, augment)
