"""domainwise: models that generalize to unseen domains."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.algebra.kernels.functions import precision as precision
    from domainwise.estimators.adaptation import *
    from domainwise.estimators.ensemble import *
    from domainwise.estimators.invariant import *
    from domainwise.estimators.projections import *
    from domainwise.estimators.projections.dcmcv import DCMCV as DCMCV
    from domainwise.estimators.projections.dcmcv import FastDCMCV as FastDCMCV
    from domainwise.estimators.ridge import *
    from domainwise.evaluation import *
    from domainwise.models.export import *
    from domainwise.models.files.persistence import load as load
    from domainwise.models.files.persistence import save as save
    from domainwise.models.files.types import trusted_types as trusted_types
    from domainwise.tables.shift.check import check_shift as check_shift
    from domainwise.tables.shift.watch import ShiftWatch as ShiftWatch

__version__ = "0.1.0"

#: Public names by module. Classes in this list can be saved in model files. Names are imported when
#: they are first used, so that the command line starts quickly and Ctrl-C causes no traceback.
API = {
    "domainwise.estimators.adaptation.adapter": "SiteAdapter",
    "domainwise.estimators.ensemble.context": "DomainContext",
    "domainwise.estimators.ensemble.ensemble": "DomainEnsembleClassifier DomainEnsembleRegressor",
    "domainwise.estimators.projections.dcmcv": "DCMCV FastDCMCV",
    "domainwise.estimators.projections.exact": "COIR DCM DICA KPCA MDA MIDA SCA",
    "domainwise.estimators.projections.fast": "FastCOIR FastDCM FastDICA FastKPCA FastMDA "
    "FastMIDA FastSCA",
    "domainwise.evaluation": "Evaluation evaluate",
    "domainwise.models.export": "to_onnx",
    "domainwise.estimators.invariant.kernel": "InvariantFeatures InvariantKernel",
    "domainwise.estimators.invariant.machines": "InvariantSVC InvariantSVR",
    "domainwise.algebra.kernels.functions": "precision",
    "domainwise.models.files.persistence": "load save",
    "domainwise.models.files.types": "trusted_types",
    "domainwise.estimators.ridge.invariant_ridge": "InvariantRidgeCV InvariantRidgeClassifierCV",
    "domainwise.tables.shift.check": "check_shift",
    "domainwise.tables.shift.watch": "ShiftWatch",
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
