"""Clouds larger than memory: tiles with a halo, resumable, on this machine or on Dask.

layout.py    which points are in which cell and tile: by count, from one look at the file
spool.py     the points on disk, cell after cell; results beside them
journal.py   what was done, so that it is not done twice
region.py    some cells in memory, and what is proven not to depend on the others
encode.py    the encoding of every point
normals.py   normals, their expected error, curvature
execute.py   tiles one after the other, or on the workers of Dask
run.py       all of it, from a file to a file

The result is that of the whole cloud in memory, up to rounding: every operation says what that
means for it.
"""

from veckm.scan.encode import Encode
from veckm.scan.journal import Changed, Stopped
from veckm.scan.normals import Normals
from veckm.scan.run import Report, run

__all__ = ["Changed", "Encode", "Normals", "Report", "Stopped", "run"]
