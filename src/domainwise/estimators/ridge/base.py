"""Base class for InvariantRidgeCV and InvariantRidgeClassifierCV."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import Backend, backend_of
from domainwise.algebra.backends.base import Movable, kinds_of_labels
from domainwise.algebra.gram.nystrom import NystromMap
from domainwise.algebra.gram.sums import CellSums
from domainwise.algebra.kernels.approximations import landmark_count
from domainwise.algebra.kernels.functions import Kernel
from domainwise.base import arrays, inputs
from domainwise.base.arguments import NON_NEGATIVE, POSITIVE, SequenceOf
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    KernelLike,
    MaybeArray,
    Scoring,
    Seed,
)
from domainwise.base.signatures import arguments, check_same_arguments
from domainwise.estimators.adaptation.adapter import Adaptable
from domainwise.estimators.projections.fast import OnePass
from domainwise.estimators.projections.projection import (
    fourier_map,
    one_thread_if_small,
    resolve_landmarks,
)
from domainwise.estimators.ridge import tuning
from domainwise.estimators.ridge.problem import Penalties, RidgeProblem, needs_predictions
from domainwise.estimators.ridge.scores import NumberRule, Rows
from domainwise.held_out import folds
from domainwise.held_out.folds import Split
from domainwise.held_out.scoring.measures import counts_by_domain
from domainwise.held_out.scoring.predictions import HeldOut
from domainwise.held_out.search import driver
from domainwise.held_out.search.driver import Candidate, SearchAttributes, SearchResult
from domainwise.held_out.search.grids import RIDGE_ALPHAS, RIDGE_GAMMAS, RIDGE_WEIGHTS

#: Maximum number of rows whose held-out predictions are stored, for example for calibration.
MAX_HELD_OUT_ROWS = 1500
#: Maximum number of landmarks with ``n_landmarks="auto"``; smaller tables use all rows.
AUTO_LANDMARKS = 600
#: Maximum number of landmarks with ``n_landmarks="auto"`` during the search.
SEARCH_LANDMARKS = 300
#: Maximum relative error of a solution due to rounding errors in the sums.
MAX_ROUNDING = 1e-9
#: Arguments that must not change after the first batch. The others affect only the search.
BATCH_ARGUMENTS = ("kernels", "gammas", "n_landmarks", "landmarks", "feature_map", "random_state")


@arguments
class RidgeArguments(BaseEstimator):
    """Arguments of a ridge search."""

    kernels: Sequence[str] = ("rbf", "laplacian")
    gammas: Sequence[float] | str = "auto"
    alphas: Sequence[float] | str = "auto"
    domain_weights: Sequence[float] | str = RIDGE_WEIGHTS
    n_average: int = 10
    n_landmarks: float | str = "auto"
    landmarks: ArrayLike = "kmeans++"
    feature_map: str = "nystroem"
    domain_kernel: KernelLike = "auto"
    domain_gamma: float | str = "median"
    domain_epsilon: float = 1e-3
    cv: CrossValidator = None
    scoring: Scoring = None
    n_jobs: int | None = None
    random_state: Seed = None


class RidgeCandidates(RidgeArguments):
    """Base class that creates kernels, feature maps and penalties from the arguments."""

    #: Values for regressors, which do not have these arguments.
    class_weight: Any = None
    conditionals: Any = (False,)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "domain_weights": [SequenceOf(NON_NEGATIVE)],
        "domain_epsilon": [POSITIVE],
    }

    def _feature_maps(
        self,
        backend: Backend,
        rows: Any,
        domain: inputs.Labels,
        n_rows: int,
        kernels: list[tuple[str, float]] | None = None,
        weights: Array | None = None,
    ) -> list[NystromMap]:
        """Return a feature map for each kernel; all splits share the landmarks."""
        kernels = self._kernels(rows, weights) if kernels is None else kernels
        if self.feature_map == "fourier":
            n_features = self._landmark_count(n_rows, among_rows=False)
            return [fourier_map(self, *kernel, rows.shape[1], n_features) for kernel in kernels]
        kernel_functions = [backend.resolve_kernel(name, rows, gamma=g) for name, g in kernels]
        landmarks = resolve_landmarks(self, backend, rows, domain, kernel_functions[0], n_rows)
        # For arrays and a large ridge, kernel values are summed instead of features: it is faster.
        min_ridge = min(self._alphas(n_rows)) / n_rows if isinstance(rows, np.ndarray) else 0.0
        return [
            NystromMap.from_landmarks(kernel, landmarks, ridge=min_ridge, rounding=MAX_ROUNDING)
            for kernel in kernel_functions
        ]

    def _landmark_count(self, n_rows: int, **options: bool) -> int:
        if isinstance(self.n_landmarks, str):
            return min(AUTO_LANDMARKS, n_rows)
        return landmark_count(self.n_landmarks, n_rows, **options)

    def _kernels(self, X: Any, weights: Any) -> list[tuple[str, float]]:
        kernels: dict[tuple[str, float], None] = {}
        for name in self.kernels:
            if not isinstance(self.gammas, str):
                gammas: Sequence[float] = self.gammas
            elif name in ("linear", "cosine"):
                gammas = (1.0,)
            else:
                options: Any = {"gamma": "median", "weights": weights}
                median_gamma = backend_of(X).resolve_kernel(name, X, **options).gamma
                gammas = [median_gamma * factor for factor in RIDGE_GAMMAS]
            kernels |= dict.fromkeys((str(name), float(gamma)) for gamma in gammas)
        return list(kernels)

    def _penalties(self, n_rows: float, domain: inputs.Labels, classes: Array | None) -> Penalties:
        """Return all penalties; weight 0 occurs once: ``conditional`` does not affect it."""
        weights = [float(weight) for weight in self.domain_weights]
        domain_penalties = [(0.0, False)] if 0.0 in weights else []
        domain_penalties += [(w, bool(c)) for c in self.conditionals for w in weights if w > 0]
        if domain.codes is not None and domain.n_categories < 2:
            domain_penalties = [(0.0, False)]
        return self._make_penalties(domain_penalties, self._alphas(n_rows), classes)

    def _make_penalties(self, domain_penalties: Any, alphas: Any, classes: Any) -> Penalties:
        """Combine alphas with domain penalties, which are (domain_weight, conditional) pairs."""
        class_weight = self.class_weight
        if isinstance(class_weight, dict):
            assert classes is not None
            labels = classes.tolist()
            class_weight = {labels.index(c): w for c, w in class_weight.items() if c in labels}
        return Penalties(domain_penalties, alphas, float(self.domain_epsilon), class_weight)

    def _alphas(self, n_rows: float) -> tuple[float, ...]:
        if isinstance(self.alphas, str):
            return tuple(alpha * max(1.0, n_rows / 1000) for alpha in RIDGE_ALPHAS)
        return tuple(float(alpha) for alpha in self.alphas)


class InvariantRidge(Adaptable, Movable, RidgeCandidates, SearchAttributes, OnePass):
    """Base class that runs the search, fits and averages the best candidates, and predicts."""

    __metadata_request__fit = {"sample_domain": True}
    __metadata_request__partial_fit = {"sample_domain": True}

    target_kernel: str
    _uses_target = _uses_domain = True
    _sum_arguments = BATCH_ARGUMENTS
    _sums: CellSums
    classes_: Array
    curve_: Any  # classifiers only
    domains_: Array | None
    held_out_: HeldOut | None = None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Select candidates on held-out domains, and fit them to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            An array, data frame, tensor or Dask collection. A Dask collection may contain labels.
        y : array-like of shape (n_samples,) or, for continuous targets, (n_samples, n_targets)
            Targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.
        {row_weights}

        Returns
        -------
        self : object
        """
        self._validate_params()
        backend = backend_of(X)
        partitions = backend.partitions(X, y, sample_domain, sample_weight)
        if partitions is not None:
            return self.fit_partitions(partitions)
        with one_thread_if_small(X):
            rows = self._checked_rows(backend, X, y, sample_domain, sample_weight)
            self._reset()
            self._search_rows(rows)
        return self

    def fit_partitions(self, partitions: Any) -> Self:
        """Fit to partitions in one pass."""
        from domainwise.algebra.backends.dask import sum_partitions

        self._check_sums_suffice("a fit to partitions")
        previous_state = dict(vars(self))
        try:
            self._reset()
            sums: Any = sum_partitions(self, partitions)
            self._sums = sums
            self._search_sums()
        except BaseException:
            self.__dict__ = previous_state
            raise
        del self._sums
        return self

    def _check_sums_suffice(self, procedure: str = "partial_fit") -> None:
        """Check that no argument requires stored rows; arguments may change between batches."""
        self._validate_params()
        if needs_predictions(self.scoring, self.target_kernel == "delta"):
            raise ValueError(
                f"scoring={self.scoring!r} requires predictions for rows, but {procedure} does not "
                "store rows. Use scoring=None (squared error), which is computed from sums."
            )
        if not folds.leaves_domains_out(self.cv):
            raise ValueError(
                f"cv={self.cv!r} splits rows, which {procedure} does not store. Use cv=None, "
                "LeaveDomainsOut, LeaveOneGroupOut or LeavePGroupsOut."
            )

    def _reset(self) -> None:
        for name in list(vars(self)):
            if name == "_sums" or (name.endswith("_") and not name.endswith("_in_")):
                del self.__dict__[name]
        self._reset_adaptation()

    def __getattr__(self, name: str) -> Any:
        hint = ""
        if name == "predict_proba" and is_classifier(self) and self.__sklearn_is_fitted__():
            hint = (
                ": probabilities are calibrated on held-out rows, but this model was fitted from "
                "sums (partial_fit, merge or Dask). Use decision_function, or call fit with all "
                "rows in memory."
            )
        elif name.endswith("_") and "_sums" in vars(self):
            hint = "; after partial_fit, call finalize or predict to run the search"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __sklearn_is_fitted__(self) -> bool:
        return "expansions_" in vars(self) or "_sums" in vars(self)

    def finalize(self) -> Self:
        """Run the search on all batches of partial_fit, unless it has already run.

        Methods that predict call this method.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        if "expansions_" not in vars(self):
            check_same_arguments(self, self._first_batch, BATCH_ARGUMENTS)
            searched_copy = copy(self)  # other threads may predict at the same time
            searched_copy._search_sums()
            self.__dict__.update(vars(searched_copy))
        return self

    # The search over rows in memory.

    def _search_rows(self, rows: Rows) -> None:
        """Score every candidate on every split, and average the best ones."""
        n_rows, map_args = len(rows.X), (backend_of(rows.X), rows.X, rows.domain, len(rows.X))
        penalties = self._penalties(rows.n_samples, rows.domain, rows.target.names)
        use_fewer = n_rows > SEARCH_LANDMARKS and self._can_search_fewer_landmarks(rows.X)
        template = clone(self).set_params(n_landmarks=SEARCH_LANDMARKS) if use_fewer else self
        maps = template._feature_maps(*map_args, weights=rows.weights)
        domain_codes = arrays.to_host(rows.codes()[1])
        max_predicted_rows = max(MAX_HELD_OUT_ROWS, 2 * len(np.unique(domain_codes)))
        predicted_rows = folds.draw_rows(domain_codes, max_predicted_rows, 0)
        self._record_labels(rows.target.names, rows.domain.names, self._count_classes(rows))
        row_search = tuning.RowSearch(self, maps, penalties, rows, predicted_rows)
        problems = self._search(row_search, self.n_jobs)
        if use_fewer:
            member_kernels = {(member["kernel"], member["gamma"]) for member in self.members_}
            kernels = [kernel for kernel in map(tuning.kernel_of, maps) if kernel in member_kernels]
            maps = self._feature_maps(*map_args, kernels)
            final_problems = [tuning.problem_of(self, nystrom, rows, penalties) for nystrom in maps]
            self.expansions_ = tuning.average_members(maps, final_problems, self.members_)
        mean_values = row_search.held_out(self.members_, problems)
        is_finite = np.isfinite(mean_values).all(axis=1)
        self._record_held_out((rows, mean_values[is_finite], predicted_rows[is_finite]))

    def _search(
        self, ridge_search: tuning.RidgeSearch, n_jobs: int | None = None
    ) -> list[RidgeProblem]:
        """Select and average the best candidates; return each map's ridge problem for all rows."""
        scores, problems = ridge_search.run(n_jobs)
        # For each kernel and domain penalty, this rule considers only the best alpha.
        rule = partial(driver.best_of_paths, path=("alpha",), n=self.n_average)
        search_result = SearchResult.from_scores(ridge_search.candidates(), scores, rule)
        self._record_search(search_result)
        self.members_ = search_result.chosen
        self.expansions_ = tuning.average_members(ridge_search.maps, problems, self.members_)
        return problems

    def _can_search_fewer_landmarks(self, X: Any) -> bool:
        """Return whether landmarks are chosen automatically, so that the search may use fewer."""
        is_automatic = isinstance(self.n_landmarks, str) and isinstance(self.landmarks, str)
        return is_automatic and self.feature_map == "nystroem" and isinstance(X, np.ndarray)

    @abstractmethod
    def _record_held_out(self, held_out: tuple[Rows, Array, Array] | None) -> None:
        """Store predictions by members fitted without the domains of the predicted rows.

        ``held_out`` contains all rows, the predicted values, and the indices of the predicted rows.
        It is None if rows are not stored.
        """

    # Candidates from callers that run their own search.

    def candidate_values(
        self, rows: Rows, candidates: Sequence[Candidate], splits: Sequence[Split], landmarks: Array
    ) -> list[list[Array]]:
        """Predict each split's test rows with several candidates that have the same kernel.

        Return an array for each candidate and split, with one column per target column.
        Rows are summed once for all splits.
        """
        combinations = [((c["domain_weight"], c["conditional"]), c["alpha"]) for c in candidates]
        grids = [list(dict.fromkeys(column)) for column in zip(*combinations, strict=True)]
        nystrom, penalties = self._map_and_penalties(candidates[0], grids, rows, landmarks)
        values_by_split = tuning.held_out_values(nystrom, penalties, rows, splits)
        positions = [penalties.combinations.index(combination) for combination in combinations]
        return [[values[position] for values in values_by_split] for position in positions]

    def fit_candidates(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray,
        candidates: Sequence[Candidate],
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit these candidates to all rows and average them, without a search."""
        self._validate_params()
        backend = backend_of(X)
        rows = self._checked_rows(backend, X, y, sample_domain, sample_weight)
        self._reset()
        kernel = Kernel("rbf")
        landmarks = resolve_landmarks(self, backend, rows.X, rows.domain, kernel, len(rows.X))
        maps, problems = [], []
        for indices in driver.batches_by(candidates, ("kernel", "gamma")):
            batch = [candidates[i] for i in indices]
            domain_penalties = [(c["domain_weight"], c["conditional"]) for c in batch]
            grids = domain_penalties, [c["alpha"] for c in batch]
            nystrom, penalties = self._map_and_penalties(batch[0], grids, rows, landmarks)
            maps.append(nystrom)
            problems.append(tuning.problem_of(self, nystrom, rows, penalties))
        self._record_labels(rows.target.names, rows.domain.names, self._count_classes(rows))
        self.members_, self.best_params_ = list(candidates), dict(candidates[0])
        self.expansions_ = tuning.average_members(maps, problems, self.members_)
        return self

    def hold_out(self, X: Array, y: Array, sample_domain: Array, share: float) -> None:
        """Store held-out predictions for some of the rows of sums, and calibrate a classifier.

        The members are fitted to these rows, without each of five groups of domains in turn.
        ``share`` is the number of these rows divided by the number of all rows.
        """
        rows = self._checked_rows(Backend(), X, y, sample_domain, None)
        options: Any = {"classification": is_classifier(self), "max_splits": 5}
        splits, _ = folds.domain_folds(rows.y, rows.codes()[1], **options)
        members = [{**member, "alpha": share * member["alpha"]} for member in self.members_]
        values = []
        for train, test in splits:
            train_rows = X[train], y[train], sample_domain[train]
            model = clone(self).fit_candidates(*train_rows, members)
            values.append(model._values(rows.X[test]))
        indices = np.concatenate([test for _, test in splits])
        self._record_held_out((rows, np.concatenate(values), indices))

    def _map_and_penalties(
        self, candidate: Candidate, grids: Sequence[Any], rows: Rows, landmarks: Any
    ) -> tuple[NystromMap, Penalties]:
        """Return the candidate's feature map, and penalties; see :meth:`_make_penalties`."""
        domain_penalties, alphas = grids
        kernel = Backend().resolve_kernel(candidate["kernel"], rows.X, gamma=candidate["gamma"])
        nystrom = NystromMap.from_landmarks(kernel, landmarks)
        return nystrom, self._make_penalties(domain_penalties, alphas, rows.target.names)

    def settled(self) -> Self:
        """Return an unfitted estimator that has the best parameters and does not need domains.

        It can be fitted to fewer rows than ``self`` has landmarks.
        """
        best_params = self.finalize().best_params_
        grids = {f"{name}s": [best_params[name]] for name in ("kernel", "gamma", "alpha")}
        fixed_args = {"domain_weights": [0.0], "n_average": 1, "n_landmarks": "auto", "cv": 2}
        return clone(self).set_params(**grids, **fixed_args)

    # The search over sums, without rows.

    def _begin(
        self,
        backend: Backend,
        rows: Any,
        target: Any,
        domain: inputs.Labels,
        n_rows: int | None = None,
        weights: Array | None = None,
    ) -> None:
        if domain.values is not None:
            raise ValueError(
                "sample_domain contains continuous descriptors, but sums are computed by domain "
                "label. Pass one domain label per row, or call fit with all rows in memory."
            )
        self._maps = self._feature_maps(backend, rows, domain, n_rows or len(rows), weights=weights)
        self._kinds = kinds_of_labels(target, domain)

    def _sum_rows(
        self, backend: Backend, rows: Any, target: Any, domain: inputs.Labels, weights: Any = None
    ) -> CellSums:
        return tuning.cells_by_domain(backend, self._maps, Rows(rows, target, domain, weights))

    def _use_sums(self, sums: CellSums) -> None:
        self._reset()
        self._sums = sums
        self._record_seen_labels()

    def _record_seen_labels(self) -> None:
        """Record the classes and domains that occur in the sums."""
        cell_keys = list(self._sums.maps[0])
        labels = sorted({label for _, label in cell_keys}, key=lambda label: (label is None, label))
        classes = None if labels == [None] else inputs.label_array(labels, "y")
        domains = inputs.label_array(sorted({domain for domain, _ in cell_keys}), "sample_domain")
        cells = self._sums.maps[0]
        pairs = product(domains.tolist(), labels)
        sizes = [cells[pair].n_samples if pair in cells else 0 for pair in pairs]
        self._record_labels(classes, domains, np.reshape(sizes, (-1, len(labels))))

    def _search_sums(self) -> None:
        """Run the search on the sums of all rows."""
        self._check_sums_suffice()
        self._record_seen_labels()
        domains, classes = self.domains_, vars(self).get("classes_")
        assert domains is not None
        cell_domains, cell_classes = map(list, zip(*self._sums.maps[0], strict=True))
        inputs.refuse_masked_targets(cell_classes, cell_domains)
        if classes is not None:
            inputs.check_class_weight(self.class_weight, classes)
        if len(domains) < 2 or (classes is not None and len(classes) < 2):
            label = f"domain ({domains[0]})" if len(domains) < 2 else f"class ({self.classes_[0]})"
            raise ValueError(
                f"The data contain only one {label}. Pass rows from at least two domains and, for "
                "classification, at least two classes."
            )
        domain = inputs.Labels(codes=np.zeros(0, dtype=int), names=domains)
        penalties = self._penalties(self._sums.n_samples, domain, classes)
        self._search(tuning.SumSearch(self, penalties))
        self._record_held_out(None)

    # Differences between classification and regression.

    def _checked_rows(
        self, backend: Backend, X: Any, y: Any, sample_domain: Any, sample_weight: Any
    ) -> Rows:
        X, y = self._check_rows(backend, X, y)
        weights, X, y, sample_domain = inputs.rows_with_weight(sample_weight, X, y, sample_domain)
        labels = self._check_labels(backend, y, sample_domain, X)
        return Rows(X, *labels, weights, folds.without_rows(self.cv, sample_weight))

    def _check_rows(self, backend: Backend, X: Any, y: Any, *, reset: bool = True) -> Any:
        if arrays.is_tensor(X):
            return backend.check_rows(self, X, reset=reset), y
        is_regression = self.target_kernel != "delta"
        y = y if is_regression or y is None else inputs.label_array(y, "y")
        options: Any = {"y_numeric": is_regression, "multi_output": is_regression}
        return inputs.validate_rows(
            self, X, y, dtype=(np.float64, np.float32), reset=reset, **options
        )

    def _check_labels(
        self, backend: Backend, y: Any, sample_domain: Any, rows: Any, *, min_classes: int = 2
    ) -> tuple[inputs.Labels, inputs.Labels]:
        target = self._check_target(backend, y, rows, min_classes)
        return target, backend.check_sample_domain(sample_domain, rows, self.domain_kernel)

    @abstractmethod
    def _check_target(self, backend: Backend, y: Any, rows: Any, min_classes: int) -> inputs.Labels:
        """Check y, and return it as labels."""

    def _record_labels(self, classes: Array | None, domains: Array | None, counts: Array) -> None:
        """Store classes and domains; the calibration curve of a classifier is fitted later."""
        self.domains_ = domains
        if classes is not None:
            self.classes_, self.curve_, self._class_counts = classes, None, counts

    def _count_classes(self, rows: Rows) -> Array:
        """Return numbers of rows by domain and class; a continuous target has one class."""
        class_codes, domain_codes = map(arrays.to_host, rows.codes())
        n_classes = rows.target.n_categories
        return counts_by_domain(class_codes, domain_codes, n_classes, rows.weights)

    def _scored_rule(self) -> Any:
        """Return the fitted estimator that scorers call, with a candidate's values as X."""
        return NumberRule()

    # Predicting.

    def predict(self, X: ArrayLike) -> Array:
        """Predict the class or the target value of each row.

        If X is a tensor, the result is a tensor, except for classes that are not numbers.

        Parameters
        ----------
        X : array-like, tensor or Dask collection of shape (n_rows, n_features)

        Returns
        -------
        y : ndarray of shape (n_rows,) or (n_rows, n_targets)
            Classes, or values of the target.
        """
        return self._apply("_predict_rows", X)

    def _apply(self, method_name: str, X: Any) -> Any:
        """Check X, and call a method on all rows or on each partition."""
        coefficients = self.finalize().expansions_[0].dual
        backend = backend_of(X)
        with one_thread_if_small(X):
            rows = backend.check_rows(self, X, reset=False)
            backend.check_same_device(coefficients, rows)
            return backend.predict(self, method_name, rows)

    def _values(self, X: Any) -> Any:
        return sum(function(X) for function in self.expansions_)

    @abstractmethod
    def _uncorrected_outputs(self, X: Any) -> Any:
        """Return probabilities or target values for rows, before corrections by ``adapt``."""

    def _within_rows(self, X: Any) -> Array:
        return np.asarray(arrays.to_host(backend_of(X).check_rows(self, X, reset=False)))

    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        return np.asarray(arrays.to_host(self._apply("_uncorrected_outputs", X)))

    def _corrected_outputs(self, X: Any) -> Any:
        """Return outputs on the device of X, with corrections by ``adapt``."""
        outputs = self._uncorrected_outputs(X)
        if not hasattr(self, "corrections_"):
            return outputs
        prior, correction = self.priors_["plain"], self.corrections_["plain"]
        host_outputs = arrays.to_host(outputs)
        if self.within_ is not None:
            host_outputs = np.column_stack([host_outputs, self.within_.predict(arrays.to_host(X))])
        return arrays.to_device_of(prior.apply(host_outputs, correction), outputs)
