"""Two clouds into one frame, and all places of a part in a scene.

`sampling.py` finds one resolution for both clouds, `surface.py` has their voxel means with normals
and the refinement, `matching.py` compares descriptors, `consensus.py` finds the motions that most
matches agree on, `align.py` is the task as users call it, and `find.py` repeats it.
"""

from veckm.tasks.registration.align import Registration, register
from veckm.tasks.registration.find import LEAST, Instance, find

__all__ = ["LEAST", "Instance", "Registration", "find", "register"]
