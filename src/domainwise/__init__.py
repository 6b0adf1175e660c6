"""domainwise: features that carry over to domains nobody has seen yet."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

#: Public names, imported when they are first asked for: the command line must begin to run before
#: it has loaded all that it needs, to be able to stop without a word about where it was.
_LAZY = {
    **dict.fromkeys(("COIR", "DCM", "DICA", "KPCA", "MDA", "MIDA", "SCA"), "domainwise.estimators"),
    **dict.fromkeys(("FastCOIR", "FastDCM", "FastDICA", "FastKPCA"), "domainwise.estimators"),
    **dict.fromkeys(("FastMDA", "FastMIDA", "FastSCA"), "domainwise.estimators"),
    **dict.fromkeys(("InvariantFeatures", "InvariantKernel"), "domainwise.invariant"),
    **dict.fromkeys(("InvariantSVC", "InvariantSVR"), "domainwise.invariant"),
    "precision": "domainwise.kernels.precision",
    "DCMCV": "domainwise.selection",
    "DomainContext": "domainwise.ensemble",
    "DomainEnsembleClassifier": "domainwise.ensemble",
    "DomainEnsembleRegressor": "domainwise.ensemble",
    "Evaluation": "domainwise.evaluation",
    "FastDCMCV": "domainwise.selection",
    "InvariantRidgeCV": "domainwise.selection",
    "InvariantRidgeClassifierCV": "domainwise.selection",
    "ShiftWatch": "domainwise.models.watch",
    "check_shift": "domainwise.models.shift",
    "evaluate": "domainwise.evaluation",
    "load": "domainwise.models.persistence",
    "save": "domainwise.models.persistence",
    "to_onnx": "domainwise.export",
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
    "ShiftWatch",
    "__version__",
    "check_shift",
    "evaluate",
    "load",
    "precision",
    "save",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
