"""One training loop for all tasks, with checkpoints, logs and several processes."""

from veckm.training.checkpoint import Checkpoint, load_checkpoint, load_model
from veckm.training.evaluation import evaluate
from veckm.training.loop import fit, train
from veckm.training.precision import Precision
from veckm.training.recipe import Recipe, Task

__all__ = [
    "Checkpoint",
    "Precision",
    "Recipe",
    "Task",
    "evaluate",
    "fit",
    "load_checkpoint",
    "load_model",
    "train",
]
