"""What a method is: an estimator, what is chosen for it, and what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise.checks.arguments import Each
from domainwise.kernels.landmarks import landmark_count
from domainwise.models.search import MethodSearch
from domainwise.scoring.predictions import asks_for_domains, takes
from domainwise.search.grids import Grid, In
from domainwise.shift.watch import ShiftWatch

#: Landmarks of a search, at most: it makes dozens of fits, and each costs their square.
SEARCH_LANDMARKS = 500
#: What is added to the name of a method that is told the domains of new rows.
CONTEXT = "+context"
#: Predictors that can follow a projection, by task; the first is the default.
PREDICTORS = {"classification": ("lda", "logistic", "svm"), "regression": ("ridge", "svm")}


@dataclass(frozen=True)
class Setting:
    """What a method is made for."""

    classification: bool
    n_rows: int  #: that it will be fitted to
    scoring: Any = None  #: what arguments are chosen by; None is a smooth score
    class_weight: str | None = None  #: "balanced" or None
    predictor: str = "auto"  #: behind a projection: "auto", or of ``PREDICTORS``
    #: Whether machines that need more time for probabilities shall give them.
    probability: bool = False
    pos_label: Any = None  #: see :class:`MethodSearch`, as for cv and n_jobs
    cv: Any = None
    seed: int = 0
    n_jobs: int | None = None

    @property
    def task(self) -> str:
        """Kind of target."""
        return "classification" if self.classification else "regression"

    @property
    def landmarks(self) -> dict[str, Any]:
        """Arguments of a search with landmarks."""
        few = landmark_count("auto", self.n_rows) <= SEARCH_LANDMARKS
        # A fraction, because a search also fits to fewer rows.
        count = "auto" if few else SEARCH_LANDMARKS / self.n_rows
        return {"n_landmarks": count, "random_state": self.seed}


@dataclass(frozen=True)
class Method:
    """A method by name."""

    key: str  #: name in ``methods``
    labels: tuple[str, str]  #: names in tables, for classes and for a continuous target
    #: "baseline" (others are compared with it), "projection", "machine", or a caller's "own".
    kind: str
    about: str  #: what it is and what is chosen, in a line
    build: Callable[[Setting], Any]  #: makes what is searched for; of a projection that alone
    #: Values to choose from, for classes and a continuous target.
    grids: tuple[Grid, Grid] | None = None
    searches: bool = False  #: whether the estimator searches by itself, with the grid as arguments
    compared: bool = False  #: whether `evaluate` runs it by default
    #: Whether `evaluate` has a second row of its fits, with the domains of rows to predict.
    context: bool = False
    cost: float = 1.5  #: rough seconds per thousand rows in `evaluate`, for the time left
    prepare: bool = True  #: whether it gets rows as numbers; False gives it the rows as they are
    classes_only: bool = False  #: whether it has nothing to say about a continuous target
    trivial: bool = False  #: whether it predicts the same for every row

    def check_task(self, classification: bool) -> None:
        """Refuse a continuous target where the method is for classes."""
        if self.classes_only and not classification:
            raise ValueError(f"method {self.key!r} compares classes, but the target is continuous")

    def label(self, classification: bool) -> str:
        """Name in tables."""
        return self.labels[0 if classification else 1]

    def rows(self, classification: bool) -> list[tuple[str, str, bool]]:
        """Key and name of each of its rows in tables, and whether it is told domains there."""
        plain = (self.key, self.label(classification), False)
        return [plain, (plain[0] + CONTEXT, plain[1] + CONTEXT, True)] if self.context else [plain]

    def grid(self, classification: bool) -> Grid | None:
        """Values to choose from; None where nothing is chosen."""
        return None if self.grids is None else self.grids[0 if classification else 1]

    def make(self, setting: Setting) -> MethodSearch:
        """Return the estimator, not fitted; it chooses its arguments inside ``fit``."""
        self.check_task(setting.classification)
        estimator = self.build(setting)
        if self.kind == "projection":
            predict = head(setting)
            if self.searches:  # projections are judged by the predictor that will be used
                estimator.set_params(estimator=predict)
            estimator = Pipeline([("project", estimator), ("predict", predict)])
        elif setting.predictor != "auto":
            raise ValueError(f"method {self.key!r} predicts by itself: leave out predictor")
        grid = self.grid(setting.classification)
        if self.kind == "own":
            other = is_regressor if setting.classification else is_classifier
            if other(estimator):
                kind = "classes" if setting.classification else "a continuous target"
                raise ValueError(
                    f"methods: {self.key!r} is no estimator for {kind}, which the target is"
                )
        values = {k: v.values if isinstance(v, In) else v for k, v in (grid or {}).items()}
        return MethodSearch(
            estimator,
            None if grid is None else {name: list(given) for name, given in values.items()},
            {name: v.unit for name, v in (grid or {}).items() if isinstance(v, In)},
            step="project" if self.kind == "projection" else "",
            searches=self.searches,
            own=self.kind == "own",
            scoring=setting.scoring,
            pos_label=setting.pos_label,
            cv=setting.cv,
            n_jobs=None if self.searches else setting.n_jobs,
        )

    def pipeline(self, setting: Setting, preprocessor: Any, *, watch: bool = False) -> Pipeline:
        """Return the estimator behind the preprocessing, not fitted, for rows as they are given.

        With ``watch`` it keeps what :func:`~domainwise.check_shift` needs.
        """
        first = [("watch", ShiftWatch())] if watch else []
        prepare = [("prepare", clone(preprocessor))] if self.prepare else []
        return Pipeline([*first, *prepare, ("model", self.make(setting))])


class ClassMeans(LinearDiscriminantAnalysis):
    """Linear discriminant analysis that takes all classes for equally frequent."""

    equal_priors = True

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with the same prior for every class."""
        model: Any = super().fit(X, y)
        # Frequencies enter the pooled covariance, as they should, and the intercepts: of two
        # classes that of the second, of more that of each.
        logs = np.log(model.priors_)
        model.intercept_ = model.intercept_ - (logs[1:] - logs[:1] if len(logs) == 2 else logs)
        model.priors_ = np.full(len(model.classes_), 1.0 / len(model.classes_))
        return self


def own_method(given: Any, prepare: bool = True) -> Method:
    """Make a method of a caller's ``(name, estimator)`` or ``(name, estimator, grid)``."""
    if not isinstance(given, tuple) or len(given) not in (2, 3) or not isinstance(given[0], str):
        raise ValueError(
            f"methods holds {given!r}; use names, (name, estimator) or (name, estimator, grid)"
        )
    name, estimator, *rest = given
    lacking = [m for m in ("fit", "predict", "get_params") if not hasattr(estimator, m)]
    if lacking or isinstance(estimator, type):
        raise ValueError(
            f"methods: {name!r} must be an estimator of scikit-learn, got {estimator!r}"
        )
    grid = rest[0] if rest else None
    if grid is not None and not Each(Each(object), of_dict=True).is_satisfied_by(grid or {"": [0]}):
        raise ValueError(f"methods: the grid of {name!r} must be a dict of lists, got {grid!r}")
    what = type(estimator).__name__
    about = f"{what}; {', '.join(grid)} chosen" if grid else what
    grids = None if grid is None else (grid, grid)
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, MethodSearch):  # which takes domains for whomever it searches for
        context = takes(last.estimator.predict)
    else:
        context = asks_for_domains(estimator, "predict") or takes(estimator.predict)
    return Method(
        name,
        (name, name),
        "own",
        about,
        partial(_clone, estimator),
        grids,
        prepare=prepare,
        context=context,
    )


def _clone(estimator: Any, setting: Setting) -> Any:
    return clone(estimator)


def head(setting: Setting) -> Any:
    """Return the simple predictor behind a projection."""
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
    # An SVR's C and epsilon are in units of the target: give it one of unit variance.
    return TransformedTargetRegressor(SVR(), transformer=StandardScaler())
