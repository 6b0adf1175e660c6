"""domainwise: features that carry over to domains nobody has seen yet."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.adaptation import *
    from domainwise.ensemble import *
    from domainwise.estimators import *
    from domainwise.estimators.dcmcv import DCMCV, FastDCMCV
    from domainwise.evaluation import *
    from domainwise.export import *
    from domainwise.invariant import *
    from domainwise.kernels.functions import precision
    from domainwise.model_files.persistence import load, save
    from domainwise.model_files.types import trusted_types
    from domainwise.ridge import *
    from domainwise.shift.check import check_shift
    from domainwise.shift.watch import ShiftWatch

__version__ = "0.1.0"

#: Public names, imported when they are first asked for: the command line must begin to run before
#: it has loaded all that it needs, to be able to stop without a word about where it was.
_LAZY = {
    name: f"domainwise.{module}"
    for module, names in {
        "adaptation": "SiteAdapter",
        "ensemble": "DomainContext DomainEnsembleClassifier DomainEnsembleRegressor",
        "estimators": "COIR DCM DICA KPCA MDA MIDA SCA FastCOIR FastDCM FastDICA FastKPCA FastMDA "
        "FastMIDA FastSCA",
        "evaluation": "Evaluation evaluate",
        "export": "to_onnx",
        "invariant": "InvariantFeatures InvariantKernel InvariantSVC InvariantSVR",
        "kernels.functions": "precision",
        "model_files.persistence": "load save",
        "model_files.types": "trusted_types",
        "shift.check": "check_shift",
        "shift.watch": "ShiftWatch",
        "selection": "DCMCV FastDCMCV InvariantRidgeCV InvariantRidgeClassifierCV",
    }.items()
    for name in names.split()
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
    "SiteAdapter",
    "__version__",
    "check_shift",
    "evaluate",
    "load",
    "precision",
    "save",
    "to_onnx",
    "trusted_types",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
