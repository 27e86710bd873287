"""Complex layers, and the feature block that follows an encoding.

The building blocks of Section 3.4 and Appendix B of the VecKM paper, after `Deep Complex Networks
<https://arxiv.org/abs/1705.09792>`_ (Trabelsi et al., ICLR 2018). Channels are last throughout.
Tensors that pass through are complex; parameters are stored as real numbers, (Re, Im) last.
"""

from veckm.nn.features import ComplexReLU, FeatureBlock, SquaredNorm
from veckm.nn.linear import ComplexLinear
from veckm.nn.norm import ComplexBatchNorm

__all__ = ["ComplexBatchNorm", "ComplexLinear", "ComplexReLU", "FeatureBlock", "SquaredNorm"]
