"""Clouds to try things on: procedural shapes, meshes, PCPNet, and a benchmark of normals."""

from veckm.data import shapes
from veckm.data.corrupt import add_noise, gradient_density, stripe_density
from veckm.data.meshes import Mesh, normalise, read_mesh, sample_mesh
from veckm.data.pcpnet import PCPNet, read_shape, write_pcpnet
from veckm.data.protocol import (
    SETS,
    LabelledCloud,
    angle_error,
    load_meshes,
    make_cloud,
    mean_over_sets,
    rmse,
    share_below,
)
from veckm.data.shapes import Shape
from veckm.data.variety import random_shape, random_surface

__all__ = [
    "SETS",
    "LabelledCloud",
    "Mesh",
    "PCPNet",
    "Shape",
    "add_noise",
    "angle_error",
    "gradient_density",
    "load_meshes",
    "make_cloud",
    "mean_over_sets",
    "normalise",
    "random_shape",
    "random_surface",
    "read_mesh",
    "read_shape",
    "rmse",
    "sample_mesh",
    "shapes",
    "share_below",
    "stripe_density",
    "write_pcpnet",
]
