"""Base of the Nystrom estimators: one pass over the rows, which are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from domainwise.arrays import Array
from domainwise.backends.base import backend_of, is_dask
from domainwise.checks.inputs import Labels, check_n_components
from domainwise.estimators.projection import Projection, fixed_seed
from domainwise.gram.label_sums import LabelMap, finalize
from domainwise.gram.nystrom import NystromGram, NystromMap, NystromSums
from domainwise.kernels.functions import Kernel, check_finite
from domainwise.kernels.landmarks import choose_landmarks, landmark_count
from domainwise.labels.factors import residual_trace
from domainwise.methods.components import standardise

#: A solution that is regularised less than this, per row, is computed in float64 throughout.
FLOAT32_SHIFT = 1e-4


class FastProjection(Projection):
    """A projection in the span of landmarks, fitted from sums over rows."""

    n_landmarks: Any
    landmarks: Any
    target_landmarks: Any
    _sums: NystromSums

    #: Whether the method looks at the second moment of the features, the dearest of the sums.
    _needs_moments = True

    def fit_transform(self, X: Any, y: Any = None, sample_domain: Any = None) -> Array:
        """Fit, then project the same rows in a second pass.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
        """
        return self.fit(X, y, sample_domain).transform(X)

    def partial_fit(self, X: Any, y: Any = None, sample_domain: Any = None) -> Self:
        """Add a batch of rows to what has been seen.

        Landmarks, ``gamma`` and the landmarks of continuous labels come from the first batch,
        unless they are given. Classes and domains may appear in any batch. The result equals
        :meth:`fit` on all rows with the same landmarks.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`.

        Returns
        -------
        self : object
            Ready to transform once two classes have been seen (if y holds classes).
        """
        if is_dask(X):
            raise TypeError("partial_fit takes rows in memory; fit takes Dask collections")
        self._validate_params()
        first = not hasattr(self, "_sums")
        X = backend_of(X).check_rows(self, X, reset=first)
        target, domain = self._check_labels(y, sample_domain, X, least_classes=1)
        before = dict(vars(self))
        try:
            if first:
                self._begin(X, target, domain)
            self._check_kinds(target, domain)
            sums = self._sum_rows(X, target, domain)
            self._sums = sums if first else self._sums.merge(sums)
            self._finish()
        except BaseException:
            self.__dict__ = before  # a batch that cannot be added leaves no trace
            raise
        backend_of(X).place(self, X)
        return self

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        self._sums = backend_of(X).all_sums(self, X, y, sample_domain)
        self._finish()
        backend_of(X).place(self, X)

    def _sum_at_once(self, X: Any, y: Any, sample_domain: Any) -> NystromSums:
        """Begin with rows that are all at hand, and sum over them."""
        X = backend_of(X).check_rows(self, X, ensure_min_samples=2)
        check_n_components(self.n_components, len(X))
        target, domain = self._check_labels(y, sample_domain, X)
        self._begin(X, target, domain)
        return self._sum_rows(X, target, domain)

    def _begin(
        self, X: Any, target: Labels | None, domain: Labels, n_rows: int | None = None
    ) -> None:
        """Fix the landmarks and everything else that must not depend on later rows.

        ``n_rows`` is the number of rows to come, where X is only some of them.
        """
        if self.kernel == "precomputed":
            raise ValueError(
                f'{type(self).__name__} chooses landmarks among rows: kernel="precomputed" has none'
            )
        if not self._uses_domain:
            domain = Labels(codes=np.zeros(len(X), dtype=np.intp), names=np.array([0]))
        self._check_conditional([getattr(self, "conditional", False)], domain)
        kernel = self._resolve_kernel(X)
        landmarks = self._choose(X, domain, kernel, n_rows or len(X))
        if self._relative_shift < FLOAT32_SHIFT:
            landmarks = landmarks.astype(np.float64)
        self._map = NystromMap.from_landmarks(kernel, landmarks, ridge=self._relative_shift)
        rank = self._map.n_features
        if self.n_components is not None and self.n_components > rank:
            raise ValueError(
                f"n_components={self.n_components} is more than the {rank} independent landmarks"
            )
        self._target_map = self._label_map(target, "target", self.target_landmarks)
        self._domain_map = self._label_map(domain, "domain", None)
        self._kinds = (_kind(target), _kind(domain))

    def _check_conditional(self, conditionals: Sequence[bool], domain: Labels) -> None:
        if any(conditionals) and domain.values is not None:
            raise ValueError(
                "conditional=True with continuous domain descriptors needs all rows at once: "
                f"use {self._exact_name}"
            )

    def _choose(self, X: Any, domain: Labels, kernel: Kernel, n_rows: int) -> Array:
        backend = backend_of(X)
        X = backend.on_host(X)
        if not isinstance(self.landmarks, str):
            given = np.asarray(backend.on_host(self.landmarks)[:])
            if given.ndim != 2 or given.shape[1] != X.shape[1] or not len(given):
                raise ValueError(
                    f"landmarks must have shape (n_landmarks, {X.shape[1]}), got {given.shape}"
                )
            given = given.astype(X.dtype)
            if not np.isfinite(given).all():
                raise ValueError("landmarks contain NaN or infinite values")
            return given
        m = landmark_count(self.n_landmarks, n_rows)
        if m > len(X):
            raise ValueError(
                f"n_landmarks={self.n_landmarks} of {n_rows} rows makes {m} landmarks, but "
                f"{len(X)} rows were looked at to choose from; give a smaller number, or the "
                "landmarks themselves"
            )
        rng = np.random.default_rng(fixed_seed(self.random_state))
        codes = backend.on_host(domain.codes)[:] if self.landmarks == "stratified" else None
        return np.array(X[choose_landmarks(self.landmarks, X, m, codes, kernel, rng)])

    def _label_map(self, labels: Labels | None, role: str, points: Any) -> LabelMap | None:
        if labels is None or labels.values is None:
            return None
        kernel = getattr(self, f"{role}_kernel", "auto")
        return LabelMap.choose(
            labels.values,
            "rbf" if kernel == "auto" else kernel,
            getattr(self, f"{role}_gamma", "median"),
            residual_trace(self._label_epsilon, self._label_weight(role)),
            name=f"the {role} kernel",
            points=points,
        )

    def _check_kinds(self, target: Labels | None, domain: Labels) -> None:
        """Refuse a batch whose labels are of another kind than those before."""
        used = domain if self._uses_domain else Labels(codes=np.zeros(0), names=np.array([0]))
        for name, before, labels in zip(
            ("y", "sample_domain"), self._kinds, (target, used), strict=True
        ):
            if _kind(labels) != before:
                raise ValueError(
                    f"this batch has {_kind(labels)} as {name}, earlier ones had {before}"
                )

    def _sum_rows(self, X: Any, target: Labels | None, domain: Labels) -> NystromSums:
        codes, keys = _group_codes(target, domain if self._uses_domain else None, len(X))
        return backend_of(X).sum_rows(
            self._map,
            X,
            codes,
            keys,
            lambda rows: self._dense_labels(target, domain, rows),
            moments=self._needs_moments,
        )

    def _dense_labels(self, target: Labels | None, domain: Labels, rows: slice) -> Array | None:
        columns = []
        if self._target_map is not None:
            assert target is not None
            values = target.values[rows]  # type: ignore[index]
            columns += [self._target_map.features(values), values[:, :1]]
        if self._domain_map is not None:
            columns.append(self._domain_map.features(domain.values[rows]))  # type: ignore[index]
        return np.hstack(columns) if columns else None

    def _finalized(self) -> tuple[NystromGram, list[Any], list[Any], Array]:
        """Operator of all rows seen, classes and domains among them, and the features' mean."""
        n_target = 0 if self._target_map is None else self._target_map.n_features
        for part in (self._sums.mean, self._sums.second):
            check_finite(part, self._map.landmarks.dtype)
        sums = self._map.moments(self._sums)
        gram, classes, domains = finalize(
            sums,
            self._map,
            n_target=n_target,
            n_values=int(bool(n_target)),
            n_domain=0 if self._domain_map is None else self._domain_map.n_features,
            conditional=getattr(self, "conditional", False),
        )
        return gram, classes, domains, sums.mean[: gram.size]

    def _finish(self) -> None:
        """Solve from the sums; nothing is stored while one row or one class only has been seen."""
        gram, classes, domains, mean = self._finalized()
        if len(classes) == 1 or gram.n_samples == 1:
            return
        found = self._solve(gram, gram.labels, self._target_map is not None)
        found = standardise(gram, found, gram.labels, warn=self.n_components is not None)
        weights = gram.weights(found.dual)
        self.dual_coef_ = self._map.dual(weights)
        constant = self._map.kernel.constant
        self._offset = mean @ weights - constant * self.dual_coef_.sum(0)
        self.landmarks_ = self._map.landmarks
        names = np.array(domains) if domains else None
        self._record(self._map.kernel, gram, found, np.array(classes) if classes else None, names)
        self.n_samples_seen_ = self._sums.n_samples
        self.solver_info_ |= {
            "n_landmarks_asked": self._map.n_asked,
            "n_landmarks_used": self._map.n_features,
        }

    @property
    def _exact_name(self) -> str:
        """The class that sees all rows at once."""
        return type(self).__name__.removeprefix("Fast")

    @property
    def _label_epsilon(self) -> float:
        """Regularisation of the label kernels."""
        return float(getattr(self, "epsilon", 0.0))

    @property
    def _relative_shift(self) -> float:
        """Regularisation of the solution per row, as far as it is known before the rows are."""
        return float(getattr(self, "ridge", 0.0))

    @property
    def _support(self) -> Array:
        return self.landmarks_


def _kind(labels: Labels | None) -> str:
    if labels is None:
        return "nothing"
    if labels.values is not None:
        return f"continuous values ({labels.values.shape[1]} columns)"
    assert labels.names is not None
    return "strings" if labels.names.dtype.kind in "UO" else "labels"


def _group_codes(
    target: Labels | None, domain: Labels | None, n: int
) -> tuple[Array, list[tuple[Any, Any]]]:
    """Group of each row as an index, and the (class, domain) that each index stands for."""
    parts: list[tuple[Any, list[Any]]] = []
    for labels in (target, domain):
        if labels is None or labels.codes is None:
            parts.append((0, [None]))
        else:
            assert labels.names is not None
            parts.append((labels.codes, labels.names.tolist()))
    (class_codes, classes), (domain_codes, domains) = parts
    keys = [(c, d) for c in classes for d in domains]
    codes = class_codes * len(domains) + domain_codes
    return (np.zeros(n, dtype=np.intp) if isinstance(codes, int) else codes), keys
