"""domainwise: models that generalize to unseen domains."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.adaptation import *
    from domainwise.ensemble import *
    from domainwise.estimators import *
    from domainwise.estimators.dcmcv import DCMCV as DCMCV
    from domainwise.estimators.dcmcv import FastDCMCV as FastDCMCV
    from domainwise.evaluation import *
    from domainwise.export import *
    from domainwise.invariant import *
    from domainwise.kernels.functions import precision as precision
    from domainwise.model_files.persistence import load as load
    from domainwise.model_files.persistence import save as save
    from domainwise.model_files.types import trusted_types as trusted_types
    from domainwise.ridge import *
    from domainwise.shift.check import check_shift as check_shift
    from domainwise.shift.watch import ShiftWatch as ShiftWatch

__version__ = "0.1.0"

#: Public names by module. Classes in this list can be saved in model files. Names are imported when
#: they are first used, so that the command line starts quickly and Ctrl-C causes no traceback.
API = {
    "domainwise.adaptation.adapter": "SiteAdapter",
    "domainwise.ensemble.context": "DomainContext",
    "domainwise.ensemble.ensemble": "DomainEnsembleClassifier DomainEnsembleRegressor",
    "domainwise.estimators.dcmcv": "DCMCV FastDCMCV",
    "domainwise.estimators.exact": "COIR DCM DICA KPCA MDA MIDA SCA",
    "domainwise.estimators.fast": "FastCOIR FastDCM FastDICA FastKPCA FastMDA FastMIDA FastSCA",
    "domainwise.evaluation": "Evaluation evaluate",
    "domainwise.export": "to_onnx",
    "domainwise.invariant.kernel": "InvariantFeatures InvariantKernel",
    "domainwise.invariant.machines": "InvariantSVC InvariantSVR",
    "domainwise.kernels.functions": "precision",
    "domainwise.model_files.persistence": "load save",
    "domainwise.model_files.types": "trusted_types",
    "domainwise.ridge.invariant_ridge": "InvariantRidgeCV InvariantRidgeClassifierCV",
    "domainwise.shift.check": "check_shift",
    "domainwise.shift.watch": "ShiftWatch",
}
_MODULE_BY_NAME = {name: module for module, names in API.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers use the imports above
    __all__ = ["__version__", *_MODULE_BY_NAME]


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(globals()["__all__"])
