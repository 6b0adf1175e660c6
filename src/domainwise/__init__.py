"""domainwise: features that carry over to domains nobody has seen yet."""

from domainwise._precision import precision
from domainwise.estimators import COIR, DCM, DICA, KPCA
from domainwise.fast import FastCOIR, FastDCM, FastDICA, FastKPCA

__version__ = "0.1.0"

__all__ = [
    "COIR",
    "DCM",
    "DICA",
    "KPCA",
    "FastCOIR",
    "FastDCM",
    "FastDICA",
    "FastKPCA",
    "__version__",
    "precision",
]
