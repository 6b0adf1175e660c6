"""The methods that are compared, and the small grids their parameters are chosen from.

A method is a search: given numeric source rows and splits of them, it returns a fitted estimator
with the parameters that did best on the left-out sources. All of them get the same splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise.arrays import Array
from domainwise.estimators import DICA, KPCA, FastDICA, FastKPCA
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.kernels.functions import resolve_gamma
from domainwise.selection import (
    DCMCV,
    FastDCMCV,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
    InvariantSearchCV,
)
from domainwise.selection.measure import Measure

#: Source rows beyond which projections use landmarks instead of all pairs of rows.
EXACT_ROWS = 5000
GAMMAS = (0.3, 1.0, 3.0)  #: times the median rule
COSTS = (0.1, 1.0, 10.0, 100.0)
RIDGES = (1e-3, 1e-1, float("inf"))
WEIGHTS = (0.01, 0.1, 1.0)
MEMBERS = 5  #: machines that vote
SHRINKAGES = (1e-4, 1e-2, 1.0)  #: DICA's lambda over the number of rows
ALPHAS = (1e-2, 1.0, 1e2, 1e4)
TREES = 100


@dataclass(frozen=True)
class Sources:
    """What a method may see: rows of the source domains, as numbers."""

    X: Array
    y: Array
    sample_domain: Array
    splits: Sequence[tuple[Array, Array]]
    measure: Measure
    classification: bool
    seed: int

    @property
    def class_weight(self) -> str | None:
        """Classes weigh the same in training where they do in the measure."""
        return "balanced" if self.classification and self.measure.balanced else None

    @property
    def gammas(self) -> list[float]:
        """Widths of the RBF kernel around the median rule."""
        return self.gammas_of("rbf")

    def gammas_of(self, kernel: str) -> list[float]:
        """Widths of a kernel around the median rule."""
        middle = resolve_gamma("median", kernel, self.X)
        return [middle * factor for factor in GAMMAS]

    @property
    def exact(self) -> bool:
        """Whether there are few enough rows for all pairs of them."""
        return len(self.X) <= EXACT_ROWS


@dataclass(frozen=True)
class Choice:
    """A fitted estimator, what was chosen for it and from how many candidates.

    ``plain`` is what is fitted inside a domain, for reference: an estimator with the chosen
    parameters that searches no more; None is the estimator itself.
    """

    estimator: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    n_candidates: int = 1
    plain: Any = None


@dataclass(frozen=True)
class Method:
    """A method by name.

    Attributes
    ----------
    key : str
        Name in ``methods``.
    labels : tuple of str
        Names in tables, for classes and for a continuous target.
    kind : {"baseline", "projection", "machine"}
        Plain methods are those that the others are compared with.
    search : callable
        From :class:`Sources` to :class:`Choice`.
    about : str
        What it is and what is chosen, in a line.
    """

    key: str
    labels: tuple[str, str]
    kind: str
    search: Callable[[Sources], Choice]
    about: str

    def label(self, classification: bool) -> str:
        """Name in tables."""
        return self.labels[0 if classification else 1]


class ClassMeans(LinearDiscriminantAnalysis):
    """Linear discriminant analysis that takes all classes for equally frequent."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with the same prior for every class."""
        model: Any = super().fit(X, y)
        # Frequencies enter the pooled covariance, as they should, and the intercepts.
        model.intercept_ = model.intercept_ - _log_odds(model.priors_)
        model.priors_ = np.full(len(model.classes_), 1.0 / len(model.classes_))
        return self


def _log_odds(priors: Array) -> Array:
    """What frequencies add to the intercepts: one for two classes, one each for more."""
    logs = np.log(priors)
    return logs[1:] - logs[:1] if len(logs) == 2 else logs


def head(sources: Sources) -> Any:
    """Return the simple predictor behind a projection."""
    if not sources.classification:
        return Ridge()
    return LinearDiscriminantAnalysis() if sources.class_weight is None else ClassMeans()


def _constant(sources: Sources) -> Choice:
    model = DummyClassifier() if sources.classification else DummyRegressor()
    return Choice(model.fit(sources.X, sources.y))


def _svm(sources: Sources) -> Choice:
    grid = {"gamma": sources.gammas, "C": COSTS}
    if sources.classification:
        return _grid(sources, SVC(class_weight=sources.class_weight), grid)
    deviation = float(np.std(sources.y)) or 1.0
    grid["C"] = [cost * deviation for cost in COSTS]
    return _grid(sources, SVR(**_in_units_of(deviation)), grid)


def _in_units_of(deviation: float) -> dict[str, Any]:
    """Errors below a tenth of the target's spread are free, in whatever unit it is given."""
    return {"epsilon": 0.1 * deviation, "tol": 1e-3 * min(deviation, 1.0)}


def _linear(sources: Sources) -> Choice:
    if not sources.classification:
        return _grid(sources, Ridge(), {"alpha": ALPHAS})
    model = LogisticRegression(class_weight=sources.class_weight, max_iter=1000)
    return _grid(sources, model, {"C": [1.0 / alpha for alpha in ALPHAS[::-1]]})


def _boosting(sources: Sources) -> Choice:
    options: dict[str, Any] = dict(early_stopping=False, max_iter=TREES, random_state=sources.seed)
    grid = {"max_leaf_nodes": (4, 31)}
    if not sources.classification:
        return _grid(sources, HistGradientBoostingRegressor(**options), grid)
    options["class_weight"] = sources.class_weight
    return _grid(sources, HistGradientBoostingClassifier(**options), grid)


def _kpca(sources: Sources) -> Choice:
    # Every training part has more rows than this.
    fewest = min(len(train) for train, _ in sources.splits) - 1
    sizes = sorted({min(size, fewest) for size in (5, 30)})
    project = KPCA() if sources.exact else FastKPCA(random_state=sources.seed)
    return _projected(sources, project, {"gamma": sources.gammas, "n_components": sizes})


def _dica(sources: Sources) -> Choice:
    # DICA's systems defeat iterations (theory 5.2); these sizes are solved directly.
    project = DICA(solver="dense") if sources.exact else FastDICA(random_state=sources.seed)
    lams = [len(sources.X) * shrinkage for shrinkage in SHRINKAGES]
    return _projected(sources, project, {"gamma": sources.gammas, "lam": lams})


def dcm_at(weight: float) -> Callable[[Sources], Choice]:
    """Search gamma and ridge of DCM at one domain weight."""
    return partial(_path, domain_weights=(weight,))


def _dcmcv(sources: Sources) -> Choice:
    weights = (0.0, *WEIGHTS)
    return _path(sources, domain_weights=weights, conditionals=_conditionals(sources))


def dcmcv_with_svm(sources: Sources) -> Choice:
    """DCMCV judged and followed by an SVM instead of a linear head."""
    if sources.classification:
        predictor: Any = SVC(class_weight=sources.class_weight)
    else:
        predictor = TransformedTargetRegressor(SVR(), transformer=StandardScaler())
    return _path(
        sources,
        predictor=predictor,
        domain_weights=(0.0, *WEIGHTS),
        conditionals=_conditionals(sources),
    )


def _fastdcm(sources: Sources) -> Choice:
    return _path(sources, exact=False, domain_weights=(0.0, *WEIGHTS))


def _conditionals(sources: Sources) -> tuple[bool, ...]:
    return (False, True) if sources.classification else (False,)


def _invariant(sources: Sources) -> Choice:
    """Let the best machines vote: scores on few domains are too noisy for a single winner."""
    if sources.classification:
        machine: Any = InvariantSVC(class_weight=sources.class_weight)
        costs = list(COSTS)
    else:
        deviation = float(np.std(sources.y)) or 1.0
        machine = InvariantSVR(**_in_units_of(deviation))
        costs = [cost * deviation for cost in COSTS]
    machine.set_params(random_state=sources.seed)
    grid = [
        {"kernel": [kernel], "gamma": sources.gammas_of(kernel), "C": costs}
        for kernel in ("rbf", "laplacian")
    ]
    search = InvariantSearchCV(
        machine, grid, cv=sources.splits, scoring=sources.measure.scorer, n_average=MEMBERS
    )
    search.fit(sources.X, sources.y, sample_domain=sources.sample_domain)
    return Choice(
        search, search.best_params_, len(ParameterGrid(grid)), plain=search.best_estimator_
    )


def _invariant_ridge(sources: Sources) -> Choice:
    options: dict[str, Any] = dict(
        cv=sources.splits, scoring=sources.measure.scorer, random_state=sources.seed
    )
    if sources.classification:
        model: Any = InvariantRidgeClassifierCV(class_weight=sources.class_weight, **options)
    else:
        model = InvariantRidgeCV(**options)
    model.fit(sources.X, sources.y, sample_domain=sources.sample_domain)
    best = model.best_params_
    plain = clone(model).set_params(
        kernels=[best["kernel"]],
        gammas=[best["gamma"]],
        alphas=[best["alpha"]],
        domain_weights=[0.0],
        n_average=1,
        cv=2,
    )
    return Choice(model, best, len(model.cv_results_["params"]), plain=plain)


def _grid(sources: Sources, model: Any, grid: Mapping[str, Any]) -> Choice:
    search = GridSearchCV(
        model, dict(grid), cv=sources.splits, scoring=sources.measure.scorer, error_score="raise"
    )
    search.fit(sources.X, sources.y)
    return Choice(search.best_estimator_, search.best_params_, len(search.cv_results_["params"]))


def _projected(sources: Sources, project: Any, grid: Mapping[str, Any]) -> Choice:
    """Search a projection together with its head."""
    search = GridSearchCV(
        Pipeline([("project", project), ("predict", head(sources))]),
        {f"project__{name}": values for name, values in grid.items()},
        cv=sources.splits,
        scoring=sources.measure.scorer,
        error_score="raise",
    )
    with config_context(enable_metadata_routing=True):
        search.fit(sources.X, sources.y, sample_domain=sources.sample_domain)
    chosen = {name.removeprefix("project__"): v for name, v in search.best_params_.items()}
    return Choice(search.best_estimator_, chosen, len(search.cv_results_["params"]))


def _path(
    sources: Sources, *, exact: bool | None = None, predictor: Any = None, **grid: Any
) -> Choice:
    """Search DCM along a path that shares the products of its candidates."""
    exact = sources.exact if exact is None else exact
    predictor = head(sources) if predictor is None else predictor
    options = dict(
        grid,
        gammas=sources.gammas,
        ridges=RIDGES,
        cv=sources.splits,
        scoring=sources.measure.scorer,
        estimator=predictor,
        random_state=sources.seed,
    )
    search: Any = DCMCV(**options) if exact else FastDCMCV(**options)
    search.fit(sources.X, sources.y, sample_domain=sources.sample_domain)
    fitted = search.best_estimator_
    predict = clone(predictor).fit(fitted.transform(sources.X), sources.y)
    model = Pipeline([("project", fitted), ("predict", predict)])
    varied = ("gamma", "ridge", *(name[:-1] for name, values in grid.items() if len(values) > 1))
    chosen = {name: search.best_params_[name] for name in varied}
    return Choice(model, chosen, len(search.cv_results_["params"]))


METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method(
            "constant",
            ("majority", "constant"),
            "baseline",
            _constant,
            "predicts the most frequent class, or the mean, of the sources",
        ),
        Method(
            "svm",
            ("SVM", "SVR"),
            "baseline",
            _svm,
            "support vector machine, RBF kernel; C and gamma chosen",
        ),
        Method(
            "linear", ("logistic", "ridge"), "baseline", _linear, "linear model; its penalty chosen"
        ),
        Method(
            "boosting",
            ("boosting", "boosting"),
            "baseline",
            _boosting,
            "histogram gradient boosting, 100 trees; their size chosen",
        ),
        Method(
            "kpca",
            ("KPCA", "KPCA"),
            "projection",
            _kpca,
            "kernel PCA and a linear head; gamma and components chosen",
        ),
        Method(
            "coir",
            ("COIR", "COIR"),
            "projection",
            dcm_at(0.0),
            "DCM without domains, and a linear head; gamma and ridge chosen",
        ),
        Method(
            "dica",
            ("DICA", "DICA"),
            "projection",
            _dica,
            "domain-invariant component analysis and a linear head; gamma and lambda chosen",
        ),
        Method(
            "dcm",
            ("DCM", "DCM"),
            "projection",
            dcm_at(1.0),
            "domain weight 1, as in the paper, and a linear head; gamma and ridge chosen",
        ),
        Method("fastdcm", ("FastDCM", "FastDCM"), "projection", _fastdcm, "DCMCV on landmarks"),
        Method(
            "dcmcv",
            ("DCMCV", "DCMCV"),
            "projection",
            _dcmcv,
            "DCM and a linear head; gamma, ridge, domain weight and kind of weight chosen",
        ),
        Method(
            "invariant",
            ("InvariantSVC", "InvariantSVR"),
            "machine",
            _invariant,
            "the five best SVMs with invariant kernels vote; kernel, gamma and C chosen",
        ),
        Method(
            "invariantridge",
            ("InvariantRidge", "InvariantRidge"),
            "machine",
            _invariant_ridge,
            "kernel ridge, the average of the ten invariant kernels that did best",
        ),
    )
}


def choose_methods(names: Any) -> list[Method]:
    """Look methods up by name; None is all of them."""
    if names is None:
        return list(METHODS.values())
    if isinstance(names, str):
        names = [part for part in names.replace(",", " ").split() if part]
    wanted = [str(name).lower() for name in names]
    unknown = [name for name in wanted if name not in METHODS]
    if unknown or not wanted:
        raise ValueError(
            (f"methods: {', '.join(unknown)} is not known" if unknown else "methods: none is named")
            + f"; use some of {', '.join(METHODS)}"
        )
    return [METHODS[name] for name in METHODS if name in wanted]
