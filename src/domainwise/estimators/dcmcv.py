"""DCMCV and FastDCMCV: DCM with its arguments chosen by holding out source domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.utils.metaestimators import available_if

from domainwise.arrays import (
    ArrayLike,
    CrossValidator,
    Estimator,
    KernelLike,
    MaybeArray,
    Scoring,
)
from domainwise.backends import Backend, refuse_elsewhere
from domainwise.checks.inputs import quiet_about_domains, validate_rows
from domainwise.checks.signatures import (
    ExactArguments,
    LabelLandmarkArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.exact import DCM
from domainwise.estimators.exact_base import KernelProjection
from domainwise.estimators.fast import FastDCM
from domainwise.estimators.fast_base import FastProjection
from domainwise.estimators.path import (
    PATH_TOLERANCE,
    ExactFold,
    FastFold,
    MomentFold,
    projected_path,
    training_cells,
)
from domainwise.estimators.projection import Projection
from domainwise.gram import Gram
from domainwise.kernels.functions import resolve_gamma
from domainwise.labels.factors import LabelSpace
from domainwise.methods.components import Components
from domainwise.search.driver import (
    Candidate,
    Data,
    Outcomes,
    Rule,
    Searched,
    batches_by,
    best,
    one_standard_error,
    search,
)
from domainwise.search.grids import DCM_GAMMAS, DCM_RIDGES, DCM_WEIGHTS
from domainwise.search.scores import Outcome, Score, as_score, quiet_scores
from domainwise.splits.folds import Split, domain_folds

#: With more rows, landmarks are common to all splits, which share moments.
HELD_ROWS = 1000


@dataclass(frozen=True)
class DCMKind:
    """The search for DCM's arguments: candidates of one gamma share products with its matrix."""

    template: Projection  #: with all arguments that are not chosen
    points: list[Candidate]
    fold: type  #: of one split, whose rows are held
    head: Any
    one_pass: bool = False  #: whether folds are made from moments, in one pass over the rows

    def candidates(self, data: Data) -> list[Candidate]:
        """The points of the grid."""
        return self.points

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Candidates of one gamma."""
        return batches_by(candidates, ("gamma",))

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Score the candidates of one gamma, by a simple predictor on their projections."""
        least = {name: min(c[name] for c in batch) for name in ("ridge", "epsilon")}
        template = clone(self.template).set_params(gamma=batch[0]["gamma"], **least)
        if hasattr(template, "tol"):
            template.set_params(tol=max(template.tol, PATH_TOLERANCE))
        values: list[list[Outcome]] = [[] for _ in batch]
        for fold, (_, test) in zip(self._folds(template, data, splits), splits, strict=True):
            with quiet_scores():
                for i, train, Z_test in projected_path(fold, batch):
                    values[i].append(score.outcome(train.fitted(self.head), Z_test, data.y[test]))
        return Outcomes(values)

    def _folds(self, template: Any, data: Data, splits: Sequence[Split]) -> Iterator[Any]:
        """Yield a fold, which projects training and test rows, for each split."""
        if not self.one_pass:
            for train, test in splits:
                yield self.fold(clone(template), data.take(train), data.X[test])
            return
        assert data.target is not None
        cells = training_cells(template, data, splits)
        for (_, test), training in zip(splits, cells, strict=True):
            yield MomentFold(template, training, data.target, data.X[test])

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Projection]:
        """Fit DCM with each candidate's arguments."""
        models = [clone(self.template).set_params(**candidate) for candidate in chosen]
        with quiet_about_domains():
            return [m.fit(data.X, data.y, sample_domain=data.sample_domain) for m in models]


def _regularised(point: Candidate) -> tuple[float, float, float]:
    """Order of candidates with equal scores: the largest ridge and weight, the smallest gamma."""
    return -point["ridge"], -point["domain_weight"], point["gamma"]


RULES: dict[str, Rule] = {"best": best, "1se": partial(one_standard_error, order=_regularised)}


@arguments
class _Search(Searched):
    """Arguments of the search, and fitting by it, for both families."""

    n_components: int | None = field(default=None, kw_only=False)
    gammas: Sequence[float] | str = "auto"
    ridges: Sequence[float] | str = "auto"
    domain_weights: Sequence[float] | str = "auto"
    conditionals: Sequence[bool] = (False,)
    epsilons: Sequence[float] = (1e-3,)
    cv: CrossValidator = None
    scoring: Scoring = None
    estimator: Estimator | None = None
    rule: str = "best"
    n_jobs: int | None = None
    kernel: KernelLike = "rbf"
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None
    target_kernel: KernelLike = "auto"
    target_gamma: float | str = "median"
    domain_kernel: KernelLike = "auto"
    domain_gamma: float | str = "median"

    _estimator: ClassVar[type[Projection]]
    _method: ClassVar[Any] = None  #: that of the chosen estimator is called
    _fold: ClassVar[type]
    _needs_target = True
    verbose = 0

    def _fit(self: Any, backend: Backend, X: Any, y: Any, sample_domain: Any) -> None:
        refuse_elsewhere(
            self,
            X,
            "search on some rows in memory, and pass best_params_ to "
            f"{self._estimator.__name__}, which supports them; InvariantRidge...CV search on them",
        )
        X = validate_rows(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        if self.kernel == "precomputed":
            raise ValueError(
                f'{type(self).__name__} chooses gamma and needs rows; got kernel="precomputed"'
            )
        target, domain = self._check_labels(backend, y, sample_domain, X)
        continuous = target.values is not None
        if any(self.conditionals) and continuous:
            raise ValueError(
                "conditionals=True compares domains inside classes, but y is continuous. "
                "Use conditionals=False"
            )
        self._check_conditional(self.conditionals, domain)
        values = target.values if continuous else target.names[target.codes]
        if continuous and values.shape[1] == 1:
            values = values[:, 0]
        kind = DCMKind(
            self.searched({}),
            self._points(X),
            self._fold,
            self.estimator or (Ridge() if continuous else LinearDiscriminantAnalysis()),
            self._fold is FastFold and self.estimator is None and len(X) > HELD_ROWS,
        )
        scoring = "neg_root_mean_squared_error" if continuous else "balanced_accuracy"
        splits, _ = domain_folds(values, domain.codes, classification=not continuous, cv=self.cv)
        result = search(
            kind,
            Data(X, values, sample_domain, target, domain),
            splits,
            as_score(scoring if self.scoring is None else self.scoring, not continuous),
            RULES[self.rule],
            n_jobs=self.n_jobs,
            verbose=10 * bool(self.verbose),
        )
        self._record_search(result)
        (self.best_estimator_,) = kind.fit(Data(X, y, sample_domain), result.chosen)
        # Fitted attributes are copied, so that the search itself projects rows.
        parameters = self.best_estimator_.get_params(deep=False)
        for name, value in vars(self.best_estimator_).items():
            if name not in parameters:
                setattr(self, name, value)

    def _solve(self: Any, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        """Call the method of the model that was chosen."""
        return self.best_estimator_._solve(gram, labels, continuous)

    def searched(self: Any, arguments: dict[str, Any]) -> Projection:
        """Return the estimator that is searched for, not fitted, with chosen arguments."""
        parameters = self._estimator().get_params()
        shared = {k: v for k, v in self.get_params(deep=False).items() if k in parameters}
        return self._estimator(**shared).set_params(**arguments)

    def _points(self: Any, X: Any) -> list[Candidate]:
        """All combinations, those of the last argument varying fastest."""
        grid = {
            "gamma": self._gammas(X),
            "conditional": tuple(self.conditionals),
            "epsilon": tuple(self.epsilons),
            "domain_weight": self._auto("domain_weights", DCM_WEIGHTS),
            "ridge": self._auto("ridges", DCM_RIDGES),
        }
        return [dict(zip(grid, point, strict=True)) for point in product(*grid.values())]

    def _auto(self: Any, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        values = getattr(self, name)
        return default if isinstance(values, str) else tuple(map(float, values))

    def _gammas(self: Any, X: Any) -> tuple[float, ...]:
        if not isinstance(self.gammas, str):
            return self._auto("gammas", ())
        if callable(self.kernel) or self.kernel in ("linear", "cosine"):
            return (1.0,)  # these kernels have no scale to choose
        middle = resolve_gamma("median", self.kernel, X)
        return tuple(middle * factor for factor in DCM_GAMMAS)


@with_shared_arguments
@arguments
class DCMCV(ExactArguments, _Search, KernelProjection):
    """DCM with gamma, ridge and weights chosen by holding out source domains.

    Every combination is scored by a simple predictor on the projection of held-out
    domains, and the best one is fitted to all rows. For one gamma the whole grid costs little more
    than its most expensive member, because products with the Gram matrix are shared.

    Parameters
    ----------
    n_components : int, default=None
        See :class:`~domainwise.DCM`; the search uses only informative components.
    {search} {kernel_no_gamma} {target} {domain} {solver}

    Attributes
    ----------
    {searched} {fitted}

    See Also
    --------
    DCM : One model with given arguments.

    References
    ----------
    A. Wu, "Domain generalization via domain-based covariance minimization".

    Examples
    --------
    >>> from domainwise.selection import DCMCV
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = DCMCV(gammas=[0.1], ridges=[1e-3, 1e-1], domain_weights=[0.0, 1.0])
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> sorted(search.best_params_)
    ['conditional', 'domain_weight', 'epsilon', 'gamma', 'ridge']
    """

    _estimator = DCM
    _fold = ExactFold


@with_shared_arguments
@arguments
class FastDCMCV(LabelLandmarkArguments, _Search, FastProjection):
    """FastDCM with gamma, ridge and weights chosen by holding out source domains.

    Beyond 1000 rows, and without an ``estimator``, one pass over the rows for each gamma serves all
    splits, which then share their landmarks.

    Parameters
    ----------
    n_components : int, default=None
        See :class:`~domainwise.FastDCM`.
    {search} {kernel_no_gamma} {target} {domain} {landmarks} {target_landmarks} {seed}

    Attributes
    ----------
    {searched} {fast_fitted}

    See Also
    --------
    DCMCV : The exact search.

    Examples
    --------
    >>> from domainwise.selection import FastDCMCV
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = FastDCMCV(gammas=[0.1], n_landmarks=100)
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> search.transform(data.data).shape[1]
    1
    """

    _estimator = FastDCM
    _fold = FastFold

    @available_if(lambda self: False)
    def partial_fit(
        self, X: ArrayLike, y: MaybeArray = None, sample_domain: MaybeArray = None
    ) -> None:
        """Not available: a search needs all rows. Pass ``best_params_`` to FastDCM instead."""
