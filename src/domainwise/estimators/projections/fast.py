"""FastDCM and the other Fast estimators: the projections on Nystrom features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import product
from typing import Any, Self

import numpy as np

from domainwise.algebra.backends import Backend, backend_of
from domainwise.algebra.backends.base import LabelRules, check_kinds, kinds_of_labels
from domainwise.algebra.gram.nystrom import LabelMap, NystromGram, NystromMap
from domainwise.algebra.gram.sums import CellSums, NystromSums, finalize
from domainwise.algebra.kernels.approximations import (
    landmark_count,
)
from domainwise.algebra.kernels.functions import Kernel, check_finite
from domainwise.algebra.methods import scatter
from domainwise.algebra.methods.components import standardize
from domainwise.base import inputs, signatures
from domainwise.base.arrays import Array, ArrayLike, MaybeArray, is_dask, to_host
from domainwise.base.inputs import Labels
from domainwise.base.signatures import DOMAINS_KEY, LabelLandmarkArguments, LandmarkArguments
from domainwise.estimators.projections import exact, projection

#: With less regularization per row than this, all computations use float64.
MIN_FLOAT32_SHIFT = 1e-4


class OnePass:
    """An estimator that is fitted from sums over rows, in one pass over batches or partitions."""

    target_kernel: Any
    domain_kernel: Any
    _uses_target: bool
    _uses_domain: bool
    _kinds: tuple[str, str]  #: what y and sample_domain contain, such as strings
    #: Checks targets and domains.
    _check_labels: Callable[..., tuple[Any, Labels]]
    #: Chooses the landmarks and everything else that must not depend on later rows. ``n_rows`` is
    #: the total number of rows if only some of them are passed.
    _begin: Callable[..., None]
    #: Computes sums over rows whose labels have been checked.
    _sum_rows: Callable[..., NystromSums | CellSums]
    _use_sums: Callable[[Any], None]  #: replaces the sums, and all that was computed from them
    _validate_params: Callable[[], None]
    _sums: Any
    _maps: list[NystromMap]  #: feature maps
    #: Properties of the first batch that later batches must share.
    _first_batch: dict[str, str]
    #: Arguments that sums depend on; None for all.
    _sum_arguments: tuple[str, ...] | None = None

    def begin_pass(self, X: Array, y: MaybeArray, sample_domain: MaybeArray, n_rows: int) -> None:
        """Choose landmarks from X (a sample of the ``n_rows`` rows), and record label types."""
        vars(self).pop("_sums", None)  # from an earlier fit
        backend = Backend()
        target, domain = self._check_labels(backend, y, sample_domain, X, min_classes=1)
        self._begin(backend, X, target, domain, n_rows=n_rows)

    def sum_partition(
        self, X: Array, y: MaybeArray, sample_domain: MaybeArray
    ) -> NystromSums | CellSums:
        """Compute sums over the rows of one partition; call :meth:`begin_pass` first."""
        target, domain = self.label_rules.check(y, sample_domain, len(X))
        self._check_kinds(target, domain)
        return self._sum_rows(Backend(), X, target, domain)

    def partial_fit(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Add a batch of rows.

        Landmarks, gamma and the landmarks of continuous labels are chosen from the first batch,
        unless they are passed as arguments. New classes and domains may occur in any batch. The
        result is the same as that of :meth:`fit` on all rows with the same landmarks and gamma. A
        projection is available once two classes have been seen, if y contains classes. A search
        runs at the first prediction after a batch.

        {as_in_fit}
        self : object
        """
        if is_dask(X):
            raise TypeError(
                "partial_fit does not accept Dask collections. Pass rows in memory, or call fit."
            )
        self._check_sums_suffice()
        backend, is_first_batch = backend_of(X), "_sums" not in vars(self)
        previous_state = dict(vars(self))
        try:
            rows, y = self._check_rows(backend, X, y, reset=is_first_batch)
            weights, rows, y, domains = inputs.rows_with_weight(
                sample_weight, rows, y, sample_domain
            )
            target, domain = self._check_labels(backend, y, domains, rows, min_classes=1)
            if is_first_batch:
                self._first_batch = signatures.batch_record(self, sample_domain)
                self._begin(backend, rows, target, domain, weights=weights)
            signatures.check_batch(self, self._first_batch, sample_domain)
            self._check_kinds(target, domain)
            sums = self._sum_rows(backend, rows, target, domain, weights)
            self._use_sums(sums if is_first_batch else self._sums.merge(sums))
        except BaseException:
            self.__dict__ = previous_state  # a batch that cannot be added changes nothing
            raise
        backend.finish_fit(self, rows)
        return self

    def _check_sums_suffice(self) -> None:
        """Check the arguments; no argument may require rows of earlier batches."""
        self._validate_params()

    def _check_rows(self, backend: Backend, X: Any, y: Any, *, reset: bool = True) -> Any:
        """Check X, and return it with y."""
        return backend.check_rows(self, X, reset=reset), y

    def merge(self, other: Self) -> Self:
        """Add the sums of another estimator, as if :meth:`partial_fit` had been called on its rows.

        Estimators at several sites can be fitted together without exchanging rows. Both need the
        same ``landmarks`` (an array), or ``feature_map="fourier"`` and the same integer
        ``random_state``; numbers as ``gamma``, or ``gammas``; and, for a continuous target, the
        same ``target_landmarks`` and a number as ``target_gamma``, if the estimator has them. The
        result is in host memory, even if rows were on a device.

        Parameters
        ----------
        other : estimator
            An estimator of the same class, after :meth:`partial_fit`. It is not changed.

        Returns
        -------
        self : object
        """
        if type(other) is not type(self):
            names = type(other).__name__, type(self).__name__
            raise TypeError(f"a {names[0]} cannot be merged into a {names[1]}. Pass a {names[1]}.")
        for role, model in (("this estimator", self), ("the other estimator", other)):
            if "_sums" not in vars(model):
                raise ValueError(f"{role} contains no sums. Call partial_fit before merge.")
        own_facts, other_facts = self._facts_about_sums(), other._facts_about_sums()
        for name, own_value in own_facts.items():
            if own_value != other_facts.get(name, "missing"):
                raise ValueError(
                    f"the estimators cannot be merged: {name} is {own_value} in this estimator, "
                    f"but {other_facts.get(name, 'missing')} in the other one. Both need rows with "
                    "the same columns, and the same arguments; gamma, landmarks and "
                    "target_landmarks must not be chosen from the rows. Pass numbers and arrays."
                )
        previous_state = dict(vars(self))
        try:
            self._use_sums(self._sums.mapped(to_host).merge(other._sums.mapped(to_host)))
        except BaseException:
            self.__dict__ = previous_state
            raise
        return self

    def _facts_about_sums(self) -> dict[str, str]:
        """Describe, by name, everything that sums which can be merged have in common."""
        facts = {
            "the number of columns": signatures.describe(self.n_features_in_),  # type: ignore[attr-defined]
            "the list of column names": signatures.describe(
                getattr(self, "feature_names_in_", None)
            ),
            DOMAINS_KEY: self._first_batch.get(DOMAINS_KEY, "missing"),
            "the content of y": self._kinds[0],
            "the content of sample_domain": self._kinds[1],
        }
        names, kernels = self._sum_arguments, [nystrom.kernel for nystrom in self._maps]
        facts |= {n: text for n, text in self._first_batch.items() if names is None or n in names}
        resolved: dict[str, Any] = {
            "gamma": [k.gamma for k in kernels if k.name not in ("linear", "cosine")],
            'the mean of the first batch, which kernel="linear" subtracts,': [
                k.origin for k in kernels if isinstance(k, Kernel) and k.name == "linear"
            ],
        }
        for i, nystrom in enumerate(self._maps, 1):
            points = "frequencies" if nystrom.triangle is None else "landmarks"
            name = f"the array of {points} for kernel {i}"
            dtype = str(nystrom.landmarks.dtype)
            resolved |= {f"the dtype of {name}": dtype, name: nystrom.landmarks}
        for role in ("target", "domain"):
            label_map = vars(self).get(f"_{role}_map")
            if label_map is not None:
                gamma = None if label_map.kernel is None else label_map.kernel.gamma
                resolved |= {f"{role}_gamma": gamma, f"{role}_landmarks": label_map.points}
        return facts | {name: signatures.describe(value) for name, value in resolved.items()}

    @property
    def label_rules(self) -> LabelRules:
        """Rules that the labels of later rows must follow."""
        return LabelRules(
            self._kinds,
            self.target_kernel if self._uses_target else None,
            self.domain_kernel if self._uses_domain else None,
        )

    def _check_kinds(self, target: Labels | None, domain: Labels) -> None:
        one_domain = Labels(codes=np.zeros(0), names=np.array([0]))
        check_kinds(self._kinds, target, domain if self._uses_domain else one_domain)


class LandmarkProjection(projection.Projection, OnePass):
    """A projection in the span of landmarks, fitted from sums over rows."""

    n_landmarks: Any
    landmarks: Any
    feature_map: str
    target_landmarks: Any = None
    _sums: NystromSums
    _map: NystromMap

    #: Whether the method needs the second moment of the features, the most expensive of the sums.
    _needs_moments = True

    def _fit(self, backend: Backend, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        if (partitions := backend.partitions(X, y, sample_domain, weights)) is not None:
            self.fit_partitions(partitions)
            return
        rows = backend.check_rows(self, X, ensure_min_samples=2)
        weights, rows, y, sample_domain = inputs.rows_with_weight(weights, rows, y, sample_domain)
        inputs.check_n_components(self.n_components, len(rows))
        target, domain = self._check_labels(backend, y, sample_domain, rows)
        self._warn_about_domains(sample_domain, domain, len(rows))
        self._begin(backend, rows, target, domain, weights=weights)
        sums = self._sum_rows(backend, rows, target, domain, weights)
        self._first_batch = signatures.batch_record(self, sample_domain)
        self._use_sums(sums)

    def fit_partitions(self, partitions: Any) -> Self:
        """Fit to the partitions of a Dask collection, in one pass."""
        from domainwise.algebra.backends.dask import sum_partitions

        self._validate_params()
        sums = sum_partitions(self, partitions)
        self._first_batch = signatures.batch_record(
            self, partitions.domains or partitions.layout.domain
        )
        self._use_sums(sums)
        self.solver_info_["n_partitions"] = len(partitions)
        return self

    def _use_sums(self, sums: NystromSums) -> None:
        self._sums = sums
        self._finish()

    @property
    def _maps(self) -> list[NystromMap]:  # type: ignore[override]
        return [self._map]

    @abstractmethod
    def _finish(self) -> None:
        """Turn the sums into a fitted model."""

    def _begin(
        self,
        backend: Backend,
        rows: Any,
        target: Any,
        domain: Labels,
        n_rows: int | None = None,
        weights: Array | None = None,
    ) -> None:
        if self.kernel == "precomputed":
            raise ValueError(
                f"{type(self).__name__} chooses landmarks from rows, which are not available with "
                f'kernel="precomputed". Pass rows and the name of a kernel, or use '
                f"{self._exact_name}."
            )
        if not self._uses_domain:
            domain = Labels(codes=np.zeros(len(rows), dtype=np.intp), names=np.array([0]))
        if self.conditional:
            refuse_descriptors(domain, self._exact_name)
        kernel = projection.resolved_kernel(self, backend, rows, weights)
        is_fourier = self.feature_map == "fourier"
        if is_fourier:
            m = self._landmark_count(n_rows or len(rows), among_rows=False)
            self._map = projection.fourier_map(self, self.kernel, kernel.gamma, rows.shape[1], m)
        else:
            landmarks = projection.resolve_landmarks(
                self, backend, rows, domain, kernel, n_rows or len(rows)
            )
            if self._relative_shift < MIN_FLOAT32_SHIFT:
                landmarks = landmarks.astype(np.float64)
            self._map = NystromMap.from_landmarks(kernel, landmarks, ridge=self._relative_shift)
        n_features = self._map.n_features
        if self.n_components is not None and self.n_components > n_features:
            raise ValueError(
                f"n_components={self.n_components} is more than the number of "
                f"{'Fourier features' if is_fourier else 'linearly independent landmarks'}, "
                f"{n_features}. Increase n_landmarks, or decrease n_components."
            )
        self._target_map = self._label_map(target, "target", self.target_landmarks, weights)
        self._domain_map = self._label_map(domain, "domain", None, weights)
        self._kinds = kinds_of_labels(target, domain)

    def _landmark_count(self, n_rows: int, **options: bool) -> int:
        return landmark_count(self.n_landmarks, n_rows, **options)

    def _label_map(
        self, labels: Labels | None, role: str, points: Any, weights: Array | None
    ) -> LabelMap | None:
        if labels is None or labels.values is None:
            return None
        options: Any = {"name": f"the {role} kernel", "points": points, "weights": weights}
        return LabelMap.choose(labels.values, *self._label_kernel(role), **options)

    def _sum_rows(
        self,
        backend: Backend,
        rows: Any,
        target: Labels | None,
        domain: Labels,
        weights: Array | None = None,
    ) -> NystromSums:
        used_domain = domain if self._uses_domain else None
        return backend.sum_rows(
            self._map,
            rows,
            *_assign_groups(target, used_domain, len(rows)),
            lambda batch: self._label_columns(target, domain, batch),
            weights=weights,
            moments=self._needs_moments,
        )

    def _label_columns(self, target: Labels | None, domain: Labels, batch: slice) -> Array | None:
        column_blocks = []
        if self._target_map is not None:
            assert target is not None
            target_values = target.values[batch]
            column_blocks += [self._target_map.features(target_values), target_values[:, :1]]
        if self._domain_map is not None:
            column_blocks.append(self._domain_map.features(domain.values[batch]))
        return np.hstack(column_blocks) if column_blocks else None

    def _finalize(self) -> tuple[NystromGram, list[Any], list[Any], Array]:
        """Return the Gram operator, classes, domains and feature means of the rows seen so far."""
        for moment in (self._sums.mean, self._sums.second):
            check_finite(moment, self._map.landmarks.dtype)
        inputs.refuse_masked_targets(*map(list, zip(*self._sums.groups, strict=True)))
        sums = self._sums.of_features(self._map)
        gram, classes, domains = self._gram_of(sums)
        return gram, classes, domains, sums.mean[: gram.size]

    def _gram_of(self, sums: NystromSums) -> tuple[NystromGram, list[Any], list[Any]]:
        """Return the Gram operator of the rows in sums of features, and classes and domains."""
        maps: Any = {"target": self._target_map, "domain": self._domain_map}
        return finalize(sums, self._map, conditional=self.conditional, **maps)

    def _record_map(
        self, weights: Array, mean: Array, classes: list[Any], domains: list[Any]
    ) -> None:
        """Store the projection with these feature weights, and the names of classes and domains."""
        kernel = self._map.kernel
        class_array = inputs.label_array(classes, "y") if classes else None
        domain_array = inputs.label_array(domains, "sample_domain") if domains else None
        self._record(kernel, class_array, domain_array)
        for name in ("landmarks_", "frequencies_"):
            self.__dict__.pop(name, None)  # from an earlier fit
        is_fourier = self._map.triangle is None
        setattr(self, "frequencies_" if is_fourier else "landmarks_", self._map.landmarks)
        self.dual_coef_ = self._map.dual(weights)
        self._offset = mean @ weights - kernel.constant * self.dual_coef_.sum(axis=0)
        self.n_samples_seen_ = self._sums.n_rows
        self.solver_info_ |= {
            "n_landmarks_asked": self._map.n_asked,
            "n_landmarks_used": self._map.n_features,
        }

    @property
    def _exact_name(self) -> str:
        """Name of the exact estimator, which needs all rows in memory."""
        return type(self).__name__.removeprefix("Fast")

    @property
    @abstractmethod
    def _relative_shift(self) -> float:
        """Regularization per row; infinity means that float32 is always precise enough."""


class FastProjection(LandmarkProjection, projection.MethodProjection):
    """A projection computed by a method with the Gram operator of Nystrom features."""

    #: Default for methods without this argument.
    ridge: float = 0.0

    @property
    def _relative_shift(self) -> float:
        return float(self.ridge)

    def _finish(self) -> None:
        """Compute the projection, unless only one row or one class has been seen."""
        gram, classes, domains, mean = self._finalize()
        if len(classes) == 1 or gram.n_rows == 1:
            return
        solution = self._solve(gram, gram.labels, self._target_map is not None)
        solution = standardize(gram, solution, gram.labels, warn=self.n_components is not None)
        self._record_solution(gram, solution)
        self._record_map(gram.weights(solution.dual), mean, classes, domains)


def refuse_descriptors(domain: Labels, exact_name: str) -> None:
    """Reject continuous domain descriptors: comparing them within classes needs all rows."""
    if domain.values is not None:
        raise ValueError(
            "conditional=True with continuous domain descriptors needs all rows in memory. Use "
            f"{exact_name}, or pass domain labels."
        )


def _assign_groups(
    target: Labels | None, domain: Labels | None, n: int
) -> tuple[Array, list[tuple[Any, Any]]]:
    """Return the group code of each row, and the (class, domain) pair of each group."""
    (class_codes, classes), (domain_codes, domains) = (
        (0, [None])
        if labels is None or labels.codes is None
        else (labels.codes, labels.names.tolist())
        for labels in (target, domain)
    )
    group_codes = class_codes * len(domains) + domain_codes
    group_codes = np.zeros(n, dtype=np.intp) if isinstance(group_codes, int) else group_codes
    return group_codes, list(product(classes, domains))


__all__ = ["FastCOIR", "FastDCM", "FastDICA", "FastKPCA", "FastMDA", "FastMIDA", "FastSCA"]


@signatures.documented_arguments
class FastDCM(LabelLandmarkArguments, exact.DCMMethod, FastProjection):
    r"""Domain-based covariance minimization on Nystrom features, in one pass over the rows.

    DCM with the Gram matrix replaced by ``k(X, landmarks) k(landmarks, landmarks)^-1 k(landmarks,
    X)``. Time is linear in the number of rows, and memory does not depend on it. If every row is a
    landmark, the result equals that of :class:`DCM`.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {domain} {domain_weight} {landmarks}
    {seed} {target_landmarks}

    {fast_sections} {dcm_reference}

    {fast_example}
    accuracy on unseen domains: 0.70
    """


@signatures.documented_arguments
class FastCOIR(LabelLandmarkArguments, exact.COIRMethod, FastProjection):
    r"""Covariance operator inverse regression on Nystrom features, in one pass over the rows.

    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {landmarks} {seed} {target_landmarks}

    {fast_sections} {coir_reference}

    {fast_example}
    accuracy on unseen domains: 0.71
    """


@signatures.documented_arguments
class FastDICA(LabelLandmarkArguments, exact.DICAMethod, FastProjection):
    r"""Domain-invariant component analysis on Nystrom features, in one pass over the rows.

    Without ``y``, this is unsupervised DICA.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon}
    lam : float, default=1e-3
        The regularization :math:`\lambda` in :class:`DICA`, not multiplied by the number of rows.
    {landmarks} {seed} {target_landmarks}

    {fast_sections} {dica_reference}

    {fast_example}
    accuracy on unseen domains: 0.67
    """


@signatures.documented_arguments
class FastKPCA(LandmarkArguments, exact.KPCAMethod, FastProjection):
    r"""Kernel principal component analysis on Nystrom features, in one pass over the rows.

    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components} {kernel} {landmarks} {seed}

    {fast_sections} {kpca_reference}

    {fast_example}
    accuracy on unseen domains: 0.70
    """

    _relative_shift = float("inf")  # float32 suffices for leading eigenvectors


@signatures.documented_arguments
class FastSCA(LandmarkArguments, exact.ScatterMethod, FastProjection):
    r"""Scatter component analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections} {sca_reference}

    {fast_example}
    accuracy on unseen domains: 0.69
    """

    _method = staticmethod(scatter.sca)


@signatures.documented_arguments
class FastMDA(LandmarkArguments, exact.ScatterMethod, FastProjection):
    r"""Multidomain discriminant analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections} {mda_reference}

    {fast_example}
    accuracy on unseen domains: 0.73
    """

    _method = staticmethod(scatter.mda)


@signatures.documented_arguments
class FastMIDA(LandmarkArguments, exact.MIDAMethod, FastProjection):
    r"""Maximum independence domain adaptation on Nystrom features, in one pass over the rows.

    ``y`` is accepted and ignored.

    Parameters
    ----------
    {ten_components} {kernel} {domain} {independence} {landmarks} {seed}

    {fast_sections} {mida_reference}

    {fast_example}
    accuracy on unseen domains: 0.69
    """

    _relative_shift = float("inf")  # float32 suffices for leading eigenvectors
