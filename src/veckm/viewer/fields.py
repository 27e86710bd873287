"""What a cloud can be colored by: its own colors, every field of its file, and what is computed."""

from __future__ import annotations

import numpy as np

from veckm.cloud import COLOR_NAMES, PACKED, PointCloud
from veckm.viewer.colors import CATEGORIES, GRAY, Coloring, Legend, by_range

#: What is computed from the coordinates when it is first asked for, as the page labels it.
COMPUTED = {
    "height": "height",
    "normals": "normals",
    "curvature": "curvature",
    "confidence": "confidence of normals",
    "encoding": "encoding",
    "similarity": "similarity with the picked point",
    "match": "similarity of matching points",
}
#: Those that need encodings.
ENCODED = {"encoding", "similarity", "match"}
#: Standard point classes of ASPRS LAS 1.4, and colors that make them easy to recognize.
ASPRS = (
    ("never classified", (150, 150, 150)),
    ("unclassified", (190, 190, 190)),
    ("ground", (166, 118, 66)),
    ("low vegetation", (168, 214, 110)),
    ("medium vegetation", (98, 176, 72)),
    ("high vegetation", (24, 120, 50)),
    ("building", (213, 60, 50)),
    ("low point (noise)", (120, 40, 120)),
    ("model key point", (240, 160, 60)),
    ("water", (40, 110, 220)),
    ("rail", (90, 70, 60)),
    ("road surface", (80, 80, 90)),
    ("overlap", (230, 200, 120)),
    ("wire, guard", (250, 210, 0)),
    ("wire, conductor", (230, 159, 0)),
    ("transmission tower", (0, 90, 110)),
    ("wire-structure connector", (204, 121, 167)),
    ("bridge deck", (120, 130, 200)),
    ("high noise", (200, 60, 200)),
    ("overhead structure", (170, 90, 130)),
    ("ignored ground", (205, 170, 125)),
    ("snow", (150, 210, 240)),
    ("temporal exclusion", (60, 60, 60)),
)
#: Fields of classes, and of intensity, by their lowercase names.
_CLASSES = ("classification", "class", "classes", "label", "labels", "scalar_classification")
_INTENSITY = ("intensity", "scalar_intensity", "reflectance", "reflectivity")
_PARTS = {name for names in COLOR_NAMES for name in names} | {*PACKED}
#: Integers with at most so many values are categories; so many are listed in a legend.
_FEW, _LISTED = 12, 20
#: Components of a field with several numbers per point that can be chosen.
_COMPONENTS = 4


def choices(cloud: PointCloud) -> dict[str, str]:
    """Names of what the cloud can be colored by, and their labels; constant fields are left out."""
    found = {}
    if varied(cloud.colors):
        found["file"] = "the file's own colors"
    for name, values in cloud.fields.items():
        for part in [""] if values.ndim == 1 else range(min(values.shape[1], _COMPONENTS)):
            key = f"{name} {part}".strip()
            if name not in _PARTS and varied(field_values(cloud, key)):
                found[key] = f"{key} of the file" if key in COMPUTED else key
    return found | {key: label for key, label in COMPUTED.items() if key not in found}


def first_color(cloud: PointCloud) -> str:
    """What shows most of a cloud at once: its own colors, classes, intensity, or else height."""
    if varied(cloud.colors):
        return "file"
    by_name = {name.lower(): name for name in cloud.fields}
    usual = (by_name[name] for name in (*_CLASSES, *_INTENSITY) if name in by_name)
    return next((name for name in usual if varied(cloud.fields[name])), "height")


def varied(values: np.ndarray | None) -> bool:
    """Whether there is more than one value."""
    return values is not None and bool((values[1:] != values[:-1]).any())


def field_values(cloud: PointCloud, key: str) -> np.ndarray:  # (N,)
    """A field, or the component of a field whose number follows its name."""
    if key in cloud.fields:
        return cloud.fields[key]
    name, part = key.rsplit(" ", 1)
    column: np.ndarray = cloud.fields[name][:, int(part)]
    return column


def by_field(name: str, values: np.ndarray) -> Coloring:  # (M,)
    """Colors of a field: keys for categories, a color map for anything else."""
    classes = name.lower() in _CLASSES
    if values.dtype.kind in "iub" and (classes or int(np.ptp(values.astype(np.int64))) < 256):
        found, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        if classes or len(found) <= _FEW:
            return _by_category(name, found, place, counts, asprs="classification" in name.lower())
    return by_range(values, name, "from the 2nd to the 98th percentile")


def class_name(name: str, value: float) -> str:
    """What a value of a field of LAS classes means; nothing for all others."""
    known = "classification" in name.lower() and value in range(len(ASPRS))
    return ASPRS[int(value)][0] if known else ""


def _by_category(
    name: str, found: np.ndarray, place: np.ndarray, counts: np.ndarray, asprs: bool
) -> Coloring:  # (K,), (M,), (K,)
    palette = [color for _, color in ASPRS] if asprs else list(CATEGORIES)
    colors = [palette[int(v) % len(palette)] if asprs else palette[k % len(palette)]
              for k, v in enumerate(found)]  # fmt: skip
    listed = np.sort(np.argsort(-counts, kind="stable")[:_LISTED])
    share = counts / counts.sum()
    labels = tuple(f"{found[k]} {class_name(name, found[k])} ({share[k]:.1%})" for k in listed)
    note = f"and {len(found) - _LISTED} rarer values" if len(found) > _LISTED else ""
    legend = Legend(name, labels, tuple(colors[k] for k in listed), note)
    return Coloring(np.array(colors, dtype=np.uint8)[place.reshape(-1)], legend)


def by_file(colors: np.ndarray) -> Coloring:  # (M, 3) in bytes, 16 bits, or from 0 to 1
    """The colors of a file, whatever range it stores them in."""
    top = float(colors.max(initial=0))
    scale = 255.0 if colors.dtype.kind == "f" and top <= 1.0 else 1 / 257 if top > 255 else 1.0
    rgb = np.rint(colors.astype(np.float32) * np.float32(scale)).clip(0, 255).astype(np.uint8)
    return Coloring(rgb, Legend("The file's own colors", ("red, green and blue as stored",), GRAY))
