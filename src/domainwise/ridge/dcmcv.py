"""DCMCV and FastDCMCV: DCM with its arguments chosen by leaving source domains out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
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
from domainwise.estimators.projection import Projection
from domainwise.gram import Gram
from domainwise.kernels.functions import resolve_gamma
from domainwise.labels.factors import LabelSpace
from domainwise.methods.components import Components
from domainwise.ridge.dcm_moments import score_from_moments
from domainwise.search import search
from domainwise.search.path import PATH_TOLERANCE, ExactFold, FastFold, Grid
from domainwise.search.smooth import scores_table

#: Beyond this, landmarks are common to all splits, whose moments are kept.
HELD_ROWS = 1000


@arguments
class _Search(search.Searched):
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
            "search on some rows in memory, and give best_params_ to "
            f"{self._estimator.__name__}, which follows X; InvariantRidge...CV search where X is",
        )
        X = validate_rows(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        if self.kernel == "precomputed":
            raise ValueError(
                f'{type(self).__name__} chooses gamma and so needs rows, not kernel="precomputed"'
            )
        target, domain = self._check_labels(backend, y, sample_domain, X)
        continuous = target.values is not None
        if any(self.conditionals) and continuous:
            raise ValueError(
                "conditionals=True measures domains inside classes, but y is continuous"
            )
        self._check_conditional(self.conditionals, domain)
        values = target.values if continuous else target.names[target.codes]
        if continuous and values.shape[1] == 1:
            values = values[:, 0]
        grid = Grid(
            tuple(self.conditionals),
            tuple(self.epsilons),
            self._auto("domain_weights", search.AUTO_WEIGHTS),
            self._auto("ridges", search.AUTO_RIDGES),
        )
        gammas = self._gammas(X)
        points = [{"gamma": gamma, **point} for gamma in gammas for point in grid.points()]
        splits = search.make_splits(self.cv, values, target, domain)
        tasks = [self._task(gamma, grid, continuous) for gamma in gammas]
        if self._fold is FastFold and self.estimator is None and len(X) > HELD_ROWS:
            rows = X, values, target, domain
            jobs = [delayed(score_from_moments)(task, *rows, splits) for task in tasks]
        else:
            pairs = product(tasks, splits)
            jobs = [delayed(search.score_split)(task, X, values, split) for task, split in pairs]
        # Scores of some splits each, all of a gamma before those of the next.
        each = Parallel(n_jobs=self.n_jobs, verbose=10 * bool(self.verbose))(jobs)
        found, tests = list(chain(*each)), [split.test for split in splits]
        by_gamma = [found[i : i + len(tests)] for i in range(0, len(found), len(tests))]
        scores = np.vstack([scores_table(tasks[0].scoring, some, tests) for some in by_gamma])
        search.record_search(self, points, scores, search.choose(points, scores, self.rule))
        best = self.searched(self.best_params_)
        with quiet_about_domains():
            self.best_estimator_ = best.fit(X, y, sample_domain=sample_domain)
        theirs = best.get_params(deep=False)
        vars(self).update({k: v for k, v in vars(best).items() if k not in theirs})

    def _solve(self: Any, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        """Call the method of the model that was chosen."""
        return self.best_estimator_._solve(gram, labels, continuous)

    def searched(self: Any, arguments: dict[str, Any]) -> Projection:
        """Return the estimator that is searched for, not fitted, with chosen arguments."""
        theirs = self._estimator().get_params()
        shared = {k: v for k, v in self.get_params(deep=False).items() if k in theirs}
        return self._estimator(**shared).set_params(**arguments)

    def _task(self: Any, gamma: float, grid: Grid, continuous: bool) -> search.Task:
        least = {"ridge": min(grid.ridges), "epsilon": min(grid.epsilons)}
        template = self.searched({"gamma": gamma, **least})
        if hasattr(template, "tol"):
            template.tol = max(self.tol, PATH_TOLERANCE)
        head, scoring = (LinearDiscriminantAnalysis(), "balanced_accuracy")
        if continuous:
            head, scoring = Ridge(), "neg_root_mean_squared_error"
        return search.Task(
            self._fold,
            template,
            grid,
            head if self.estimator is None else self.estimator,
            scoring if self.scoring is None else self.scoring,
            self.n_jobs not in (None, 1),
        )

    def _auto(self: Any, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        given = getattr(self, name)
        if isinstance(given, str):
            return default
        return tuple(float(value) for value in given)

    def _gammas(self: Any, X: Any) -> tuple[float, ...]:
        if not isinstance(self.gammas, str):
            return self._auto("gammas", ())
        if callable(self.kernel) or self.kernel in ("linear", "cosine"):
            return (1.0,)  # these kernels have no scale to choose
        middle = resolve_gamma("median", self.kernel, X)
        return tuple(middle * factor for factor in search.AUTO_GAMMAS)


@with_shared_arguments
@arguments
class DCMCV(ExactArguments, _Search, KernelProjection):
    """DCM with gamma, ridge and weights chosen by leaving source domains out.

    Every combination is scored by a simple predictor on the projection of domains that were left
    out, and the best one is fitted to all rows. For one gamma the whole grid costs little more
    than its most expensive member, because products with the Gram matrix are shared.

    Parameters
    ----------
    n_components : int, default=None
        See :class:`~domainwise.DCM`; no more than the informative ones are used in the search.
    {search} {kernel_no_gamma} {target} {domain} {solver}

    Attributes
    ----------
    {searched} {fitted}

    See Also
    --------
    DCM : One model with given arguments.

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
    """FastDCM with gamma, ridge and weights chosen by leaving source domains out.

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
        """Not available: a search needs all rows. Give ``best_params_`` to FastDCM instead."""
