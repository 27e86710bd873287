"""One training loop for all tasks, with checkpoints, logs and several processes."""

from veckm.training.checkpoint import Checkpoint, load_checkpoint
from veckm.training.evaluation import evaluate
from veckm.training.loop import train
from veckm.training.recipe import Recipe, Task

__all__ = ["Checkpoint", "Recipe", "Task", "evaluate", "load_checkpoint", "train"]
