"""domainwise: features that carry over to domains nobody has seen yet."""

from importlib import import_module
from typing import Any

from domainwise.estimators import (
    COIR,
    DCM,
    DICA,
    KPCA,
    MDA,
    MIDA,
    SCA,
    FastCOIR,
    FastDCM,
    FastDICA,
    FastKPCA,
    FastMDA,
    FastMIDA,
    FastSCA,
)
from domainwise.invariant import InvariantFeatures, InvariantKernel, InvariantSVC, InvariantSVR
from domainwise.kernels.precision import precision

__version__ = "0.1.0"

#: Public names whose modules are imported when they are first asked for.
_LAZY = {
    "DCMCV": "domainwise.selection",
    "DomainContext": "domainwise.ensemble",
    "DomainEnsembleClassifier": "domainwise.ensemble",
    "DomainEnsembleRegressor": "domainwise.ensemble",
    "Evaluation": "domainwise.evaluation",
    "FastDCMCV": "domainwise.selection",
    "InvariantRidgeCV": "domainwise.selection",
    "InvariantRidgeClassifierCV": "domainwise.selection",
    "evaluate": "domainwise.evaluation",
    "load": "domainwise.models.persistence",
    "save": "domainwise.models.persistence",
}

__all__ = [
    "COIR",
    "DCM",
    "DCMCV",
    "DICA",
    "KPCA",
    "MDA",
    "MIDA",
    "SCA",
    "DomainContext",
    "DomainEnsembleClassifier",
    "DomainEnsembleRegressor",
    "Evaluation",
    "FastCOIR",
    "FastDCM",
    "FastDCMCV",
    "FastDICA",
    "FastKPCA",
    "FastMDA",
    "FastMIDA",
    "FastSCA",
    "InvariantFeatures",
    "InvariantKernel",
    "InvariantRidgeCV",
    "InvariantRidgeClassifierCV",
    "InvariantSVC",
    "InvariantSVR",
    "__version__",
    "evaluate",
    "load",
    "precision",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
