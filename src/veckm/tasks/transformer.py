"""The features as a step of a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from veckm.extras import need
from veckm.tasks.features import FeatureConfig, Invariants, features, suggest_radii

_base = need("sklearn.base", "FeatureTransformer", "sklearn")


class FeatureTransformer(_base.TransformerMixin, _base.BaseEstimator):  # type: ignore[misc, name-defined]
    """Coordinates of a cloud (N, 3) to its features (N, F), as :func:`veckm.features`.

    ``make_pipeline(FeatureTransformer((0.5, 1.0)), RandomForestClassifier())``. The rows given to
    ``transform`` are one cloud: each is described by the others. Radii that are not given are those
    suggested for the cloud of ``fit``.
    """

    def __init__(
        self,
        radii: tuple[float, ...] | None = None,
        *,
        invariants: Invariants = "gravity",
        height: bool = True,
        eps: float = 1e-2,
    ) -> None:
        self.radii, self.invariants, self.height, self.eps = radii, invariants, height, eps

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the radii."""
        del y
        radii = suggest_radii(_points(X)) if self.radii is None else tuple(self.radii)
        self.config_ = FeatureConfig(radii, self.invariants, self.height, self.eps)
        self.n_features_in_ = 3
        return self

    def transform(self, X: Any) -> np.ndarray:  # (N, F) float32
        """The features of all points of a cloud."""
        if not hasattr(self, "config_"):
            raise ValueError("FeatureTransformer is not fitted yet: call fit before transform")
        c = self.config_
        found = features(_points(X), c.radii, invariants=c.invariants, height=c.height, eps=c.eps)
        return np.column_stack([column.numpy() for column in found.values()])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns."""
        del input_features
        return np.array(self.config_.columns, dtype=object)


def _points(X: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.asarray(X, dtype=np.float64)))
