"""Candidates of a method: their values in units of the data, and how they are fitted and scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC, SVR

from domainwise.algebra.kernels.functions import Kernel, resolve_gamma
from domainwise.base.arrays import Array
from domainwise.base.inputs import quiet_about_domains, take_rows, weight_argument
from domainwise.estimators.ensemble.trees import bin_borders
from domainwise.estimators.projections.exact import KernelProjection
from domainwise.estimators.projections.path import project_grid
from domainwise.estimators.projections.projection import one_thread_if_small
from domainwise.held_out.folds import Split
from domainwise.held_out.scoring.measures import has_rare_class
from domainwise.held_out.scoring.predictions import fit_with_domains
from domainwise.held_out.search.driver import Candidate, Data, Outcomes, batches_by
from domainwise.held_out.search.scores import Score, quick_head, quiet_scores

#: Estimators that use only the bin of each value.
BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


@dataclass(frozen=True)
class MethodSearchKind:
    """A search for an estimator's arguments; candidates are fitted like the final model.

    With ``use_shortcuts``, candidates of an SVM or an exact projection that have the same kernel
    share the kernel matrices of a split, and boosting gets bin numbers instead of values.
    """

    estimator: Any
    step: str  #: pipeline step that has the arguments; empty if there is no pipeline
    grids: list[dict[str, Any]]
    use_shortcuts: bool = True
    one_pass = False

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all combinations of the values in each grid."""
        return list(ParameterGrid(self.grids))

    @property
    def _searched_estimator(self) -> Any:
        return self.estimator.named_steps[self.step] if self.step else self.estimator

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates that share a kernel; otherwise each candidate is a batch."""
        estimator = self._searched_estimator
        is_rbf_svm = type(estimator) in (SVC, SVR) and estimator.kernel == "rbf"
        if self.use_shortcuts and (is_rbf_svm or isinstance(estimator, KernelProjection)):
            return batches_by(candidates, ("kernel", "gamma"))
        return [[i] for i in range(len(candidates))]

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Score the candidates on one split."""
        ((train, test),) = splits
        train_data, X_test, y_test = data.take(train), take_rows(data.X, test), data.y[test]
        weights = None if data.weights is None else data.weights[test]
        if self.use_shortcuts and isinstance(self.estimator, BOOSTING):
            train_data, X_test = _bin_values(train_data, X_test, self.estimator.max_bins)
        with quiet_about_domains():
            if len(batch) == 1:
                (model,) = self.fit(train_data, batch)
                return [[score.outcome(model, X_test, y_test, weights)]]
            with one_thread_if_small(data.X), quiet_scores():
                fitted_pairs = self._fit_shared(train_data, batch, X_test)
                outcomes = [score.outcome(model, X, y_test, weights) for model, X in fitted_pairs]
                return [[outcome] for outcome in outcomes]

    def _fit_shared(
        self, train_data: Data, batch: Sequence[Candidate], X_test: Array
    ) -> Iterator[tuple[Any, Array]]:
        """Yield fitted candidates with a common kernel, each with its input for the test rows."""
        if self.step:
            predictor = quick_head(self.estimator.steps[-1][1])
            for Z, Z_test in project_grid(self._searched_estimator, batch, train_data, X_test):
                weights = weight_argument(predictor, train_data.weights)
                yield copy(predictor).fit(Z, train_data.y, **weights), Z_test
            return
        gamma = batch[0].get("gamma", self.estimator.gamma)
        weights = {} if train_data.weights is None else {"sample_weight": train_data.weights}
        kernel = Kernel("rbf", gamma=gamma).centred_on(train_data.X)
        K, K_test = kernel.matrix(train_data.X), kernel.matrix(X_test, train_data.X)
        for candidate in batch:
            model = clone(self.estimator).set_params(**{**candidate, "kernel": "precomputed"})
            yield model.fit(K, train_data.y, **weights), K_test

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit candidates; domains are passed to estimators that request them."""
        prefix, models = f"{self.step}__" if self.step else "", []
        for candidate in chosen:
            parameters = {prefix + name: clone(v, safe=False) for name, v in candidate.items()}
            model = clone(self.estimator).set_params(**parameters)
            rows = data.X, data.y, data.sample_domain, data.weights
            models.append(fit_with_domains(model, *rows))
        return models


def _bin_values(train_data: Data, X_test: Array, n_bins: int) -> tuple[Data, Array]:
    """Replace values by bin numbers, the only information that histogram boosting uses.

    This saves time, because scikit-learn computes bins one by one if rows have weights.
    """
    if np.isnan(train_data.X).any():
        return train_data, X_test
    borders = [bin_borders(column, n_bins) for column in train_data.X.T]

    def to_bin_numbers(X: Array) -> Array:
        pairs = zip(borders, X.T, strict=True)
        return np.column_stack([np.searchsorted(b, x) for b, x in pairs]).astype(np.float64)

    return replace(train_data, X=to_bin_numbers(train_data.X)), to_bin_numbers(X_test)


def in_units(
    grid: Mapping[str, Sequence[Any]], units: Mapping[str, str], data: Data, splits: list[Split]
) -> list[dict[str, Any]]:
    """Return one grid per kernel, with values converted from units that depend on the rows.

    >>> data = Data(np.zeros((50, 2)), np.zeros(50))
    >>> in_units({"lam": [0.1]}, {"lam": "rows"}, data, [])
    [{'lam': [5.0]}]
    """
    deviation = (float(np.std(data.y)) or 1.0) if "deviation" in units.values() else 1.0
    scales = {"deviation": deviation, "tolerance": min(deviation, 1.0)}
    scales |= {"rows": len(data.y), "per row": 1.0 / len(data.y)}
    grids = []
    for kernel in grid.get("kernel", ["rbf"]):
        values_by_name: dict[str, Any] = {}
        for name, factors in grid.items():
            unit = units.get(name)
            if unit == "components":
                max_components = min(len(train) for train, _ in splits) - 1
                values_by_name[name] = sorted({min(n, max_components) for n in factors})
            elif unit == "if a class is rare":
                counts = np.unique(data.y, return_counts=True)[1]
                values_by_name[name] = list(factors if has_rare_class(counts) else factors[:1])
            elif unit is None:
                values_by_name[name] = list(factors)
            else:
                is_median = unit == "median"
                scale = resolve_gamma("median", kernel, data.X) if is_median else scales[unit]
                values_by_name[name] = [scale * factor for factor in factors]
        grids.append(values_by_name | ({"kernel": [kernel]} if "kernel" in grid else {}))
    return grids
