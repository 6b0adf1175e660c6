"""domainwise: models that generalize to unseen domains."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from domainwise.model_files.types import OWN as _OWN

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

#: All projections that can be saved are public.
_PROJECTION_NAMES = " ".join(_OWN[f"domainwise.estimators.{name}"] for name in ("exact", "fast"))
#: Public names are imported when they are first used, so that the command line starts quickly and
#: Ctrl-C during startup causes no traceback.
_MODULE_BY_NAME = {
    name: f"domainwise.{module}"
    for module, names in {
        "adaptation": "SiteAdapter",
        "ensemble": "DomainContext DomainEnsembleClassifier DomainEnsembleRegressor",
        "estimators": _PROJECTION_NAMES,
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
