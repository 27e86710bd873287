"""Clouds to try things on, and datasets for networks to learn from.

Procedural shapes with exact normals, meshes, PCPNet; ModelNet, ShapeNetPart and S3DIS from folders
on disk.
"""

from veckm.data import shapes
from veckm.data.augment import Augment
from veckm.data.meshes import Mesh, load_meshes, read_mesh
from veckm.data.modelnet import read_modelnet
from veckm.data.pcpnet import PCPNet
from veckm.data.protocol import (
    SETS,
    LabeledCloud,
    add_noise,
    gradient_density,
    make_cloud,
    stripe_density,
)
from veckm.data.random_solids import random_shape, random_surface
from veckm.data.s3dis import Blocks, Scenes, read_s3dis
from veckm.data.samples import Batch, Sample, Samples, collate, hold_out
from veckm.data.shapenetpart import read_shapenetpart
from veckm.data.shapes import Shape

__all__ = [
    "SETS",
    "Augment",
    "Batch",
    "Blocks",
    "LabeledCloud",
    "Mesh",
    "PCPNet",
    "Sample",
    "Samples",
    "Scenes",
    "Shape",
    "add_noise",
    "collate",
    "gradient_density",
    "hold_out",
    "load_meshes",
    "make_cloud",
    "random_shape",
    "random_surface",
    "read_mesh",
    "read_modelnet",
    "read_s3dis",
    "read_shapenetpart",
    "shapes",
    "stripe_density",
]
