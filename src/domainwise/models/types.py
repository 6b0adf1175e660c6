"""What a model file may hold: the reviewed list of types, and how skops builds each.

skops restores an object without calling its constructor and fills in its attributes. A type is
listed here if doing so with any attributes of listed types runs no code of the file's choice:
estimators of scikit-learn and of this package, the plain records they keep, arrays, numbers and
text. Functions, methods, partial functions and types that call what they are given are not
listed, and neither is anything that a person could have defined elsewhere.

Indices that compiled code follows without looking are checked in :mod:`domainwise.models.values`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HIST = "sklearn.ensemble._hist_gradient_boosting"

#: Objects of this package.
OURS = frozenset(
    {
        "domainwise.ensemble.context.DomainContext",
        "domainwise.ensemble.moments.Levels",
        "domainwise.ensemble.moments.Moments",
        "domainwise.estimators.exact.COIR",
        "domainwise.estimators.exact.DCM",
        "domainwise.estimators.exact.DICA",
        "domainwise.estimators.exact.KPCA",
        "domainwise.estimators.family.MDA",
        "domainwise.estimators.family.MIDA",
        "domainwise.estimators.family.SCA",
        "domainwise.estimators.fast.FastCOIR",
        "domainwise.estimators.fast.FastDCM",
        "domainwise.estimators.fast.FastDICA",
        "domainwise.estimators.fast.FastKPCA",
        "domainwise.estimators.fast_family.FastMDA",
        "domainwise.estimators.fast_family.FastMIDA",
        "domainwise.estimators.fast_family.FastSCA",
        "domainwise.gram.nystrom.NystromMap",
        "domainwise.gram.nystrom.NystromSums",
        "domainwise.gram.label_sums.LabelMap",
        "domainwise.invariant.calibration.Calibration",
        "domainwise.invariant.features.InvariantFeatures",
        "domainwise.invariant.kernel.InvariantKernel",
        "domainwise.invariant.machines.InvariantSVC",
        "domainwise.invariant.machines.InvariantSVR",
        "domainwise.invariant.ridge.Expansion",
        "domainwise.kernels.functions.Kernel",
        "domainwise.selection.dcmcv.DCMCV",
        "domainwise.selection.dcmcv.FastDCMCV",
        "domainwise.selection.invariant_ridge.InvariantRidgeCV",
        "domainwise.selection.invariant_ridge.InvariantRidgeClassifierCV",
        "domainwise.selection.invariant_search.InvariantSearchCV",
        "domainwise.selection.splitters.LeaveDomainsOut",
    }
)

#: Estimators of scikit-learn that stand before or after a projection, and their parts.
SCIKIT_LEARN = frozenset(
    {
        "sklearn._loss.link.HalfLogitLink",
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogLink",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.AbsoluteError",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn._loss.loss.HalfSquaredError",
        "sklearn.calibration.CalibratedClassifierCV",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.compose._target.TransformedTargetRegressor",
        "sklearn.decomposition._pca.PCA",
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
        "sklearn.dummy.DummyClassifier",
        "sklearn.dummy.DummyRegressor",
        f"{_HIST}.binning._BinMapper",
        f"{_HIST}.gradient_boosting.HistGradientBoostingClassifier",
        f"{_HIST}.gradient_boosting.HistGradientBoostingRegressor",
        f"{_HIST}.predictor.TreePredictor",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.isotonic.IsotonicRegression",
        "sklearn.kernel_approximation.Nystroem",
        "sklearn.kernel_ridge.KernelRidge",
        "sklearn.linear_model._base.LinearRegression",
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.linear_model._ridge.Ridge",
        "sklearn.linear_model._ridge.RidgeClassifier",
        "sklearn.model_selection._split.GroupKFold",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.LeaveOneGroupOut",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.MinMaxScaler",
        "sklearn.preprocessing._data.RobustScaler",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.preprocessing._encoders.OneHotEncoder",
        "sklearn.preprocessing._label.LabelBinarizer",
        "sklearn.preprocessing._label.LabelEncoder",
        "sklearn.svm._classes.LinearSVC",
        "sklearn.svm._classes.LinearSVR",
        "sklearn.svm._classes.SVC",
        "sklearn.svm._classes.SVR",
    }
)

_NUMBERS = frozenset(
    {
        "numpy.bool",
        "numpy.bool_",
        "numpy.float32",
        "numpy.float64",
        "numpy.int32",
        "numpy.int64",
        "numpy.intp",
        "numpy.str_",
        "numpy.uint32",
        "numpy.uint64",
        "numpy.uint8",
    }
)

#: What each of skops' ways of building something may build; other ways are not used at all.
ALLOWED: dict[str, frozenset[str]] = {
    "DTypeNode": frozenset({"numpy.dtype"}),
    "DictNode": frozenset({"builtins.dict"}),
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "LossNode": frozenset(
        f"sklearn._loss._loss.{name}"
        for name in (
            "CyAbsoluteError",
            "CyHalfBinomialLoss",
            "CyHalfMultinomialLoss",
            "CyHalfSquaredError",
        )
    ),
    "NdArrayNode": _NUMBERS | {"numpy.ndarray"},
    "ObjectNode": OURS | SCIKIT_LEARN,
    # The random numbers gradient boosting draws features with.
    "RandomGeneratorNode": frozenset({"numpy.random._generator.Generator"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "SetNode": frozenset({"builtins.set"}),
    "SliceNode": frozenset({"builtins.slice"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    # Types of keys and of columns, never called with more than a key.
    "TypeNode": _NUMBERS
    | {"builtins.bool", "builtins.float", "builtins.int", "builtins.str", "builtins.NoneType"},
}

#: For skops, which trusts some of these by itself.
TRUSTED = sorted(frozenset().union(*ALLOWED.values()))


def forbidden_types(schema: Any) -> list[str]:
    """Return the types in the description of a model file that are not allowed, sorted.

    Nothing is imported or built. Every object that skops would build is described by a dict with
    the key ``__loader__``; looking at all dicts, wherever they are, cannot miss one.

    Parameters
    ----------
    schema : object
        Content of ``schema.json``.

    Examples
    --------
    >>> forbidden_types({"__loader__": "FunctionNode", "__module__": "os", "__class__": "system"})
    ['os.system']
    """
    found = set()
    for node in _dicts(schema):
        if "__loader__" not in node:
            continue
        loader = node["__loader__"]
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if not isinstance(loader, str) or name not in ALLOWED.get(loader, frozenset()):
            found.add(name)
    return sorted(found)


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """All dicts in a JSON value, without recursion, so that no depth of nesting is too much."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
