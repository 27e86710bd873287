"""The field's rows as printed by their authors. None of them was measured here.

On the PCPNet test set: 19 shapes, 16 in the two density sets, 100,000 points each, RMSE over the
5,000 points of a list, in degrees. Times are theirs as well, on graphics cards.
"""

from __future__ import annotations

from benchmarks import tables
from veckm.data.protocol import SETS

#: none, low, med, high, stripe, gradient, mean; then seconds for 100,000 points and the card.
ROWS: dict[str, tuple[tuple[float, ...], str]] = {
    "PCA, k = 122": ((12.29, 12.87, 18.38, 27.52, 13.66, 12.81, 16.25), ""),
    "PCA, best of k = 18/122/450 per set": ((8.31, 12.00, 18.38, 23.5, 9.42, 9.14, 13.46), ""),
    "Jet, best of k per set": ((7.60, 12.36, 18.33, 23.41, 8.61, 8.49, 13.13), ""),
    "VecKM, the paper": (
        (13.59, 13.99, 18.05, 22.21, 17.20, 18.99, 17.34),
        "0.15 s, RTX A5000",
    ),
    "PCPNet": ((9.64, 11.51, 18.27, 22.84, 11.73, 13.46, 14.58), "61 s, RTX 2080"),
    "Nesti-Net": ((7.06, 10.24, 17.77, 22.31, 8.64, 8.95, 12.49), "hours"),
    "Lenssen et al.": ((6.72, 9.95, 17.18, 21.96, 7.73, 7.51, 11.84), "13 s"),
    "DeepFit": ((6.51, 9.21, 16.73, 23.12, 7.92, 7.31, 11.80), "35 s"),
    "AdaFit": ((5.19, 9.05, 16.45, 21.94, 6.01, 5.90, 10.76), "56 s, RTX 2080 Ti"),
    "HSurf-Net": ((4.17, 8.78, 16.25, 21.61, 4.98, 4.86, 10.11), "72 s"),
    "SHS-Net": ((3.95, 8.55, 16.13, 21.53, 4.91, 4.67, 9.96), "66 s"),
    "MSECNet": ((3.84, 8.74, 16.10, 21.05, 4.34, 4.51, 9.76), "0.61 s (patch mode)"),
    "PFF-Net": ((3.32, 8.34, 15.63, 20.94, 4.10, 3.92, 9.38), "5.06 s"),
}


def markdown() -> str:
    """The rows, and in bold that they are quoted and of what."""
    lines = [[name, *(f"{v:.2f}" for v in row), time] for name, (row, time) in ROWS.items()]
    return "\n".join(
        [
            "**Quoted, not measured here**: what the authors of other methods print, RMSE in "
            "degrees on the PCPNet test set (19 shapes, 16 in the last two sets, the normals of "
            "the mesh faces as truth). The shapes of the table above are others, so rows of the "
            "two tables cannot be compared; PCA and Jet stand in both, to show how hard each set "
            "of shapes is. Times are for 100,000 points on the authors' graphics cards:",
            "",
            tables.table(["quoted", *SETS, "mean", "100,000 points"], lines),
            "",
        ]
    )
