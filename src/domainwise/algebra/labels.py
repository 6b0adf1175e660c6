"""Label factors: targets and domains as thin matrices (theory 6).

For a centred label kernel matrix K, the matrix ``P = K (K + N eps I)^-1`` has a thin factor F with
``P = F F'``. The factors of targets and of domains are expressed in one small **label space**: as
coordinates with respect to an orthonormal basis of the span of all label features. A Gram operator
*lifts* the few columns that it needs to vectors with one entry per sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import svd

from domainwise.algebra.kernels.functions import Kernel, resolve_gamma
from domainwise.base.arrays import Array, namespace, to_device_of, to_host
from domainwise.base.inputs import real_numbers

#: A label kernel K is factored until the trace of K - L L' is below this fraction of N epsilon.
CHOLESKY_TOLERANCE = 1e-7
#: The tolerance is divided by the weight of the label kernel in the objective, but at most by this.
LARGEST_WEIGHT = 1e6
#: Singular values below this fraction of the largest one are treated as rounding errors.
RANK_TOLERANCE = 1e-10
#: Maximum size of the factor of a label kernel, in bytes.
MAX_FACTOR_BYTES = 4 * 2**30


@dataclass(frozen=True)
class CellCounts:
    """Row counts and labels of cells, the (class, domain) groups that have rows."""

    counts: Array  #: number of rows in each group
    classes: Array | None  #: class code of each group; None without a target
    domains: Array | None  #: domain code of each group; None for a single domain


@dataclass(frozen=True)
class LabelSpace:
    """Centred label features of N samples, in s orthonormal coordinates.

    If rows have weights, N is their sum, and each row counts as often as its weight says.
    """

    n_samples: float
    target: Array | None = None  #: target features (s, q); None without a target
    #: Domain features (s, t), within classes when conditional; None for a single domain.
    domain: Array | None = None
    #: For domain labels, the centred indicators divided by the domain sizes.
    domain_means: Array | None = None
    #: Determines the signs of components: the last class, or the first column of the target.
    sign_direction: Array | None = None
    #: If all labels are categories, the groups whose scaled indicators are the basis vectors.
    cells: CellCounts | None = None

    @property
    def size(self) -> int:
        """Dimension s of the space."""
        arrays = (self.target, self.domain, self.sign_direction)
        return next((len(array) for array in arrays if array is not None), 0)


@dataclass(frozen=True)
class RowLabels:
    """A label space, and the map from its coordinates to vectors with one entry per row."""

    space: LabelSpace
    codes: Any = None  #: group of each row, if all labels are categories
    dense: Any = None  #: otherwise, an orthonormal basis (N, s) of the label space
    counts: Array | None = None  #: sizes of the groups in ``codes``
    #: Square roots of the row weights, by which vectors are scaled (theory 8.3); None without them.
    roots: Array | None = None

    def lift(self, coordinates: Array) -> Any:
        """Return the sample-space vectors (N, r) of coordinates (s, r)."""
        if self.codes is not None:
            assert self.counts is not None
            group_values = coordinates / np.sqrt(self.counts)[:, None]
            values = to_device_of(group_values, self.codes)[self.codes]
            return values if self.roots is None else values * to_device_of(self.roots, values)
        return self.dense @ to_device_of(coordinates, self.dense)


@dataclass(frozen=True)
class Feature:
    """Features of a target or a domain: codes for categories, otherwise a dense factor."""

    codes: Any = None  #: category of each row, 0 ... n_categories - 1
    n_categories: int = 0
    dense: Array | None = None  #: features of a continuous label, one row per sample

    def matrix(self) -> Array:
        """Return the uncentred features, one row per sample."""
        if self.dense is not None:
            return self.dense
        assert self.codes is not None
        return np.eye(self.n_categories)[to_host(self.codes)]


def label_rows(
    n_samples: int,
    target: Feature | None,
    domain: Feature | None,
    *,
    conditional: bool = False,
    target_values: Array | None = None,
    weights: Array | None = None,
) -> RowLabels:
    """Build the label space of N rows.

    With ``conditional``, domains are compared within each class. ``target_values``, for a
    continuous target, determine the signs of components. ``weights`` are positive numbers.
    """
    features = [feature for feature in (target, domain) if feature is not None]
    if not features:
        return unlabelled_rows(n_samples, weights)
    if any(feature.codes is None for feature in features):
        return _dense_labels(n_samples, target, domain, conditional, target_values, weights)
    # Categories only: one coordinate per (class, domain) group that occurs.
    n_domains = 1 if domain is None else domain.n_categories
    pair_codes: Any = 0 if target is None else target.codes * n_domains
    pair_codes = pair_codes if domain is None else pair_codes + domain.codes
    xp = namespace(pair_codes)
    unique_pairs, group_codes = xp.unique(pair_codes, return_inverse=True)
    row_weights = None if weights is None else to_device_of(weights, group_codes)
    group_sizes = to_host(xp.bincount(group_codes, row_weights)).astype(np.float64)
    group_pairs = to_host(unique_pairs)
    class_codes = None if target is None else group_pairs // n_domains
    domain_codes = None if domain is None else group_pairs % n_domains
    space = category_space(group_sizes, class_codes, domain_codes, conditional=conditional)
    return RowLabels(space, group_codes, counts=group_sizes, roots=_roots(weights))


def unlabelled_rows(n_samples: int, weights: Array | None = None) -> RowLabels:
    """Return the empty label space of N rows."""
    total = n_samples if weights is None else float(weights.sum())
    return RowLabels(LabelSpace(total), dense=np.zeros((n_samples, 0)), roots=_roots(weights))


def _roots(weights: Array | None) -> Array | None:
    return None if weights is None else np.sqrt(weights)[:, None]


def category_space(
    counts: Array, class_codes: Array | None, domain_codes: Array | None, *, conditional: bool
) -> LabelSpace:
    """Build the label space of (class, domain) groups from their sizes, which must be positive.

    Both arrays of codes have one entry per group; ``class_codes`` is None without a target, and
    ``domain_codes`` is None for a single domain.
    """
    n, root_counts = float(counts.sum()), np.sqrt(counts)[:, None]

    def centred_indicators(codes: Array) -> Array:
        indicators = np.eye(int(codes.max()) + 1)[codes]
        indicators = indicators[:, indicators.any(axis=0)]
        return np.asarray(root_counts * (indicators - counts @ indicators / n))

    target = None if class_codes is None else centred_indicators(class_codes)
    domain = domain_means = None
    if domain_codes is not None:
        domain = centred_indicators(domain_codes)
        domain_sizes = np.bincount(domain_codes, weights=counts)
        domain_means = domain / domain_sizes[domain_sizes > 0]
        if conditional:
            assert class_codes is not None
            # Group indicators minus their class mean, 1_g - (n_g / n_c) 1_c.
            same_class = (class_codes[:, None] == class_codes[None, :]).astype(np.float64)
            class_sizes = same_class @ counts
            domain = root_counts * (np.eye(len(counts)) - same_class * (counts / class_sizes))
    return LabelSpace(
        n_samples=n,
        target=target,
        domain=domain,
        domain_means=domain_means,
        sign_direction=None if target is None else target[:, -1],
        cells=CellCounts(counts, class_codes, domain_codes),
    )


def _dense_labels(
    n_samples: int,
    target: Feature | None,
    domain: Feature | None,
    conditional: bool,
    target_values: Array | None,
    weights: Array | None,
) -> RowLabels:
    """Build the label space of a continuous target or domain by a QR decomposition."""
    blocks: dict[str, Array] = {}
    if target is not None:
        blocks["target"] = target.matrix()
    if domain is not None:
        blocks["domain"] = domain.matrix()
        if conditional:
            assert target is not None
            blocks["domain"] = np.hstack(
                centre_by_class(blocks["domain"], to_host(target.codes), weights)
            )
    if target_values is not None:
        blocks["sign"] = target_values[:, :1]
    features = np.hstack(list(blocks.values()))
    features = features - np.average(features, axis=0, weights=weights)
    roots = _roots(weights)
    features = features if roots is None else features * roots
    basis, triangle = np.linalg.qr(features)
    block_ends = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
    coordinates = dict(zip(blocks, np.split(triangle, block_ends, axis=1), strict=True))
    sign_block = coordinates.get("sign", coordinates.get("target"))
    sign_direction = None if sign_block is None else sign_block[:, -1]
    domain_means = None
    if domain is not None and domain.codes is not None and not conditional:
        domain_means = coordinates["domain"] / np.bincount(to_host(domain.codes), weights)
    target_and_domain = coordinates.get("target"), coordinates.get("domain")
    total = n_samples if weights is None else float(weights.sum())
    space = LabelSpace(total, *target_and_domain, domain_means, sign_direction)
    return RowLabels(space, dense=basis, roots=roots)


def centre_by_class(
    features: Array, class_codes: Array, weights: Array | None = None
) -> list[Array]:
    """Return, for each class, the features minus the class mean, with zeros for other classes."""
    blocks, row_weights = [], np.ones(len(features)) if weights is None else weights
    for mask in (class_codes == code for code in np.unique(class_codes)):
        mean = np.average(features[mask], axis=0, weights=row_weights[mask])
        blocks.append(np.where(mask[:, None], features - mean, 0.0))
    return blocks


def label_factor(features: Array, n_samples: float, epsilon: float) -> Array:
    """Return F with ``F F' = K (K + N eps I)^-1`` for ``K = features features'``.

    The columns of F are orthogonal; zero columns are dropped.

    >>> import numpy as np
    >>> label_factor(np.array([[3.0, 0.0], [0.0, 0.0]]), n_samples=9, epsilon=1.0).round(3)
    array([[0.707],
           [0.   ]])
    """
    if not features.size:
        return np.zeros((features.shape[0], 0))
    U, s, _ = svd(features, full_matrices=False)
    is_relevant = s > RANK_TOLERANCE * max(float(s[0]), np.finfo(float).tiny)
    # Directions that are negligible compared with N eps do not contribute to P.
    is_relevant &= s**2 > np.finfo(float).eps * 1e-4 * n_samples * epsilon
    U, s = U[:, is_relevant], s[is_relevant]
    return np.asarray(U * (s / np.sqrt(s**2 + n_samples * epsilon)))


def joint_basis(*factors: Array) -> Array:
    """Return an orthonormal basis of the span of all factors, which have orthogonal columns."""
    directions = np.hstack([F / np.linalg.norm(F, axis=0) for F in factors])
    if not directions.shape[1]:
        return directions
    U, s, _ = svd(directions, full_matrices=False)
    return np.asarray(U[:, s > RANK_TOLERANCE * s[0]])


def max_residual_trace(epsilon: float, weight: float = 1.0) -> float:
    """Return the largest residual trace per row that is allowed in a label kernel's factor."""
    return CHOLESKY_TOLERANCE * epsilon / min(max(weight, 1.0), LARGEST_WEIGHT)


def continuous_feature(
    labels: Array,
    kernel: str | Callable[..., Array],
    gamma: float | str,
    tolerance: float,
    name: str,
    weights: Array | None = None,
) -> Feature:
    """Return a thin factor L of a continuous label kernel: ``K = L L'`` up to ``tolerance``.

    ``name`` describes the kernel in error messages.
    """
    if kernel == "linear":
        return Feature(dense=labels - labels.mean(axis=0))
    if kernel == "rbf" and not np.ptp(labels, axis=0).any():
        return Feature(dense=np.zeros((len(labels), 1)))
    column_of, diagonal = kernel_columns(label_kernel(labels, kernel, gamma, weights), labels)
    factor, _ = pivoted_cholesky(column_of, diagonal, tolerance, name, weights=weights)
    return Feature(dense=factor)


def label_kernel(
    labels: Array, kernel: Any, gamma: float | str, weights: Array | None = None
) -> Kernel:
    """Return the kernel of continuous labels, ``"rbf"`` or a callable, with gamma as a number."""
    if kernel != "rbf":
        return Kernel("callable", function=kernel)
    return Kernel("rbf", gamma=resolve_gamma(gamma, "rbf", labels, weights)).centred_on(labels)


def kernel_columns(kernel: Kernel, labels: Array) -> tuple[Callable[[int], Array], Array]:
    """Return a function that computes column j of a label kernel matrix, and the diagonal."""
    rows = kernel.prepare(labels)

    def column_of(j: int) -> Array:
        return np.asarray(kernel.block(rows.left, rows.right[j : j + 1])[:, 0] + kernel.constant)

    if kernel.name == "rbf":
        return column_of, np.ones(len(labels))
    starts = range(0, len(labels), 64)
    diagonals = [np.diagonal(kernel.block(labels[i : i + 64], labels[i : i + 64])) for i in starts]
    return column_of, np.concatenate(diagonals)


def pivoted_cholesky(
    column_of: Callable[[int], Array],
    diagonal: Array,
    tolerance: float,
    name: str = "the kernel",
    *,
    rounding: float = 0.0,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return a thin factor L (N, q) of K up to a residual trace of ``tolerance``, and the q pivots.

    ``column_of(j)`` returns column j of the positive semi-definite matrix K. The iteration also
    stops when all diagonal entries of ``K - L L'`` are at most ``rounding``, or at most the
    rounding error of the diagonal of K. In the trace, entries are multiplied by ``weights``.
    """
    n, trace_weights = len(diagonal), np.ones(len(diagonal)) if weights is None else weights
    residuals = np.array(diagonal, dtype=np.float64)  # the diagonal of K - L L'
    scale = float(residuals.max(initial=0.0))
    if not np.isfinite(scale) or residuals.min(initial=0.0) < 0:
        raise ValueError(
            f"{name} has a negative or non-finite diagonal entry, so it is not "
            "positive semi-definite. Use another kernel."
        )
    min_residual = max(n * np.finfo(float).eps * scale, rounding)
    max_columns = max(1, MAX_FACTOR_BYTES // (8 * n))
    factor = np.empty((n, min(n, 32)), order="F")
    pivots: list[int] = []
    while (
        len(pivots) < n and trace_weights @ residuals > tolerance and residuals.max() > min_residual
    ):
        rank = len(pivots)
        if rank == max_columns:
            raise ValueError(
                f"the factor of {name} needs more than {rank} columns for {n} rows, because the "
                "kernel is too narrow. Use a smaller gamma or a larger epsilon."
            )
        if rank == factor.shape[1]:
            larger_factor = np.empty((n, min(n, max_columns, 2 * rank)), order="F")
            larger_factor[:, :rank] = factor
            factor = larger_factor
        pivot = int(residuals.argmax())
        residual_column = np.asarray(column_of(pivot), dtype=np.float64)
        residual_column = residual_column - factor[:, :rank] @ factor[pivot, :rank]
        is_valid = residual_column[pivot] > 0 and bool(np.isfinite(residual_column).all())
        if is_valid:
            factor[:, rank] = residual_column / np.sqrt(residual_column[pivot])
            residuals -= factor[:, rank] ** 2
        if not is_valid or residuals.min() < -1e-6 * scale:
            raise ValueError(f"{name} is not positive semi-definite. Use another kernel.")
        np.maximum(residuals, 0.0, out=residuals)
        residuals[pivot] = 0.0
        pivots.append(pivot)
    return np.ascontiguousarray(factor[:, : len(pivots)]), np.array(pivots, dtype=np.intp)


def kernel_factor(K: Array, *, tolerance: float = 1e-10) -> Array:
    """Factor a precomputed label kernel matrix.

    Estimators do not accept precomputed kernels for ``y`` or ``sample_domain``: pipelines and
    splitters would select rows but not columns. Pass the factor as labels, with a linear kernel.

    Parameters
    ----------
    K : array-like of shape (N, N)
        A symmetric positive semi-definite matrix.
    tolerance : float, default=1e-10
        Maximum residual trace, relative to the trace of K.

    Returns
    -------
    L : ndarray of shape (N, q)
        The factor: ``L @ L.T`` equals K up to the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.algebra.labels import kernel_factor
    >>> K = np.array([[4.0, 2.0], [2.0, 1.0]])
    >>> kernel_factor(K)
    array([[2.],
           [1.]])
    """
    K = real_numbers(K, "K")
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"K must be a square matrix; got shape {K.shape}. Pass one value for each pair of rows."
        )
    if not np.isfinite(K).all():
        raise ValueError("K contains NaN or infinite values. Pass finite values.")
    if not np.allclose(K, K.T, rtol=1e-8, atol=1e-10 * max(1.0, np.abs(K).max(initial=0.0))):
        raise ValueError(
            "K must be symmetric. Pass (K + K.T) / 2 if K is asymmetric only because of rounding."
        )
    trace = float(np.trace(K))
    return pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), tolerance * trace, name="K")[0]
