"""The projections as scikit-learn transformers: exact ones, and fast ones on landmarks."""

from domainwise.estimators.exact import COIR, DCM, DICA, KPCA, MDA, MIDA, SCA
from domainwise.estimators.fast import (
    FastCOIR,
    FastDCM,
    FastDICA,
    FastKPCA,
    FastMDA,
    FastMIDA,
    FastSCA,
)

__all__ = [
    "COIR",
    "DCM",
    "DICA",
    "KPCA",
    "MDA",
    "MIDA",
    "SCA",
    "FastCOIR",
    "FastDCM",
    "FastDICA",
    "FastKPCA",
    "FastMDA",
    "FastMIDA",
    "FastSCA",
]
