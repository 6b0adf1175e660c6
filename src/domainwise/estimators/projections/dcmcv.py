"""DCMCV and FastDCMCV: DCM with its arguments chosen by holding out source domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from domainwise.algebra.backends import Backend, refuse_tensors_and_dask
from domainwise.algebra.kernels.functions import resolve_gamma
from domainwise.base import signatures
from domainwise.base.arrays import CrossValidator, Estimator, KernelLike, Scoring
from domainwise.base.inputs import quiet_about_domains, rows_with_weight, validate_rows
from domainwise.base.signatures import ExactArguments, LabelLandmarkArguments
from domainwise.estimators.projections import path
from domainwise.estimators.projections.exact import DCM
from domainwise.estimators.projections.fast import FastDCM, refuse_descriptors
from domainwise.estimators.projections.projection import Projection
from domainwise.held_out.folds import Split, domain_folds, without_rows
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.search import driver, scores
from domainwise.held_out.search.driver import Candidate, Data, Outcomes, Rule
from domainwise.held_out.search.grids import DCM_GAMMAS, DCM_RIDGES, DCM_WEIGHTS
from domainwise.held_out.search.scores import Outcome, Score, SmoothScore

#: Up to this many rows, FastDCMCV chooses landmarks for each split; with more, all splits share
#: landmarks and moments.
MAX_ROWS_FOR_SPLIT_LANDMARKS = 1000
#: Fitted attributes of the selected model that are also attributes of the search.
FITTED_ATTRIBUTES = (
    *("X_fit_", "embedding_", "landmarks_", "frequencies_", "dual_coef_", "expansion", "gamma_"),
    *("classes_", "domains_", "eigenvalues_", "n_informative_", "n_iter_", "n_samples_seen_"),
    "solver_info_",
)


@dataclass(frozen=True)
class DCMSearchKind:
    """A search for arguments of DCM; candidates with the same gamma share matrix products."""

    template: Projection  #: unfitted model with the arguments that are not searched
    grid: list[Candidate]
    fold_type: type  #: class of a fold whose rows are in memory
    predictor: Any  #: fitted to projected rows to score a candidate
    one_pass: bool = False  #: whether moments of all splits are computed in one pass over the rows

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all candidates of the grid."""
        return self.grid

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates by gamma."""
        return driver.batches_by(candidates, ("gamma",))

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Score candidates with the same gamma by fitting the predictor to their projections."""
        # All candidates are computed with the precision that the smallest ridge and epsilon need.
        smallest_values = {name: min(c[name] for c in batch) for name in ("ridge", "epsilon")}
        template = clone(self.template).set_params(gamma=batch[0]["gamma"], **smallest_values)
        if hasattr(template, "tol"):
            template.set_params(tol=max(template.tol, path.PATH_TOLERANCE))
        outcomes: list[list[Outcome]] = [[] for _ in batch]
        predictor = scores.quick_head(self.predictor)
        for fold, (_, test) in zip(self._folds(template, data, splits), splits, strict=True):
            with scores.quiet_scores():
                for i, train, Z_test in path.project_path(fold, batch):
                    model, y_test = train.fit(predictor), data.y[test]
                    weights = None if data.weights is None else data.weights[test]
                    outcomes[i].append(score.outcome(model, Z_test, y_test, weights))
        return outcomes

    def _folds(self, template: Any, data: Data, splits: Sequence[Split]) -> Iterator[Any]:
        """Yield, for each split, an object that projects its training rows and test rows."""
        if not self.one_pass:
            for train, test in splits:
                yield self.fold_type(clone(template), data.take(train), data.X[test])
            return
        assert data.target is not None
        cells_by_split = path.sum_training_rows(template, data, splits)
        for (_, test), train_cells in zip(splits, cells_by_split, strict=True):
            yield path.MomentFold(template, train_cells, data.target, data.X[test])

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Projection]:
        """Fit DCM with each candidate's arguments."""
        models = [clone(self.template).set_params(**candidate) for candidate in chosen]
        with quiet_about_domains():
            return [m.fit(data.X, data.y, data.sample_domain, data.weights) for m in models]


#: Functions that choose a candidate, by the value of ``rule``.
RULES: dict[str, Rule] = {
    "best": driver.best,
    # Among candidates with similar scores, prefer a large ridge and weight, and a small gamma.
    "1se": partial(
        driver.one_standard_error, order=lambda c: (-c["ridge"], -c["domain_weight"], c["gamma"])
    ),
}


@signatures.arguments
class DCMSearch(driver.SearchAttributes, Projection):
    """Arguments and ``fit`` of the search, for DCMCV and FastDCMCV."""

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
    _fold: ClassVar[type[path.RowFold]]
    _needs_target = True
    verbose = 0

    def _fit(self, backend: Backend, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        estimator_name, is_fast = self._estimator.__name__, self._fold is path.FastFold
        refuse_tensors_and_dask(
            self,
            X,
            f"Search on a sample of rows in memory and pass best_params_ to {estimator_name}, "
            "or use InvariantRidgeClassifierCV or InvariantRidgeCV",
        )
        X = validate_rows(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        cv = without_rows(self.cv, weights)
        weights, X, y, sample_domain = rows_with_weight(weights, X, y, sample_domain)
        if self.kernel == "precomputed":
            raise ValueError(
                f'{type(self).__name__} chooses gamma, which kernel="precomputed" does not have. '
                f"Pass rows and the name of a kernel, or use {estimator_name}."
            )
        target, domain = self._check_labels(backend, y, sample_domain, X)
        assert target is not None
        is_continuous = target.values is not None
        if any(self.conditionals) and is_continuous:
            raise ValueError(
                "conditionals contains True, which compares domains within classes, but y is "
                "continuous. Use conditionals=[False]."
            )
        if any(self.conditionals) and is_fast:
            refuse_descriptors(domain, "DCMCV")
        check_task(self.scoring, not is_continuous)
        wrong_kind = is_classifier if is_continuous else is_regressor
        is_class = isinstance(self.estimator, type)
        if is_class or (self.estimator is not None and wrong_kind(self.estimator)):
            kind = "regressor" if is_continuous else "classifier"
            raise ValueError(
                f"estimator must be a {kind} instance, because the target has "
                f"{'numbers' if is_continuous else 'classes'}; got {self.estimator!r}."
            )
        y_array = target.values if is_continuous else target.names[target.codes]
        if is_continuous and y_array.shape[1] == 1:
            y_array = y_array[:, 0]
        predictor = self.estimator or (Ridge() if is_continuous else LinearDiscriminantAnalysis())
        one_pass = is_fast and self.estimator is None and len(X) > MAX_ROWS_FOR_SPLIT_LANDMARKS
        arguments = self.unfitted(), self._grid(X, weights), self._fold
        search_kind = DCMSearchKind(*arguments, predictor, one_pass)
        scoring = self.scoring
        if scoring is None:
            scoring = "neg_root_mean_squared_error"
            if not is_continuous:
                scoring = SmoothScore(y_array, domain.codes, target.names, weights=weights)
        has_classes = not is_continuous
        splits, _ = domain_folds(y_array, domain.codes, classification=has_classes, cv=cv, X=X)
        data = Data(X, y_array, sample_domain, target, domain, weights=weights)
        score, rule, verbose = scores.as_score(scoring), RULES[self.rule], 10 * bool(self.verbose)
        search_result = driver.search(
            search_kind, data, splits, score, rule, n_jobs=self.n_jobs, verbose=verbose
        )
        self._record_search(search_result)
        data = Data(X, y, sample_domain, weights=weights)
        (self.best_estimator_,) = search_kind.fit(data, search_result.chosen)

    def unfitted(self) -> Projection:
        """Return an unfitted DCM or FastDCM with the arguments that are not searched."""
        defaults, params = self._estimator().get_params(), self.get_params(deep=False)
        return self._estimator(**{name: params[name] for name in defaults if name in params})

    def _grid(self, X: Any, row_weights: Any) -> list[Candidate]:
        """Return all candidates; the last argument varies fastest."""
        gammas, weights, ridges = self.gammas, self.domain_weights, self.ridges
        if isinstance(gammas, str):
            if callable(self.kernel) or self.kernel in ("linear", "cosine"):
                gammas = (1.0,)  # these kernels do not depend on gamma
            else:
                median_gamma = resolve_gamma("median", self.kernel, X, row_weights)
                gammas = [median_gamma * factor for factor in DCM_GAMMAS]
        grid = {
            "gamma": map(float, gammas),
            "conditional": self.conditionals,
            "epsilon": self.epsilons,
            "domain_weight": map(float, DCM_WEIGHTS if isinstance(weights, str) else weights),
            "ridge": map(float, DCM_RIDGES if isinstance(ridges, str) else ridges),
        }
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


for _name in FITTED_ATTRIBUTES:
    _doc = f"Attribute ``{_name}`` of ``best_estimator_``."
    setattr(DCMSearch, _name, property(attrgetter(f"best_estimator_.{_name}"), doc=_doc))


@signatures.documented_arguments
class DCMCV(ExactArguments, DCMSearch):
    r"""DCM with gamma, ridge and domain weight chosen by holding out source domains.

    Each combination of arguments is scored with a simple predictor on projected rows from held-out
    domains, and DCM is fitted to all rows with the best combination. Candidates with the same gamma
    share products with the Gram matrix, so together they take little longer than the slowest one.

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
    DCM : A single model, without a search.

    Notes
    -----
    Each candidate solves the problem of :class:`DCM`. Among the candidates, the mean loss
    :math:`L` of the predictor on held-out domains is minimized: :math:`\sum_t L(\text{domain } t
    \mid \text{the other domains}) / T`.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import DCMCV
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = DCMCV(gammas=[0.1], ridges=[1e-3, 1e-1], domain_weights=[0.0, 1.0])
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> print(f"ridge {search.best_params_['ridge']}, log loss {-search.best_score_:.2f}")
    ridge 0.001, log loss 0.59
    """

    _estimator = DCM
    _fold = path.ExactFold


@signatures.documented_arguments
class FastDCMCV(LabelLandmarkArguments, DCMSearch):
    """FastDCM with gamma, ridge and domain weight chosen by holding out source domains.

    With more than 1000 rows and ``estimator=None``, the search passes over the rows once for each
    gamma, and all splits share the same landmarks.

    Parameters
    ----------
    n_components : int, default=None
        See :class:`~domainwise.FastDCM`.
    {search} {kernel_no_gamma} {target} {domain} {landmarks} {seed} {target_landmarks}

    Attributes
    ----------
    {searched} {fast_fitted}

    See Also
    --------
    DCMCV : The exact search.

    Notes
    -----
    Each candidate solves the problem of :class:`FastDCM`. Among the candidates, the mean loss
    :math:`L` of the predictor on held-out domains is minimized, as in :class:`DCMCV`.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import FastDCMCV
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = FastDCMCV(gammas=[0.1], n_landmarks=100)
    >>> search = search.fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> print(f"ridge {search.best_params_['ridge']}, log loss {-search.best_score_:.2f}")
    ridge 0.001, log loss 0.59
    """

    _estimator = FastDCM
    _fold = path.FastFold
