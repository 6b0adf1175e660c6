"""The projections as scikit-learn transformers: exact ones, and fast ones on landmarks."""

from domainwise.estimators.exact import COIR, DCM, DICA, KPCA
from domainwise.estimators.fast import FastCOIR, FastDCM, FastDICA, FastKPCA

__all__ = ["COIR", "DCM", "DICA", "KPCA", "FastCOIR", "FastDCM", "FastDICA", "FastKPCA"]
