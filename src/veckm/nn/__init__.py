"""Complex layers on torch's own complex dtypes, and the feature block that follows an encoding.

The building blocks of Section 3.4 and Appendix B of the VecKM paper, after `Deep Complex Networks
<https://arxiv.org/abs/1705.09792>`_ (Trabelsi et al., ICLR 2018). Channels are last throughout.
"""

from veckm.nn.activation import ComplexReLU
from veckm.nn.features import FeatureBlock
from veckm.nn.linear import ComplexLinear
from veckm.nn.magnitude import SquaredNorm
from veckm.nn.norm import ComplexBatchNorm

__all__ = ["ComplexBatchNorm", "ComplexLinear", "ComplexReLU", "FeatureBlock", "SquaredNorm"]
