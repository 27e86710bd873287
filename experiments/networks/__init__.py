"""Tables 2 to 5 of the paper: the networks, their training, their times, and the pages.

PointMLP, DGCNN and KPConv are networks that VecKM is compared with, plain and with VecKM in front.
"""

from experiments.networks.dgcnn import DGCNNClassifier, DGCNNParts, DGCNNScenes
from experiments.networks.kpconv import KPConvClassifier, KPConvScenes
from experiments.networks.pointmlp import PointMLPClassifier, PointMLPParts
from veckm.models import PointModel

COMPARED: tuple[type[PointModel], ...] = (
    PointMLPClassifier,
    PointMLPParts,
    DGCNNClassifier,
    DGCNNParts,
    DGCNNScenes,
    KPConvClassifier,
    KPConvScenes,
)
