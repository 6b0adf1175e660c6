"""What a ridge search tries: kernels and their landmarks, and penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from domainwise.arrays import Array, ArrayLike, CrossValidator, KernelLike, Scoring, Seed
from domainwise.backends import Backend, backend_of
from domainwise.checks.arguments import NON_NEGATIVE, POSITIVE, Each
from domainwise.checks.inputs import Labels
from domainwise.checks.signatures import arguments
from domainwise.estimators.fast_base import chosen_landmarks, fourier_map
from domainwise.gram.nystrom import NystromMap
from domainwise.kernels.fourier import FourierMap
from domainwise.kernels.landmarks import landmark_count
from domainwise.ridge.moments import Penalties

AUTO_GAMMAS = (0.3, 1.0, 3.0)  #: times the median rule
AUTO_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
#: Times the number of rows in thousands, beyond one thousand: penalties are sums over rows.
AUTO_ALPHAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
#: ``n_landmarks="auto"``: all rows up to here, this many of them beyond.
AUTO_LANDMARKS = 1000
#: Share of a solution that rounding of the sums may make up.
SUM_ROUNDING = 1e-9


@arguments
class RidgeArguments(BaseEstimator):
    """Arguments of a ridge search."""

    kernels: Sequence[str] = ("rbf", "laplacian")
    gammas: Sequence[float] | str = "auto"
    alphas: Sequence[float] | str = "auto"
    domain_weights: Sequence[float] | str = AUTO_WEIGHTS
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
    """What the arguments stand for."""

    #: Of regression, which has no such arguments.
    class_weight: Any = None
    conditionals: Any = (False,)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "domain_weights": [Each(NON_NEGATIVE)],
        "domain_epsilon": [POSITIVE],
    }

    def _landmark_maps(
        self, backend: Backend, rows: Any, domain: Labels, n_rows: int
    ) -> list[NystromMap]:
        """Landmarks, which serve all kernels and splits, as a map for each kernel."""
        named = self._kernels(rows)
        if self.feature_map == "fourier":
            m = self._landmark_count(n_rows, among_rows=False)
            return [fourier_map(self, *each, rows.shape[1], m) for each in named]
        kernels = [backend.resolve_kernel(name, rows, gamma=gamma) for name, gamma in named]
        landmarks = chosen_landmarks(self, backend, rows, domain, kernels[0], n_rows)
        # Sums of plain kernel values are turned into those of features in NumPy.
        least = min(self._alphas(n_rows)) / n_rows if isinstance(rows, np.ndarray) else 0.0
        return [
            NystromMap.from_landmarks(kernel, landmarks, ridge=least, rounding=SUM_ROUNDING)
            for kernel in kernels
        ]

    def _landmark_count(self, n_rows: int, **options: bool) -> int:
        if isinstance(self.n_landmarks, str):
            return min(AUTO_LANDMARKS, n_rows)
        return landmark_count(self.n_landmarks, n_rows, **options)

    def _kernels(self, X: Any) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        for name in self.kernels:
            if not isinstance(self.gammas, str):
                gammas: Sequence[float] = self.gammas
            elif name in ("linear", "cosine"):
                gammas = (1.0,)
            else:
                middle = backend_of(X).resolve_kernel(name, X, gamma="median").gamma
                gammas = [middle * factor for factor in AUTO_GAMMAS]
            found += [(str(name), float(gamma)) for gamma in gammas]
        return found

    def _penalties(self, n_rows: int, domain: Labels, classes: Array | None) -> Penalties:
        """Weights and how domains are compared; weight 0, where both are the same, once."""
        weights = [float(weight) for weight in self.domain_weights]
        kinds = [(0.0, False)] if 0.0 in weights else []
        kinds += [(w, bool(c)) for c in self.conditionals for w in weights if w > 0]
        if domain.codes is not None and domain.n_categories < 2:
            kinds = [(0.0, False)]
        return self._weighted(kinds, self._alphas(n_rows), classes)

    def _weighted(self, kinds: Any, alphas: Any, classes: Array | None) -> Penalties:
        weight = self.class_weight
        if isinstance(weight, dict):
            assert classes is not None
            weight = {c: weight[n] for c, n in enumerate(classes.tolist()) if n in weight}
        return Penalties(kinds, alphas, float(self.domain_epsilon), weight)

    def _alphas(self, n_rows: int) -> tuple[float, ...]:
        if isinstance(self.alphas, str):
            return tuple(alpha * max(1.0, n_rows / 1000) for alpha in AUTO_ALPHAS)
        return tuple(float(alpha) for alpha in self.alphas)


def named(nystrom: NystromMap) -> tuple[str, float]:
    """Name and gamma of a map's kernel."""
    kernel = nystrom.kernel
    return kernel.kernel if isinstance(kernel, FourierMap) else kernel.name, kernel.gamma
