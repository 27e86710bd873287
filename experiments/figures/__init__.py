"""The paper's figures, computed by this code on the machine it runs on.

encodings.py       encodings as colors, and under noise (Fig. 1, left)
cost.py            time against points and neighbors (Fig. 1, right, and the runtime figure)
kernel.py          the Gaussian kernel and its approximation (Fig. 3)
reconstruction.py  what an encoding still knows under corruption (Fig. 5)
scales.py          the effect of alpha and beta (appendix C)
sizes.py           the effect of D, p and the engine (appendix C)
style.py           one style for all, also for the plots of the benchmarks
camera.py          clouds on paper
make.py            all of them, as PNG and SVG
"""

from experiments.figures.make import FIGURES, Drawing, Effort, Made, make

__all__ = ["FIGURES", "Drawing", "Effort", "Made", "make"]
