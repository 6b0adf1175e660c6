"""The methods of `evaluate` and `fit` by name: their estimators, grids and descriptions.

To add a method, add an entry to ``METHODS``; no other module refers to individual methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise import estimators
from domainwise.checks.arguments import SequenceOf
from domainwise.ensemble import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.estimators.dcmcv import DCMCV, FastDCMCV
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.invariant.search import InvariantSearchCV
from domainwise.kernels.landmarks import landmark_count
from domainwise.models.search import MethodSearch
from domainwise.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.scoring.predictions import has_argument, requests_domains
from domainwise.search import grids
from domainwise.search.grids import WEIGHTS, Grid, InUnits, dcm_grid
from domainwise.shift.watch import ShiftWatch

#: Maximum number of landmarks in a search: the cost of its dozens of fits is quadratic in them.
SEARCH_LANDMARKS = 500
#: Suffix of a method's name if it predicts with the domains of new rows.
CONTEXT = "+context"
#: Predictors that can follow a projection, by task; the first is the default.
PREDICTORS = {"classification": ("lda", "logistic", "svm"), "regression": ("ridge", "svm")}


@dataclass(frozen=True)
class Setting:
    """The task that a method's estimator is built for."""

    classification: bool
    n_rows: int  #: rows of the fit
    scoring: Any = None  #: scorer that chooses arguments; None is a smooth score
    class_weight: str | None = None  #: "balanced" or None
    predictor: str = "auto"  #: after a projection: "auto", or one of ``PREDICTORS``
    probability: bool = False  #: whether to calibrate machines that have no probabilities
    pos_label: Any = None  #: see :class:`MethodSearch`, also for cv and n_jobs
    cv: Any = None
    seed: int = 0
    n_jobs: int | None = None

    @property
    def task(self) -> str:
        """Kind of target."""
        return "classification" if self.classification else "regression"


@dataclass(frozen=True)
class Method:
    """A method of the registry, or a user's own."""

    key: str  #: name in ``methods``
    labels: tuple[str, str]  #: names in tables, for classes and for a continuous target
    build: Callable[[Setting], Any]  #: returns the estimator; a projection without predictor
    grids: tuple[Grid, Grid] | None  #: candidates for classes and for a continuous target
    #: "baseline" (others are compared with it), "projection", "machine", or a user's "own".
    kind: str
    about: str = ""  #: description in one line, with the arguments that are chosen
    searches: bool = False  #: whether the estimator is a search, with the grid as arguments
    compared: bool = False  #: whether `evaluate` runs it by default
    #: Whether `evaluate` reports a second row, with predictions that use the domains of new rows.
    context: bool = False
    cost: float = 7.0  #: rough relative time in `evaluate`
    prepare: bool = True  #: whether rows are preprocessed first; False passes them unchanged
    classes_only: bool = False  #: whether it needs classes
    trivial: bool = False  #: whether it predicts the same for every row

    def check_task(self, classification: bool) -> None:
        """Refuse a continuous target if the method is for classification only."""
        if self.classes_only and not classification:
            raise ValueError(
                f"method {self.key!r} compares classes, but the target is continuous. Use another "
                "method"
            )

    def label(self, classification: bool) -> str:
        """Name in tables."""
        return self.labels[0 if classification else 1]

    def rows(self, classification: bool) -> list[tuple[str, str, bool]]:
        """Return key, name, and whether predictions use domains, for each of its rows in tables."""
        plain = (self.key, self.label(classification), False)
        return [plain, (plain[0] + CONTEXT, plain[1] + CONTEXT, True)] if self.context else [plain]

    def grid(self, classification: bool) -> Grid | None:
        """Candidates by argument; None if there are no arguments to choose."""
        return None if self.grids is None else self.grids[0 if classification else 1]

    def make(self, setting: Setting) -> MethodSearch:
        """Return the estimator, not fitted; it chooses its arguments inside ``fit``."""
        self.check_task(setting.classification)
        estimator = self.build(setting)
        if self.kind == "projection":
            predict = head(setting)
            if self.searches:  # candidates are scored with the predictor that will be used
                estimator.set_params(estimator=predict)
            estimator = Pipeline([("project", estimator), ("predict", predict)])
        elif setting.predictor != "auto":
            raise ValueError(f"method {self.key!r} is already a predictor: leave out predictor")
        kind, needed, is_wrong = "regressor", "classifier", is_regressor
        if not setting.classification:
            kind, needed, is_wrong = "classifier", "regressor", is_classifier
        if self.kind == "own" and is_wrong(estimator):
            raise ValueError(
                f"methods: {self.key!r} is a {kind}, but the task is {setting.task}. Pass a "
                f"{needed}"
            )
        grid = self.grid(setting.classification)
        units = {name: v.unit for name, v in (grid or {}).items() if isinstance(v, InUnits)}
        values = {n: v.values if isinstance(v, InUnits) else v for n, v in (grid or {}).items()}
        return MethodSearch(
            estimator,
            None if grid is None else {name: list(v) for name, v in values.items()},
            units,
            step="project" if self.kind == "projection" else "",
            searches=self.searches,
            own=self.kind == "own",
            scoring=setting.scoring,
            pos_label=setting.pos_label,
            cv=setting.cv,
            n_jobs=None if self.searches else setting.n_jobs,
        )

    def pipeline(self, setting: Setting, preprocessor: Any, *, watch: bool = False) -> Pipeline:
        """Return preprocessing and estimator as a pipeline, not fitted.

        With ``watch`` it also collects the statistics that :func:`~domainwise.check_shift` needs.
        """
        first = [("watch", ShiftWatch())] if watch else []
        prepare = [("prepare", clone(preprocessor))] if self.prepare else []
        return Pipeline([*first, *prepare, ("model", self.make(setting))])


class ClassMeans(LinearDiscriminantAnalysis):
    """Linear discriminant analysis with equal priors of all classes."""

    equal_priors = True

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with the same prior for every class."""
        model: Any = super().fit(X, y)
        # Class frequencies weight the pooled covariance, as they should, and shift the intercepts
        # (one for two classes, otherwise one for each class): undo this shift.
        logs = np.log(model.priors_)
        model.intercept_ = model.intercept_ - (logs[1:] - logs[:1] if len(logs) == 2 else logs)
        model.priors_ = np.full(len(model.classes_), 1.0 / len(model.classes_))
        return self


def own_method(entry: Any, prepare: bool = True) -> Method:
    """Make a method from a user's ``(name, estimator)`` or ``(name, estimator, grid)``."""
    if not isinstance(entry, tuple) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
        raise ValueError(
            f"methods holds {entry!r}; use names, (name, estimator) or (name, estimator, grid)"
        )
    name, estimator, grid = (*entry, None)[:3]
    required = ("fit", "predict", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, m) for m in required):
        raise ValueError(f"methods: {name!r} must be a scikit-learn estimator, got {estimator!r}")
    lists = SequenceOf(SequenceOf(object), of_dict=True)
    if grid is not None and not lists.is_satisfied_by(grid or {"": [0]}):
        raise ValueError(f"methods: the grid of {name!r} must be a dict of lists, got {grid!r}")
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, MethodSearch):  # its predict always takes domains
        context = has_argument(last.estimator.predict)
    else:
        context = requests_domains(estimator, "predict") or has_argument(estimator.predict)
    return Method(
        name,
        (name, name),
        partial(_clone, estimator),
        None if grid is None else (grid, grid),
        "own",
        type(estimator).__name__ + (f"; {', '.join(grid)} chosen" if grid else ""),
        prepare=prepare,
        context=context,
    )


def _clone(estimator: Any, setting: Setting) -> Any:
    return clone(estimator)


def head(setting: Setting) -> Any:
    """Return the simple predictor that follows a projection."""
    accepted = PREDICTORS[setting.task]
    if setting.predictor not in ("auto", *accepted):
        raise ValueError(
            f"predictor {setting.predictor!r}: for {setting.task} use one of {', '.join(accepted)}"
        )
    predictor = accepted[0] if setting.predictor == "auto" else setting.predictor
    weight = setting.class_weight
    if predictor == "ridge":
        return Ridge()
    if predictor == "lda":
        return LinearDiscriminantAnalysis() if weight is None else ClassMeans()
    if predictor == "logistic":
        return LogisticRegression(max_iter=1000, class_weight=weight)
    if setting.classification:
        return SVC(class_weight=weight)
    # An SVR's C and epsilon are in units of the target: standardize the target.
    return TransformedTargetRegressor(SVR(), transformer=StandardScaler())


#: Rows beyond which projections use landmarks instead of all pairs of rows.
EXACT_ROWS = 5000
#: Up to this many rows "auto" is the ensemble.
ENSEMBLE_ROWS = 20_000
MEMBERS = 5  #: machines that are averaged: scores on few domains are too noisy to choose one
TREES = 100


def _constant(s: Setting) -> Any:
    return DummyClassifier() if s.classification else DummyRegressor()


def _either(classifier: Any, regressor: Any, s: Setting, **options: Any) -> Any:
    """Return the classifier, with class weights, or the regressor, by the task."""
    if s.classification:
        return classifier(class_weight=s.class_weight, **options)
    return regressor(**options)


def _boosting(s: Setting) -> Any:
    """Return histogram gradient boosting; up to 255 rows, every value can have its own bin.

    With class weights there are fewer bins: scikit-learn computes their borders one by one, which
    takes longer than the trees.
    """
    few, many = (32, 63) if s.classification and s.class_weight is not None else (63, 255)
    bins = 255 if s.n_rows <= 255 else few if s.n_rows < 2000 else many
    options: Any = dict(early_stopping=False, max_iter=TREES, max_bins=bins, random_state=s.seed)
    return _either(HistGradientBoostingClassifier, HistGradientBoostingRegressor, s, **options)


def _sized(exact: Callable[[], Any], landmarks: type, s: Setting, fast: bool = False) -> Any:
    """Return the exact projection, or for many rows or ``fast`` the one with landmarks."""
    if not fast and s.n_rows <= EXACT_ROWS:
        return exact()
    exceeded = landmark_count("auto", s.n_rows) > SEARCH_LANDMARKS
    # A fraction, because a search also fits to fewer rows.
    count = SEARCH_LANDMARKS / s.n_rows if exceeded else "auto"
    return landmarks(n_landmarks=count, random_state=s.seed)


def dcm_path(s: Setting, fast: bool = False) -> Any:
    """Return a search for DCM whose candidates share matrix products."""
    exact = partial(DCMCV, random_state=s.seed)
    return _sized(exact, FastDCMCV, s, fast).set_params(n_jobs=s.n_jobs)


def _invariant(s: Setting) -> Any:
    """Average the best machines: scores on few domains are too noisy to choose one."""
    # Beyond EXACT_ROWS every candidate would be calibrated, not only the selected ones.
    calibrated = s.probability and s.n_rows <= EXACT_ROWS
    classifier = partial(InvariantSVC, probability=calibrated)
    machine = _either(classifier, InvariantSVR, s, random_state=s.seed)
    return InvariantSearchCV(machine, {}, n_average=MEMBERS, n_jobs=s.n_jobs)


def _invariant_ridge(s: Setting) -> Any:
    options: Any = dict(random_state=s.seed, n_jobs=s.n_jobs)
    return _either(InvariantRidgeClassifierCV, InvariantRidgeCV, s, **options)


def _ensemble(s: Setting) -> Any:
    options: Any = dict(random_state=s.seed, n_jobs=s.n_jobs, cv=s.cv)
    return _either(DomainEnsembleClassifier, DomainEnsembleRegressor, s, **options)


BOTH = dcm_grid(*WEIGHTS, conditionals=(False, True))
_svm = partial(_either, SVC, SVR)
_linear = partial(_either, partial(LogisticRegression, max_iter=1000), Ridge)
# Iterative solvers fail on DICA's systems (theory 5.2); these sizes are solved directly.
_dica = partial(_sized, partial(estimators.DICA, solver="dense"), estimators.FastDICA)

SCATTERS = "and a linear model; the search chooses gamma, ridge and domain weight"
INDEPENDENCE = "and a linear model; the search chooses gamma, components and domain weight"
#: Description of each method, and the arguments that are chosen.
ABOUT = {
    "constant": "predicts the most frequent class, or the mean, of the source domains",
    "svm": "support vector machine, RBF kernel; the search chooses C and gamma",
    "linear": "linear model; the search chooses its penalty",
    "boosting": "histogram gradient boosting, 100 trees; the search chooses their size",
    "kpca": "kernel PCA and a linear model; the search chooses gamma and components",
    "coir": "DCM without domains, and a linear model; the search chooses gamma and ridge",
    "dica": "domain-invariant component analysis, linear model; the search chooses gamma, lam",
    "dcm": "domain weight 1, as in the paper, linear model; the search chooses gamma and ridge",
    "fastdcm": "DCMCV on landmarks",
    "dcmcv": "DCM and a linear model; the search chooses gamma, ridge and the domain penalty",
    "invariant": "vote of the five best SVMs with invariant kernels; the search chooses them",
    "invariantridge": "kernel ridge, averaged over the ten invariant kernels with the best scores",
    "ensemble": (
        "average of kernel machines, trees, boosting and a linear model, weighted by scores"
    ),
    "fastdcmcv": "DCMCV with at most 500 landmarks, for large tables",
    "fastcoir": "COIR with landmarks",
    "fastdica": "DICA with landmarks",
    "fastkpca": "KPCA with landmarks",
    "sca": f"scatter component analysis {SCATTERS}",
    "mda": f"multidomain discriminant analysis {SCATTERS}",
    "mida": f"independence of the domain {INDEPENDENCE}",
    "fastsca": f"scatter component analysis with landmarks {SCATTERS}",
    "fastmda": f"multidomain discriminant analysis with landmarks {SCATTERS}",
    "fastmida": f"independence of the domain with landmarks {INDEPENDENCE}",
}

_baseline: Callable[..., Method] = partial(Method, kind="baseline", compared=True)
_machine: Callable[..., Method] = partial(Method, kind="machine", searches=True)


def _projection(label: str, *values: Grid, build: Any = None, **rest: Any) -> Method:
    """Return the projection of this name; names that begin with Fast always use landmarks."""
    name, searches = label.removeprefix("Fast"), build is dcm_path
    if build is None:
        build = partial(_sized, getattr(estimators, name), getattr(estimators, f"Fast{name}"))
    build = build if name == label else partial(build, fast=True)
    grids, labels = (values[0], values[-1]), (label, label)
    return Method(label.lower(), labels, build, grids, "projection", searches=searches, **rest)


METHODS: dict[str, Method] = {
    method.key: replace(method, about=ABOUT[method.key])
    for method in (
        _baseline("constant", ("majority", "constant"), _constant, None, cost=0.1, trivial=True),
        _baseline("svm", ("SVM", "SVR"), _svm, grids.SVM, cost=5.0),
        _baseline("linear", ("logistic", "ridge"), _linear, grids.LINEAR, cost=0.7),
        _baseline("boosting", ("boosting",) * 2, _boosting, (grids.BOOSTING,) * 2, cost=8.0),
        _projection("KPCA", grids.KPCA),
        _projection("COIR", dcm_grid(0.0), build=dcm_path),
        _projection("DICA", grids.DICA, build=_dica),
        _projection("DCM", dcm_grid(1.0), build=dcm_path),
        _projection("FastDCM", dcm_grid(*WEIGHTS), build=dcm_path),
        _projection("DCMCV", BOTH, dcm_grid(*WEIGHTS), build=dcm_path, compared=True),
        _machine(
            "invariant", ("InvariantSVC", "InvariantSVR"), _invariant, grids.INVARIANT_SVM, cost=20
        ),
        _machine(
            "invariantridge",
            ("InvariantRidge",) * 2,
            _invariant_ridge,
            ({}, {}),
            cost=12.0,
            compared=True,
        ),
        _machine(
            "ensemble", ("ensemble",) * 2, _ensemble, None, context=True, cost=30.0, compared=True
        ),
        _projection("FastDCMCV", BOTH, dcm_grid(*WEIGHTS), build=dcm_path),
        _projection("FastCOIR", dcm_grid(0.0), build=dcm_path),
        _projection("FastDICA", grids.DICA, build=_dica),
        _projection("FastKPCA", grids.KPCA),
        _projection("SCA", grids.SCATTER, classes_only=True),
        _projection("MDA", grids.SCATTER, classes_only=True),
        _projection("MIDA", grids.MIDA),
        _projection("FastSCA", grids.SCATTER, classes_only=True),
        _projection("FastMDA", grids.SCATTER, classes_only=True),
        _projection("FastMIDA", grids.MIDA),
    )
}
ALL = "all"  #: stands for the names of all methods
#: The method that predicts the same for every row, with which others are compared.
TRIVIAL = next(key for key, method in METHODS.items() if method.trivial)


def find_method(name: str | Method, n_rows: int | None = None) -> Method:
    """Find a method by its key or its name in tables, ignoring case; a Method is returned as is.

    With ``n_rows``, "auto" is the default of `fit` for that many rows.

    >>> find_method("logistic").key, find_method("INVARIANTSVC").key
    ('linear', 'invariant')
    """
    if isinstance(name, Method):
        return name
    lowered = str(name).lower()
    if lowered == "auto" and n_rows is not None:
        return METHODS["ensemble" if n_rows <= ENSEMBLE_ROWS else "invariantridge"]
    if lowered.endswith(CONTEXT):  # the same model; predict gets the domains of rows
        plain = find_method(lowered.removesuffix(CONTEXT), n_rows)
        if plain.context:
            return plain
    for method in METHODS.values():
        if lowered in (method.key, *(label.lower() for label in method.labels)):
            return method
    accepted = [*(["auto"] if n_rows is not None else []), *METHODS]
    raise ValueError(f"method {name!r} is not known; use one of {', '.join(accepted)}")


def methods_for(methods: Sequence[Method], classification: bool) -> list[Method]:
    """Refuse methods that do not support the kind of target; leave them out of "all" methods."""
    if {*METHODS} <= {method.key for method in methods}:
        methods = [m for m in methods if classification or not m.classes_only]
    for method in methods:
        method.check_task(classification)
    return list(methods)


def choose_methods(names: Any, *, prepare: bool = True) -> list[Method]:
    """Look up methods by name; None selects the default ones of `evaluate`, "all" every method.

    ``names`` holds names (or is a str of names separated by commas), methods, and own estimators as
    ``(name, estimator)`` or ``(name, estimator, grid)``; ``prepare`` is whether own estimators get
    preprocessed rows. Methods of the registry come first, in its order.
    """
    if names is None:
        return [method for method in METHODS.values() if method.compared]
    if isinstance(names, str):
        names = [part for part in names.replace(",", " ").split() if part]
    if not names:
        raise ValueError(f"methods is empty; use {ALL!r}, or names from {', '.join(METHODS)}")
    if ALL in names:
        names = [*METHODS, *(name for name in names if name != ALL)]
    estimators = [name for name in names if not isinstance(name, str)]
    keys = {find_method(name).key for name in names if isinstance(name, str)}
    chosen = [method for method in METHODS.values() if method.key in keys]
    for item in estimators:
        method = item if isinstance(item, Method) else own_method(item, prepare)
        others = [*chosen, *METHODS.values()]
        taken = {name.lower() for other in others for name in (other.key, *other.labels)}
        if method.kind == "own" and method.key.lower() in taken:
            raise ValueError(
                f"methods: {method.key!r} is the name of another method. Choose another name"
            )
        chosen.append(method)
    return chosen
