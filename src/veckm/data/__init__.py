"""Clouds to try things on: procedural shapes, meshes, PCPNet, and a benchmark of normals.

And clouds for networks to learn from: ModelNet, ShapeNetPart and S3DIS from folders on disk.
"""

from veckm.data import shapes
from veckm.data.augment import Augment
from veckm.data.corrupt import add_noise, gradient_density, stripe_density
from veckm.data.meshes import Mesh, normalize, read_mesh, sample_mesh
from veckm.data.modelnet import read_modelnet
from veckm.data.pcpnet import PCPNet, read_shape, write_pcpnet
from veckm.data.protocol import (
    SETS,
    LabeledCloud,
    angle_error,
    load_meshes,
    make_cloud,
    mean_over_sets,
    rmse,
    share_below,
)
from veckm.data.rooms import Blocks, Scenes
from veckm.data.s3dis import read_s3dis
from veckm.data.samples import Batch, Sample, Samples, collate, hold_out
from veckm.data.shapenetpart import read_shapenetpart
from veckm.data.shapes import Shape
from veckm.data.random_solids import random_shape, random_surface

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
    "angle_error",
    "collate",
    "gradient_density",
    "hold_out",
    "load_meshes",
    "make_cloud",
    "mean_over_sets",
    "normalize",
    "random_shape",
    "random_surface",
    "read_mesh",
    "read_modelnet",
    "read_s3dis",
    "read_shape",
    "read_shapenetpart",
    "rmse",
    "sample_mesh",
    "shapes",
    "share_below",
    "stripe_density",
    "write_pcpnet",
]
