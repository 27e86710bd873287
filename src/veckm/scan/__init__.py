"""Clouds larger than memory: tiles with a halo, resumable, on this machine or on Dask.

layout.py     which points are in which cell and tile
spool.py      the points on disk, cell after cell, and the results of the tiles
resume.py     whose work folder it is
operation.py  what an operation has to define
tiles.py      a tile and its halo in memory
encode.py     the encoding of every point
features.py   named features for classical machine learning
normals.py    normals, their expected error, curvature
execute.py    tiles one after the other, or on the workers of Dask
run.py        all of it, from a file to a file

The result is that of the whole cloud in memory within a tolerance, which every operation states.
"""

from veckm.scan.encode import Encode
from veckm.scan.features import Features
from veckm.scan.normals import Normals
from veckm.scan.resume import Changed, Stopped
from veckm.scan.run import Report, run

__all__ = ["Changed", "Encode", "Features", "Normals", "Report", "Stopped", "run"]
