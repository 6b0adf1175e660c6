"""The base of InvariantRidgeCV and InvariantRidgeClassifierCV: searching, choosing, predicting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, MaybeArray, is_dask, is_tensor
from domainwise.arrays.namespace import placed, to_host
from domainwise.backends import Backend, backend_of
from domainwise.backends.base import NumpyBackend
from domainwise.backends.devices import Movable
from domainwise.checks.inputs import Labels, label_array, validate_rows
from domainwise.estimators.fast_base import check_kinds, chosen_landmarks, kinds_of_labels
from domainwise.estimators.projection import one_thread_for_few
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.sums import CellSums
from domainwise.gram.tiles import single_blas_thread
from domainwise.kernels.functions import Kernel
from domainwise.ridge.candidates import RidgeCandidates, named
from domainwise.ridge.domain_cells import cells_by_domain, needs_predictions, score_domains
from domainwise.ridge.moments import HeldProblem, Penalties, leaves_domains_out
from domainwise.ridge.problem import Expansion, RidgeProblem
from domainwise.ridge.rows import (
    Found,
    HeldSearch,
    MomentSearch,
    Rows,
    left_out_values,
    problem_of,
)
from domainwise.ridge.rules import ClassRule, NumberRule
from domainwise.search.driver import Searched, SearchResult
from domainwise.splits.folds import draw_rows

#: Up to here all pairs of rows are held; beyond, moments of their features by cell.
HELD_ROWS = 1500
#: And if there are this many features for each row: fewer of them are quicker to sum.
HELD_SHARE = 0.75
#: Rows that probabilities are learnt from beyond that.
CURVE_ROWS = 1000
SEARCHED = ("best_index_", "best_params_", "best_score_", "cv_results_", "members_", "n_splits_")
#: What a fit leaves behind; after partial_fit it is found when it is asked for.
FITTED = (*SEARCHED, "classes_", "curve_", "domains_", "expansions_")

Candidate = dict[str, Any]  #: arguments of a member


class InvariantRidge(Movable, RidgeCandidates, Searched):
    """The search, for classes and for a continuous target."""

    __metadata_request__fit = {"sample_domain": True}
    __metadata_request__partial_fit = {"sample_domain": True}

    # What a pass over partitions asks of an estimator.
    target_kernel: str
    _uses_target = _uses_domain = True
    _sums: CellSums
    _maps: list[NystromMap]
    curve_: Any  # of classes
    domains_: Array | None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_domain: MaybeArray = None) -> Self:
        """Search on domains left out, then fit the members to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            An array, a data frame, a tensor, or a Dask collection, in which labels may be columns.
        y : array-like of shape (n_samples,) or, of continuous targets, (n_samples, n_targets)
            Targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.

        Returns
        -------
        self : object
        """
        self._validate_params()
        self._fit_on(backend_of(X), X, y, sample_domain)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_domain: MaybeArray = None) -> Self:
        """Add a batch of rows to what has been seen.

        Landmarks and gammas come from the first batch, unless they are given. Classes and domains
        may appear in any batch. The search itself runs when its results are first asked for, and
        then equals :meth:`fit` on all rows with the same landmarks and gammas.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`, in memory or on a device.

        Returns
        -------
        self : object
        """
        if is_dask(X):
            raise TypeError("partial_fit takes rows in memory; fit takes Dask collections")
        self._check_without_rows()
        backend, first = backend_of(X), "_sums" not in vars(self)
        before = dict(vars(self))
        try:
            rows, y = self._check_rows(backend, X, y, reset=first)
            target, domain = self._check_labels(backend, y, sample_domain, rows, least_classes=1)
            if first:
                self._begin(backend, rows, target, domain)
            self._check_kinds(target, domain)
            sums = self._sum_rows(backend, rows, target, domain)
            if not first:
                like = next(iter(sums.maps[0].values())).mean
                sums = self._sums.mapped(lambda part: placed(to_host(part), like)).merge(sums)
        except BaseException:
            self.__dict__ = before  # a batch that cannot be added leaves no trace
            raise
        self._forget()
        self._sums = sums
        return self

    def _fit_on(self, backend: Any, X: Any, y: Any, sample_domain: Any) -> None:
        with backend.explaining_memory(X), one_thread_for_few(X):
            if not is_dask(X):
                rows, y = self._check_rows(backend, X, y)
                target, domain = self._check_labels(backend, y, sample_domain, rows)
                self._forget()
                self._search(Rows(rows, target, domain))
                return
            from domainwise.backends.partitions import partitions_of

            self.fit_partitions(partitions_of(X, y, sample_domain, backend.known))

    def fit_partitions(self, parts: Any) -> Self:
        """Fit to rows that lie in partitions, in one pass; a score of predictions takes another."""
        from domainwise.backends.partitions import sum_partitions

        self._refuse_splits_of_rows("a pass over partitions")
        before = dict(vars(self))
        try:
            self._forget()
            sums: Any = sum_partitions(self, parts)
            self._sums = sums
            self._finish(parts)
        except BaseException:
            self.__dict__ = before
            raise
        del self._sums
        return self

    def fit_sums(self, maps: list[NystromMap], sums: CellSums, width: int) -> Self:
        """Fit from sums over rows of some width that are elsewhere, of maps that they share.

        Keys of cells name what is left out together; domains are those of their groups.
        """
        self._forget()
        self._maps, self._sums, self._flat, self.n_features_in_ = maps, sums, True, width
        self._finish()
        groups = [key for cell in sums.maps[0].values() for key in cell.groups]
        self.domains_ = label_array(sorted({domain for _, domain in groups}), "sample_domain")
        del self._sums, self._maps
        return self

    def _check_without_rows(self) -> None:
        """Check arguments, which may have been set since the last batch, for sums of rows."""
        self._validate_params()
        self._refuse_splits_of_rows("partial_fit")
        if needs_predictions(self.scoring, self.target_kernel == "delta"):
            raise ValueError(
                f"scoring={self.scoring!r} looks at predictions of rows, which partial_fit does "
                "not keep: leave scoring at None, the squared error, which needs none"
            )

    def _refuse_splits_of_rows(self, what: str) -> None:
        if not leaves_domains_out(self.cv):
            raise ValueError(
                f"cv={self.cv!r} splits rows, which {what} does not keep: use None, "
                "LeaveDomainsOut, LeaveOneGroupOut or LeavePGroupsOut"
            )

    def _forget(self) -> None:
        for name in ("_sums", *FITTED):
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name in FITTED and "_sums" in vars(self):
            self._finish()
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        if "_sums" in vars(self) and "expansions_" not in vars(self) and self._ready():
            self._finish()
        return super().__getstate__()

    def __sklearn_is_fitted__(self) -> bool:
        return "expansions_" in vars(self) or "_sums" in vars(self)

    # The search over rows that are at hand.

    def _search(self, rows: Rows) -> None:
        """Score every candidate on every split, and average the best."""
        n = len(rows.X)
        penalties = self._penalties(n, rows.domain, rows.target.names)
        maps = self._landmark_maps(backend_of(rows.X), rows.X, rows.domain, n)
        many = min(nystrom.n_features for nystrom in maps) >= HELD_SHARE * n
        held = n <= HELD_ROWS and many and isinstance(rows.X, np.ndarray)
        self._record_labels(rows.target.names, rows.domain.names)
        each = (HeldSearch if held else MomentSearch)(self, rows, penalties)
        groups = each.fitting(maps)
        with single_blas_thread(self.n_jobs not in (None, 1)):
            found = Parallel(n_jobs=self.n_jobs)(delayed(each)(group) for group in groups)
        each.found = [one for group in found for one in group]
        self._choose(each.found, maps, penalties, rows.X)
        drawn = np.arange(n)
        if n > HELD_ROWS:
            domains = to_host(rows.codes()[1])
            most = max(min(HELD_ROWS, CURVE_ROWS), 2 * len(np.unique(domains)))
            drawn = draw_rows(domains, most, 0)
        self._calibrate(each, maps, drawn)

    def _calibrate(self, search: Any, maps: list[NystromMap], drawn: Array) -> None:
        """Learn more from values of the members for rows whose domain they have not seen."""

    def _choose(
        self, found: Found, maps: list[NystromMap], penalties: Penalties, X: Any = None
    ) -> None:
        """Keep results, and average the best, fitted to all rows."""
        each, problems = zip(*found, strict=True)
        points = [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name, gamma in map(named, maps)
            for (w, c), alpha in product(penalties.kinds, penalties.alphas)
        ]
        self._record_search(SearchResult.of(points, np.vstack(each)))
        self._average(self._best_points(points, len(penalties.alphas)), problems, maps, X)

    def _best_points(self, points: list[Candidate], n_alphas: int) -> list[Candidate]:
        """The best alpha of each kernel and penalty, and of these the best ``n_average``."""
        rank = self.cv_results_["rank_test_score"].reshape(-1, n_alphas)
        best = rank.argmin(axis=1) + n_alphas * np.arange(len(rank))
        order = np.argsort(rank.min(axis=1), kind="stable")[: self.n_average]
        return [points[i] for i in best[order]]

    def _average(
        self,
        members: list[Candidate],
        problems: Sequence[RidgeProblem],
        maps: list[NystromMap],
        X: Any = None,
    ) -> None:
        """Make one function of the members of each kernel; X are the rows of held problems."""
        self.members_, self.expansions_ = members, []
        share = 1.0 / len(members)
        for nystrom, problem in zip(maps, problems, strict=True):
            mine = [m for m in members if (m["kernel"], m["gamma"]) == named(nystrom)]
            if mine:
                kinds = [([(m["domain_weight"], m["conditional"])], [m["alpha"]]) for m in mine]
                with single_blas_thread():  # threads gain little here, and wait for each other
                    mean = share * sum(problem.solutions(*kind) for kind in kinds)
                intercept = share * len(mine) * problem.target - problem.mean @ mean
                if isinstance(problem, HeldProblem):
                    mean = nystrom.weights(X, mean)
                self.expansions_.append(Expansion.of_features(nystrom, mean, intercept))

    def _problem(
        self, kernel: tuple[str, float], kinds: Any, alphas: Any, rows: Rows, landmarks: Any
    ) -> tuple[NystromMap, RidgeProblem]:
        """Map of one kernel on landmarks, and the problem of all rows."""
        made = NumpyBackend().resolve_kernel(kernel[0], rows.X, gamma=kernel[1])
        nystrom = NystromMap.from_landmarks(made, landmarks)
        penalties = self._weighted(kinds, alphas, rows.target.names)
        return nystrom, problem_of(self, nystrom, rows, penalties)

    def _fit_points(self, rows: Rows, points: list[Candidate]) -> Self:
        """Average some points of the grid, fitted to all rows."""
        about = backend_of(rows.X), rows.X, rows.domain, Kernel("rbf")
        landmarks = chosen_landmarks(self, *about, len(rows.X))
        maps, problems = [], []
        for name, gamma in dict.fromkeys((p["kernel"], p["gamma"]) for p in points):
            mine = [p for p in points if (p["kernel"], p["gamma"]) == (name, gamma)]
            kinds = [(p["domain_weight"], p["conditional"]) for p in mine]
            alphas = [p["alpha"] for p in mine]
            nystrom, problem = self._problem((name, gamma), kinds, alphas, rows, landmarks)
            maps.append(nystrom)
            problems.append(problem)
        self._average(points, problems, maps)
        self.domains_ = rows.domain.names
        self.best_params_ = dict(points[0])
        return self

    def settled(self) -> Self:
        """Return the best single kernel without a search, not fitted; it needs no domains."""
        best = {f"{name}s": [self.best_params_[name]] for name in ("kernel", "gamma", "alpha")}
        return clone(self).set_params(**best, domain_weights=[0.0], n_average=1, cv=2)

    # The search over sums, whose rows are gone.

    def _begin(
        self, backend: Backend, rows: Any, target: Labels | None, domain: Labels, n_rows: int = 0
    ) -> None:
        """Fix landmarks and gammas; ``n_rows`` are to come, where these are only some of them."""
        if domain.values is not None:
            raise ValueError(
                "sample_domain holds continuous descriptors: leaving domains out without keeping "
                "rows needs labels of domains"
            )
        self._maps = self._landmark_maps(backend, rows, domain, n_rows or len(rows))
        self._kinds = kinds_of_labels(target, domain)

    def _check_kinds(self, target: Labels | None, domain: Labels) -> None:
        check_kinds(self._kinds, target, domain)

    def _sum_rows(self, backend: Backend, rows: Any, target: Labels, domain: Labels) -> CellSums:
        return cells_by_domain(backend, self._maps, Rows(rows, target, domain))

    def _ready(self) -> bool:
        """Whether enough domains and classes have been seen to leave a domain out."""
        keys = list(self._sums.maps[0])
        classes = {label for _, label in keys}
        return len({domain for domain, _ in keys}) > 1 and (classes == {None} or len(classes) > 1)

    def _finish(self, parts: Any = None) -> None:
        """Search among the sums of all rows, which lie in ``parts`` if they are not gone."""
        if parts is None:
            self._check_without_rows()
        keys = list(self._sums.maps[0])
        domains = label_array(sorted({domain for domain, _ in keys}), "sample_domain")
        classes = sorted({label for _, label in keys}, key=lambda label: (label is None, label))
        if not self._ready():
            what = f"domain ({domains[0]})" if len(domains) < 2 else f"class ({classes[0]})"
            raise ValueError(
                f"only one {what} has been seen so far: leaving domains out needs two domains, "
                "and a classifier two classes"
            )
        names = None if classes == [None] else label_array(classes, "y")
        domain = Labels(codes=np.zeros(0, dtype=int), names=domains)
        penalties = self._penalties(self._sums.n_samples, domain, names)
        found = score_domains(self, penalties, domains, names, parts)
        self._record_labels(names, domains)
        self._choose(found, self._maps, penalties)

    # What classes and numbers do differently.

    def _check_rows(self, backend: Backend, X: Any, y: Any, *, reset: bool = True) -> Any:
        if is_tensor(X):
            return backend.check_rows(self, X, reset=reset), y
        numbers = self.target_kernel != "delta"
        y = y if numbers or y is None else label_array(y, "y")
        of_numbers = {"y_numeric": numbers, "multi_output": numbers}
        return validate_rows(self, X, y, dtype=(np.float64, np.float32), reset=reset, **of_numbers)

    def _check_labels(
        self, backend: Backend, y: Any, sample_domain: Any, rows: Any, *, least_classes: int = 2
    ) -> tuple[Labels, Labels]:
        target = self._check_target(backend, y, rows, least_classes)
        return target, backend.check_sample_domain(sample_domain, rows, self.domain_kernel)

    @abstractmethod
    def _check_target(self, backend: Backend, y: Any, rows: Any, least_classes: int) -> Labels:
        """Check targets."""

    def _record_labels(self, classes: Array | None, domains: Array | None) -> None:
        """Note the labels that were seen."""
        self.domains_ = domains
        if classes is not None:
            self.classes_, self.curve_ = classes, None

    def _rule(self) -> Any:
        """What scorers take for a fitted estimator: its X are values."""
        return ClassRule(self.classes_) if self.target_kernel == "delta" else NumberRule()

    # Predicting.

    def predict(self, X: ArrayLike) -> Array:
        """Return the class of each row, or its predicted target.

        Of a tensor they are a tensor, but for classes that are no numbers.

        Parameters
        ----------
        X : array-like, tensor or Dask collection of shape (n_rows, n_features)
        """
        return self._apply("_predicted", X)

    def _apply(self, method: str, X: Any) -> Any:
        """Check X, and call a method on what is at hand: all rows, or every partition."""
        check_is_fitted(self)
        first = self.expansions_[0].dual
        backend = backend_of(X)
        with backend.explaining_memory(X), one_thread_for_few(X):
            rows = backend.check_rows(self, X, reset=False)
            backend.check_same_place(first, rows)
            return backend.predict(self, method, rows)

    def _values(self, X: Any) -> Any:
        return sum(function(X) for function in self.expansions_)


def split_values(
    estimator: InvariantRidge,
    kernel: tuple[str, float],
    kinds: Sequence[tuple[float, bool]],
    alphas: Sequence[float],
    rows: Rows,
    split: Any,
    landmarks: Array,
) -> list[Array]:
    """Values on the test rows of one split, of all penalties of one kernel.

    Landmarks are among the rows that are trained on. One block for each of the kinds and alphas,
    with a column per value of the target.
    """
    train = Rows(rows.X[split.train], rows.target.take(split.train), split.domain)
    nystrom, problem = estimator._problem(kernel, kinds, alphas, train, train.X[landmarks])
    solutions = problem.solutions(kinds, alphas)
    return left_out_values(nystrom, problem, solutions, rows.X[split.test])
