"""Methods by name: what stands behind the preprocessing in a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise.estimators import COIR, DCM, DICA, KPCA, FastCOIR, FastDCM, FastDICA, FastKPCA
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.invariant.machines import EXACT_ROWS
from domainwise.kernels.landmarks import landmark_count
from domainwise.selection import (
    DCMCV,
    FastDCMCV,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
    InvariantSearchCV,
    LeaveDomainsOut,
)

#: Above this many rows "auto" searches with landmarks instead of all rows.
EXACT_SEARCH_ROWS = 3000
#: Landmarks of a search, at most: it makes dozens of fits, and each costs their square.
SEARCH_LANDMARKS = 500
#: Groups of domains that a search leaves out in turn, at most.
SEARCH_FOLDS = 10

METHODS = {
    "auto": "dcmcv up to 3,000 rows, fastdcmcv beyond",
    "dcmcv": "DCM, its parameters chosen by leaving source domains out",
    "fastdcmcv": "the same with at most 500 landmarks, for large tables",
    "dcm": "DCM with default parameters",
    "fastdcm": "DCM with landmarks",
    "coir": "the projection without domains",
    "fastcoir": "COIR with landmarks",
    "dica": "domain-invariant component analysis",
    "fastdica": "DICA with landmarks",
    "kpca": "kernel principal components",
    "fastkpca": "KPCA with landmarks",
    "invariant": "the best five support vector machines with invariant kernels, by vote",
    "invariantridge": "kernel ridge, the average of the invariant kernels that held up best",
    "svm": "plain support vector machine",
    "linear": "logistic or ridge regression on the features",
    "boosting": "gradient boosted trees",
    "constant": "the most frequent class or the mean",
}
#: Machines of "invariant" that vote; a single winner follows the noise of few domains.
VOTERS = 5
#: Predictors that can follow a projection, by task; the first is the default.
PREDICTORS = {
    "classification": ("lda", "logistic", "svm"),
    "regression": ("ridge", "svm"),
}
_PROJECTIONS = {
    "dcmcv": DCMCV,
    "fastdcmcv": FastDCMCV,
    "dcm": DCM,
    "fastdcm": FastDCM,
    "coir": COIR,
    "fastcoir": FastCOIR,
    "dica": DICA,
    "fastdica": FastDICA,
    "kpca": KPCA,
    "fastkpca": FastKPCA,
}


@dataclass(frozen=True)
class Recipe:
    """Steps of a pipeline after the preprocessing, not fitted.

    Attributes
    ----------
    method, predictor : str
        As chosen; ``predictor`` is "" for a method that predicts by itself.
    steps : list of (str, estimator)
        ``project`` (for projections) and ``predict``.
    """

    method: str
    predictor: str
    steps: list[tuple[str, Any]]


def make_recipe(
    task: str,
    method: str = "auto",
    *,
    predictor: str = "auto",
    balanced: bool = False,
    n_rows: int,
    n_domains: int,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> Recipe:
    """Build a method by name.

    Parameters
    ----------
    task : "classification" or "regression"
    method : str, default="auto"
        A key of ``METHODS``.
    predictor : str, default="auto"
        What predicts from a projection: "lda" (the default for classes), "logistic" (the default
        if ``balanced``), "svm" or "ridge" (the default for a continuous target).
    balanced : bool, default=False
        Let every class count the same, however many rows it has.
    n_rows, n_domains : int
        Size of the table.
    random_state : int, default=0
    n_jobs : int, default=None
        Processes of a search.

    Returns
    -------
    Recipe

    Examples
    --------
    >>> recipe = make_recipe("regression", n_rows=500, n_domains=6)
    >>> recipe.method, recipe.predictor
    ('dcmcv', 'ridge')
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r}: use one of {', '.join(METHODS)}")
    if balanced and task == "regression":
        raise ValueError("--balanced is about classes, but the target is continuous")
    if method == "auto":
        method = "dcmcv" if n_rows <= EXACT_SEARCH_ROWS else "fastdcmcv"
    if method not in _PROJECTIONS:
        if predictor != "auto":
            raise ValueError(f"method {method!r} predicts by itself: leave out --predictor")
        model = _predicting(method, task, balanced, n_rows, n_domains, random_state, n_jobs)
        return Recipe(method, "", [("predict", model)])
    accepted = PREDICTORS[task]
    if predictor not in ("auto", *accepted):
        raise ValueError(f"predictor {predictor!r}: for {task} use one of {', '.join(accepted)}")
    if predictor == "auto":
        predictor = "logistic" if balanced else accepted[0]
    if balanced and predictor == "lda":
        raise ValueError("predictor 'lda' cannot weigh classes: use logistic or svm")
    head = _head(predictor, task, balanced)
    projection = _PROJECTIONS[method](random_state=random_state)
    if method in ("dcmcv", "fastdcmcv"):
        # The search judges projections by the predictor that will be used.
        projection.set_params(n_jobs=n_jobs, estimator=None if predictor == "ridge" else head)
    if method == "fastdcmcv" and landmark_count("auto", n_rows) > SEARCH_LANDMARKS:
        # A fraction, because a search also fits to fewer rows.
        projection.set_params(n_landmarks=SEARCH_LANDMARKS / n_rows)
    return Recipe(method, predictor, [("project", projection), ("predict", head)])


def _head(predictor: str, task: str, balanced: bool) -> Any:
    weight = "balanced" if balanced else None
    if predictor == "ridge":
        return Ridge()
    if predictor == "lda":
        return LinearDiscriminantAnalysis()
    if predictor == "logistic":
        return LogisticRegression(max_iter=1000, class_weight=weight)
    return SVC(class_weight=weight) if task == "classification" else _scaled(SVR())


def _scaled(regressor: Any) -> Any:
    """An SVR's C and epsilon are in units of the target: give it one of unit variance."""
    return TransformedTargetRegressor(regressor, transformer=StandardScaler())


def _predicting(
    method: str,
    task: str,
    balanced: bool,
    n_rows: int,
    n_domains: int,
    random_state: int,
    n_jobs: int | None,
) -> Any:
    weight = "balanced" if balanced else None
    classes = task == "classification"
    if method == "constant":
        return DummyClassifier() if classes else DummyRegressor()
    if method == "linear":
        return LogisticRegression(max_iter=1000, class_weight=weight) if classes else Ridge()
    if method == "svm":
        return SVC(class_weight=weight) if classes else _scaled(SVR())
    if method == "boosting":
        if classes:
            return HistGradientBoostingClassifier(class_weight=weight, random_state=random_state)
        return HistGradientBoostingRegressor(random_state=random_state)
    if method == "invariantridge":
        if classes:
            return InvariantRidgeClassifierCV(
                class_weight=weight, n_jobs=n_jobs, random_state=random_state
            )
        return InvariantRidgeCV(n_jobs=n_jobs, random_state=random_state)
    grid = {
        "kernel": ["rbf", "laplacian"],
        "domain_weight": [0.1, 1.0, 10.0],
        "C": [0.1, 1.0, 10.0, 100.0],
    }
    options: dict[str, Any] = dict(
        cv=LeaveDomainsOut(max_splits=SEARCH_FOLDS),
        scoring="balanced_accuracy" if classes else "neg_root_mean_squared_error",
        n_average=VOTERS,
        n_jobs=n_jobs,
    )
    if classes:
        # Beyond exact size every candidate would be calibrated, not only the winner.
        machine = InvariantSVC(
            class_weight=weight, random_state=random_state, probability=n_rows <= EXACT_ROWS
        )
        return InvariantSearchCV(machine, grid, **options)
    return _scaled(InvariantSearchCV(InvariantSVR(random_state=random_state), grid, **options))
