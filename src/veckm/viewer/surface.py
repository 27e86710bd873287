"""Normals, curvature and their expected error, estimated when they are first needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veckm.tasks.normals import estimate
from veckm.viewer.display import DisplayCloud
from veckm.viewer.encodings import Encodings

#: Fewer points than this do not define a surface.
_MIN_POINTS = 8


@dataclass(frozen=True, eq=False)
class Surface:
    """The surface at the displayed points.

    Attributes:
        normal: unit length.
        error: expected angle error, in degrees.
        curvature: mean curvature, in one over the file's unit.
        from_file: whether the normals are the file's own.

    Shapes:
        - normal: (M, 3), error: (M,), curvature: (M,)
    """

    normal: np.ndarray
    error: np.ndarray
    curvature: np.ndarray
    from_file: bool

    @classmethod
    def of(cls, display: DisplayCloud, encodings: Encodings) -> Surface:
        """The surface of the points with the noise of the encodings.

        The file's own normals are used if it has some and no noise was added.
        """
        if len(encodings) < _MIN_POINTS:
            raise ValueError(
                f"{display.name}: {len(encodings)} points are too few for normals; "
                f"at least {_MIN_POINTS} are needed"
            )
        found = estimate(encodings.at, orient="consistent", curvature=True)
        own = display.cloud.normals if not encodings.settings.noise else None
        normal = found.normal.numpy()
        if own is not None:
            normal = np.nan_to_num(own[display.rows.numpy()].astype(np.float32))
            normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
        error, curvature = (
            values.nan_to_num().float().numpy() for values in (found.error, found.mean_curvature)
        )
        return cls(normal, error, curvature, own is not None)
