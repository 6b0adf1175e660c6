"""Methods that `evaluate` and `fit` accept by name: estimators, grids and descriptions.

Most projections are registered in ``estimators/projections/exact.py``. To add another method, add
an entry to ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise.algebra.kernels.approximations import landmark_count
from domainwise.base.arguments import SequenceOf
from domainwise.base.messages import listed, load_texts
from domainwise.estimators import projections as estimators
from domainwise.estimators.ensemble import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.estimators.invariant import InvariantSVC, InvariantSVR
from domainwise.estimators.invariant.tuning import InvariantSearchCV
from domainwise.estimators.projections.dcmcv import DCMCV, FastDCMCV
from domainwise.estimators.projections.exact import REGISTERED
from domainwise.estimators.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.held_out.scoring.predictions import has_argument, requests_domains
from domainwise.held_out.search import grids
from domainwise.held_out.search.grids import WEIGHTS, Grid, InUnits, dcm_grid
from domainwise.models.candidates import BOOSTING
from domainwise.models.tuning import MethodSearch
from domainwise.tables.shift.watch import ShiftWatch

MAX_SEARCH_LANDMARKS = 500  #: limit for a search; its time is quadratic in this number
CONTEXT = "+context"  #: suffix of a method's name if it predicts with the domains of new rows
#: Predictors that can follow a projection, by task; the first is the default.
PREDICTORS = {"classification": ("lda", "logistic", "svm"), "regression": ("ridge", "svm")}


@dataclass(frozen=True)
class Setting:
    """The task and settings for which a method's estimator is built."""

    classification: bool
    n_rows: int  #: number of training rows
    scoring: Any = None  #: scorer of the search; None means a smooth score
    class_weight: str | None = None  #: "balanced" or None; only if the user asks for it
    predictor: str = "auto"  #: predictor after a projection: "auto", or one of ``PREDICTORS``
    metric: Any = None  #: scorer by which methods are compared, which decides about ``decision``
    decision: Any = "auto"  #: as in :class:`MethodSearch`, like ``pos_label`` and ``cv``
    pos_label: Any = None
    cv: Any = None
    seed: int = 0
    n_jobs: int | None = None
    weighted: bool = False  #: whether rows have weights

    @property
    def predictor_name(self) -> str:
        """The predictor after a projection."""
        if self.predictor != "auto":
            return self.predictor
        # scikit-learn's discriminants do not accept weights.
        names = PREDICTORS[self.task]
        return "logistic" if self.weighted and self.classification else names[0]

    @property
    def task(self) -> str:
        """The task, "classification" or "regression"."""
        return "classification" if self.classification else "regression"


@dataclass(frozen=True)
class Method:
    """A method from the registry, or a user's own method."""

    key: str  #: name in ``methods``
    labels: tuple[str, str]  #: names in tables, for classification and for regression
    build: Callable[[Setting], Any]  #: returns the estimator, or the projection without a predictor
    grids: tuple[Grid, Grid] | None  #: candidates for classification and for regression
    #: "baseline" (a standard method), "projection", "machine" (other methods), or a user's "own".
    kind: str
    description: str = ""  #: one line; those of most methods are in ``methods.toml``
    searches: bool = False  #: whether the estimator is a search, to which the grid is passed
    is_default: bool = False  #: whether `evaluate` runs the method by default
    #: Whether `evaluate` reports a second row, with predictions that use the domains of new rows.
    context: bool = False
    cost: float = 7.0  #: rough relative time in `evaluate`
    prepare: bool = True  #: whether rows are preprocessed first; False passes them unchanged
    classes_only: bool = False  #: whether the method needs classes
    trivial: bool = False  #: whether the prediction is the same for every row

    def check_task(self, classification: bool) -> None:
        """Raise ValueError if the target is continuous and the method needs classes."""
        if self.classes_only and not classification:
            raise ValueError(
                f"method {self.key!r} needs classes, but the target is continuous. Use another "
                "method"
            )

    def label(self, classification: bool) -> str:
        """Return the name in tables."""
        return self.labels[0 if classification else 1]

    def about(self, classification: bool) -> str:
        """Return a one-line description, with the tuned parameters."""
        text = self.description or DESCRIPTIONS[self.key]
        return text if isinstance(text, str) else text[0 if classification else 1]

    def rows(self, classification: bool) -> list[tuple[str, str, bool]]:
        """Return (key, name, whether predictions use domains) for each row in a table."""
        key, label = self.key, self.label(classification)
        context_rows = [(key + CONTEXT, label + CONTEXT, True)] if self.context else []
        return [(key, label, False), *context_rows]

    def grid(self, classification: bool) -> Grid | None:
        """Return candidate values by argument, or None if there is no search."""
        return None if self.grids is None else self.grids[0 if classification else 1]

    def make(self, setting: Setting) -> MethodSearch:
        """Return an unfitted estimator, whose ``fit`` chooses the method's arguments."""
        self.check_task(setting.classification)
        estimator = self.build(setting)
        if self.kind == "projection":
            predictor = make_predictor(setting)
            if self.searches:  # candidates are scored with the same predictor
                estimator.set_params(estimator=predictor)
            estimator = Pipeline([("project", estimator), ("predict", predictor)])
        elif setting.predictor != "auto":
            raise ValueError(
                f"method {self.key!r} is already a predictor; got predictor={setting.predictor!r}. "
                "Use predictor='auto'"
            )
        role, has_wrong_type = "regressor", is_classifier
        if setting.classification:
            role, has_wrong_type = "classifier", is_regressor
        if self.kind == "own" and has_wrong_type(estimator):
            raise ValueError(
                f"methods: {self.key!r} must be a {role}, because the task is {setting.task}"
            )
        grid = self.grid(setting.classification)
        items = (grid or {}).items()
        if setting.class_weight is not None:
            items = {name: v for name, v in items if name != "class_weight"}.items()
        units = {name: v.unit for name, v in items if isinstance(v, InUnits)}
        values = {name: list(v.values if isinstance(v, InUnits) else v) for name, v in items}
        return MethodSearch(
            estimator,
            None if grid is None else values,
            units,
            step="project" if self.kind == "projection" else "",
            searches=self.searches,
            own=self.kind == "own",
            scoring=setting.scoring,
            pos_label=setting.pos_label,
            cv=setting.cv,
            n_jobs=None if self.searches else setting.n_jobs,
            decision=setting.decision,
            metric=setting.metric,
        )

    def pipeline(self, setting: Setting, preprocessor: Any, *, watch: bool = False) -> Pipeline:
        """Return preprocessing and estimator as an unfitted pipeline.

        ``watch`` adds a step with the statistics that :func:`~domainwise.check_shift` needs.
        """
        steps = [("watch", ShiftWatch())] if watch else []
        steps += [("prepare", clone(preprocessor))] if self.prepare else []
        return Pipeline([*steps, ("model", self.make(setting))])


def own_method(entry: Any, prepare: bool = True) -> Method:
    """Make a method from a user's ``(name, estimator)`` or ``(name, estimator, grid)`` tuple."""
    if not isinstance(entry, tuple) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
        raise ValueError(
            "methods must be names, (name, estimator) pairs or (name, estimator, grid) triples; "
            f"got {entry!r}"
        )
    name, estimator, grid = (*entry, None)[:3]
    required_methods = ("fit", "predict", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, m) for m in required_methods):
        raise ValueError(f"methods: {name!r} must be a scikit-learn estimator; got {estimator!r}")
    dict_of_lists = SequenceOf(SequenceOf(object), of_dict=True)
    if grid is not None and not dict_of_lists.is_satisfied_by(grid or {"": [0]}):
        raise ValueError(f"methods: the grid for {name!r} must be a dict of lists; got {grid!r}")
    last_step = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last_step, MethodSearch):  # predict of MethodSearch always takes domains
        uses_context = has_argument(last_step.estimator.predict)
    else:
        uses_context = requests_domains(estimator, "predict") or has_argument(estimator.predict)
    search_note = f" with tuned {', '.join(grid)}" if grid else ""
    description = type(estimator).__name__ + search_note
    build, task_grids = partial(_clone, estimator), None if grid is None else (grid, grid)
    fields = name, (name, name), build, task_grids, "own", description
    return Method(*fields, prepare=prepare, context=uses_context)


def _clone(estimator: Any, setting: Setting) -> Any:
    return clone(estimator)


def make_predictor(setting: Setting) -> Any:
    """Return the simple predictor that follows a projection."""
    predictor_names = PREDICTORS[setting.task]
    if setting.predictor not in ("auto", *predictor_names):
        raise ValueError(
            f"predictor={setting.predictor!r} is not supported for {setting.task}. Use one of "
            f"{', '.join(predictor_names)}"
        )
    name, class_weight = setting.predictor_name, setting.class_weight
    if name == "ridge":
        return Ridge()
    if name == "lda":
        # Class weights would only change its priors, which calibration undoes.
        return LinearDiscriminantAnalysis()
    if name == "logistic":
        return LogisticRegression(max_iter=1000, class_weight=class_weight)
    if setting.classification:
        return SVC(class_weight=class_weight)
    # An SVR's C and epsilon are in units of the target, so the target is standardized.
    return TransformedTargetRegressor(SVR(), transformer=StandardScaler())


EXACT_ROWS = 5000  #: maximum number of rows for exact projections; with more, landmarks are used
SEARCH_EXACT_ROWS = 2000  #: the same for DCMCV and its variants, which compare many candidates
ENSEMBLE_ROWS = 20_000  #: maximum number of rows for which method "auto" is the ensemble
N_SVMS = 5  #: number of SVMs that are averaged
N_TREES = 100  #: number of boosting iterations


def _constant(setting: Setting) -> Any:
    return DummyClassifier() if setting.classification else DummyRegressor()


def _by_task(make_classifier: Any, make_regressor: Any, setting: Setting, **options: Any) -> Any:
    """Return the classifier with class weights, or the regressor, depending on the task."""
    if setting.classification:
        return make_classifier(class_weight=setting.class_weight, **options)
    return make_regressor(**options)


def _boosting(setting: Setting) -> Any:
    """Return histogram gradient boosting, with fewer bins for fewer rows.

    With class weights there are fewer bins, because scikit-learn then computes bin borders one by
    one, which takes longer than growing the trees.
    """
    is_weighted = setting.classification and setting.class_weight is not None
    n_bins = (32 if is_weighted else 63) if setting.n_rows < 2000 else (63 if is_weighted else 255)
    options: Any = dict(max_iter=N_TREES, max_bins=n_bins, random_state=setting.seed)
    return _by_task(*BOOSTING, setting, early_stopping=False, **options)


def _by_n_rows(
    make_exact: Any,
    fast_class: type,
    setting: Setting,
    fast: bool = False,
    exact_rows: int = EXACT_ROWS,
) -> Any:
    """Return the exact projection; with many rows or ``fast``, the one with landmarks."""
    if not fast and setting.n_rows <= exact_rows:
        return make_exact()
    use_fraction = landmark_count("auto", setting.n_rows) > MAX_SEARCH_LANDMARKS
    # Pass a fraction of the rows, because the search also fits to fewer rows.
    n_landmarks = MAX_SEARCH_LANDMARKS / setting.n_rows if use_fraction else "auto"
    return fast_class(n_landmarks=n_landmarks, random_state=setting.seed)


def dcm_path(setting: Setting, fast: bool = False) -> Any:
    """Return a search for DCM whose candidates share matrix products."""
    make_exact = partial(DCMCV, random_state=setting.seed)
    search = _by_n_rows(make_exact, FastDCMCV, setting, fast, SEARCH_EXACT_ROWS)
    return search.set_params(n_jobs=setting.n_jobs)


def _invariant(setting: Setting) -> Any:
    """Return a search that averages the best SVMs, because scores on few domains are noisy."""
    svm = _by_task(InvariantSVC, InvariantSVR, setting, random_state=setting.seed)
    return InvariantSearchCV(svm, {}, n_average=N_SVMS, n_jobs=setting.n_jobs)


def _invariant_ridge(setting: Setting) -> Any:
    options: Any = dict(random_state=setting.seed, n_jobs=setting.n_jobs)
    return _by_task(InvariantRidgeClassifierCV, InvariantRidgeCV, setting, **options)


def _ensemble(setting: Setting) -> Any:
    options: Any = dict(random_state=setting.seed, n_jobs=setting.n_jobs, cv=setting.cv)
    return _by_task(DomainEnsembleClassifier, DomainEnsembleRegressor, setting, **options)


DCMCV_GRID = dcm_grid(*WEIGHTS, conditionals=(False, True))
_svm = partial(_by_task, SVC, SVR)
_linear = partial(_by_task, partial(LogisticRegression, max_iter=1000), Ridge)
# Iterative solvers converge slowly for DICA (theory 5.2).
_dica = partial(_by_n_rows, partial(estimators.DICA, solver="dense"), estimators.FastDICA)

#: One-line description of each method, or a pair for classification and for regression.
DESCRIPTIONS: dict[str, str | list[str]] = load_texts("domainwise.models", "methods.toml")

_baseline: Callable[..., Method] = partial(Method, kind="baseline", is_default=True)
_machine: Callable[..., Method] = partial(Method, kind="machine", searches=True)


def _projection(label: str, *task_grids: Grid, build: Any = None, **options: Any) -> Method:
    """Return the projection with this label; if the label begins with Fast, use landmarks."""
    name, searches = label.removeprefix("Fast"), build is dcm_path
    if build is None:
        build = partial(_by_n_rows, getattr(estimators, name), getattr(estimators, f"Fast{name}"))
    build = build if name == label else partial(build, fast=True)
    key, labels, grid_pair = label.lower(), (label, label), (task_grids[0], task_grids[-1])
    return Method(key, labels, build, grid_pair, "projection", searches=searches, **options)


def _registered(label: str) -> Method:
    """Return a projection from ``estimators/projections/exact.py``, or its fast variant."""
    entry = REGISTERED[label.removeprefix("Fast")]
    note = " with landmarks" if label.startswith("Fast") else ""
    tuned = listed([*entry.grid])
    description = f"{entry.title}{note} followed by a linear model, with tuned {tuned}"
    options: Any = {"classes_only": entry.classes_only, "description": description}
    return _projection(label, entry.grid, **options)


METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        _baseline("constant", ("constant",) * 2, _constant, None, cost=0.1, trivial=True),
        _baseline("svm", ("SVM", "SVR"), _svm, grids.SVM, cost=5.0),
        _baseline("linear", ("logistic", "ridge"), _linear, grids.LINEAR, cost=0.7),
        _baseline("boosting", ("boosting",) * 2, _boosting, (grids.BOOSTING,) * 2, cost=8.0),
        _registered("KPCA"),
        _projection("COIR", dcm_grid(0.0), build=dcm_path),
        _projection("DICA", grids.DICA, build=_dica),
        _projection("DCM", dcm_grid(1.0), build=dcm_path),
        _projection("FastDCM", dcm_grid(*WEIGHTS), build=dcm_path),
        _projection("DCMCV", DCMCV_GRID, dcm_grid(*WEIGHTS), build=dcm_path, is_default=True),
        _machine(
            "invariant", ("InvariantSVC", "InvariantSVR"), _invariant, grids.INVARIANT_SVM, cost=20
        ),
        _machine(
            "invariantridge",
            ("InvariantRidge",) * 2,
            _invariant_ridge,
            ({}, {}),
            cost=12.0,
            is_default=True,
        ),
        _machine(
            "ensemble", ("ensemble",) * 2, _ensemble, None, context=True, cost=30.0, is_default=True
        ),
        _projection("FastDCMCV", DCMCV_GRID, dcm_grid(*WEIGHTS), build=dcm_path),
        _projection("FastCOIR", dcm_grid(0.0), build=dcm_path),
        _projection("FastDICA", grids.DICA, build=_dica),
        _registered("FastKPCA"),
        *(
            _registered(prefix + name)
            for prefix in ("", "Fast")
            for name in REGISTERED
            if name != "KPCA"
        ),
    )
}
ALL = "all"  #: name for all methods
#: The method with a constant prediction, with which other methods are compared.
TRIVIAL = next(key for key, method in METHODS.items() if method.trivial)


def find_method(name: str | Method, n_rows: int | None = None) -> Method:
    """Find a method by its key or its name in tables, ignoring case; return a Method unchanged.

    With ``n_rows``, "auto" is the default of `fit` for this number of rows.

    >>> find_method("logistic").key, find_method("INVARIANTSVC").key
    ('linear', 'invariant')
    """
    if isinstance(name, Method):
        return name
    lower_name = str(name).lower()
    if lower_name == "auto" and n_rows is not None:
        return METHODS["ensemble" if n_rows <= ENSEMBLE_ROWS else "invariantridge"]
    if lower_name.endswith(CONTEXT):  # the same model; its predict gets domains
        method = find_method(lower_name.removesuffix(CONTEXT), n_rows)
        if method.context:
            return method
    for method in METHODS.values():
        if lower_name in (method.key, *(label.lower() for label in method.labels)):
            return method
    accepted_names = [*(["auto"] if n_rows is not None else []), *METHODS]
    raise ValueError(f"method {name!r} is unknown. Use one of {', '.join(accepted_names)}")


def methods_for(methods: Sequence[Method], classification: bool) -> list[Method]:
    """Check that methods support the task; if all methods are passed, return only those that do."""
    if {*METHODS} <= {method.key for method in methods}:
        methods = [m for m in methods if classification or not m.classes_only]
    for method in methods:
        method.check_task(classification)
    return list(methods)


def choose_methods(names: Any, *, prepare: bool = True) -> list[Method]:
    """Look up methods by name; None means the defaults of `evaluate`, and "all" means all methods.

    ``names`` is a list of names (or a str of names separated by commas), methods, and a user's own
    estimators as ``(name, estimator)`` or ``(name, estimator, grid)`` tuples, or a dict of
    estimators by name. ``prepare`` says whether these get preprocessed rows. Methods from the
    registry come first, in its order.
    """
    if names is None:
        return [method for method in METHODS.values() if method.is_default]
    if isinstance(names, str):
        names = names.replace(",", " ").split()
    if isinstance(names, Mapping):
        names = names.items()
    if not isinstance(names, Iterable):
        raise TypeError(f"methods must be a list of names or of (name, estimator); got {names!r}")
    if not names:
        raise ValueError(f"methods is empty. Use {ALL!r}, or names from {', '.join(METHODS)}")
    if ALL in names:
        names = [*METHODS, *(name for name in names if name != ALL)]
    method_keys = {find_method(name).key for name in names if isinstance(name, str)}
    chosen_methods = [method for method in METHODS.values() if method.key in method_keys]
    for entry in [entry for entry in names if not isinstance(entry, str)]:
        method = entry if isinstance(entry, Method) else own_method(entry, prepare)
        all_methods = [*chosen_methods, *METHODS.values()]
        used_names = {name.lower() for other in all_methods for name in (other.key, *other.labels)}
        if method.kind == "own" and method.key.lower() in used_names:
            raise ValueError(
                f"methods: {method.key!r} is the name of another method. Choose another name"
            )
        chosen_methods.append(method)
    return chosen_methods
