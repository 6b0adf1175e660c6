"""Label spaces from sums over rows that were seen once (theory 9.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from domainwise.arrays import Array
from domainwise.gram.nystrom import NystromGram, NystromMap, NystromSums
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import (
    LabelSpace,
    category_space,
    kernel_columns,
    label_kernel,
    pivoted_cholesky,
)

#: Spacing of a grid of target landmarks in bandwidths of the RBF kernel, and its size at most.
GRID_STEP, MAX_GRID = 0.5, 5000
#: Labels of the first batch among which landmarks are looked for: evenly spaced ones beyond.
MAX_CANDIDATES = 10_000


@dataclass(frozen=True)
class LabelMap:
    """Features of continuous labels that are fixed before the rows are seen."""

    kernel: Kernel | None  #: None for the linear kernel, whose features are the values themselves
    points: Array  #: landmarks among the values, (q, k)
    triangle: Array  #: lower Cholesky factor of their kernel matrix

    @classmethod
    def choose(
        cls,
        values: Array,
        kernel: str | Callable[..., Array],
        gamma: float | str,
        tolerance: float,
        name: str,
        points: Any = None,
    ) -> LabelMap:
        """Take landmarks from given points, or from the values (n, k) of the first batch.

        ``gamma`` is resolved on the values, ``tolerance`` is the residual trace, per row, at which
        there are enough landmarks, and ``name`` is for errors. A tuple (low, high) of points stands
        for a grid over that range, ``GRID_STEP`` bandwidths of the RBF kernel apart.
        """
        if kernel == "linear":
            return cls(None, values[:0], np.zeros((0, 0)))
        constant = not np.ptp(values, axis=0).any()
        resolved = label_kernel(values, kernel, 1.0 if constant and gamma == "median" else gamma)
        if points is not None:
            candidates = _given_points(points, values, resolved)
        else:
            few = np.linspace(0, len(values) - 1, min(len(values), MAX_CANDIDATES)).astype(int)
            candidates = values[few]
        column, diagonal = kernel_columns(resolved, candidates)
        rounding = len(candidates) * np.finfo(float).eps * float(diagonal.max())
        factor, pivots = pivoted_cholesky(
            column, diagonal, max(tolerance * len(candidates), rounding), name, rounding=rounding
        )
        return cls(resolved, candidates[pivots], np.tril(factor[pivots]))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.points.shape[1 if self.kernel is None else 0])

    def features(self, values: Array) -> Array:
        """Return the features of labels, one row each."""
        if self.kernel is None:
            return values
        C = self.kernel.matrix(values, self.points)
        return np.asarray(solve_triangular(self.triangle, C.T, lower=True).T)


def _given_points(points: Any, values: Array, kernel: Kernel) -> Array:
    """Landmarks of a label kernel as the caller gave them."""
    if isinstance(points, tuple):
        if len(points) != 2 or not points[0] < points[1] or values.shape[1] != 1:
            raise ValueError(
                f"target_landmarks={points!r}: a tuple is the range (low, high) of one target"
            )
        if kernel.name != "rbf":
            raise ValueError("target_landmarks as a range needs an RBF target kernel")
        step = GRID_STEP / np.sqrt(2.0 * kernel.gamma)
        n_points = int(np.ceil((points[1] - points[0]) / step)) + 1
        if n_points > MAX_GRID:
            raise ValueError(
                f"target_landmarks={points!r} needs {n_points} points at this target_gamma, more "
                f"than {MAX_GRID}: give a smaller target_gamma or the points themselves"
            )
        return np.linspace(points[0], points[1], n_points)[:, None]
    given = np.asarray(points, dtype=np.float64)
    given = given[:, None] if given.ndim == 1 else given
    if given.ndim != 2 or given.shape[1] != values.shape[1] or not len(given):
        raise ValueError(
            f"target_landmarks must have shape (q, {values.shape[1]}), got {given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError("target_landmarks contain NaN or infinite values")
    return given


def finalize(
    sums: NystromSums,
    nystrom: NystromMap,
    *,
    target: LabelMap | None = None,
    domain: LabelMap | None = None,
    conditional: bool = False,
) -> tuple[NystromGram, list[Any], list[Any]]:
    """Turn sums over rows into a Gram operator, and list the classes and domains that occurred.

    The sums are of features first, then of those of a continuous target, of the target itself, and
    of the features of continuous domain descriptors; ``target`` and ``domain`` are their maps.
    """
    m = nystrom.n_features
    keys: list[Any] = sorted(sums.groups, key=repr)
    counts = np.array([sums.groups[key][0] for key in keys], dtype=np.float64)
    totals = np.array([sums.groups[key][1] for key in keys])
    classes = sorted({key[0] for key in keys if key[0] is not None})
    domains = sorted({key[1] for key in keys if key[1] is not None})
    class_of = _codes([key[0] for key in keys], classes) if classes else None
    domain_of = _codes([key[1] for key in keys], domains) if len(domains) > 1 else None
    groups = category_space(counts, class_of, domain_of, conditional=conditional)
    # Orthonormal group directions 1_g / sqrt(n_g) times the centred features.
    centred = (totals - counts[:, None] * sums.mean) / np.sqrt(counts)[:, None]
    if target is None and domain is None:
        space, cross = groups, centred[: groups.size, :m]
    else:
        space, cross = _joint_space(sums, groups, centred, np.sqrt(counts), m, target, domain)
    # Without landmarks signs are settled on the weights of the columns.
    landmark_features = np.eye(m) if nystrom.triangle is None else nystrom.triangle - sums.mean[:m]
    gram = NystromGram(
        sums.second[:m, :m], cross, space, landmark_features, nystrom.landmarks.dtype
    )
    return gram, classes, domains


def _joint_space(
    sums: NystromSums,
    groups: LabelSpace,
    centred: Array,
    root: Array,
    m: int,
    target: LabelMap | None,
    domain: LabelMap | None,
) -> tuple[LabelSpace, Array]:
    """Label space of group directions together with continuous label features.

    ``root`` has the roots of the groups' sizes.
    """
    n_groups, continuous = len(centred), sums.second[m:, m:]
    # Group directions are orthonormal but for the constant, which centring removes.
    inner_groups = np.eye(n_groups) - np.outer(root, root) / sums.n_samples
    gram = np.block([[inner_groups, centred[:, m:]], [centred[:, m:].T, continuous]])
    # Features of any scale count alike; the constant group direction must stay a zero.
    variance = np.diagonal(continuous)
    floor = np.finfo(float).eps * float(variance.max(initial=np.finfo(float).tiny))
    scale = np.concatenate([np.ones(n_groups), np.sqrt(np.maximum(variance, floor))])
    d, U = np.linalg.eigh(gram / np.outer(scale, scale))
    keep = d > len(d) * np.finfo(float).eps * d[-1]
    d, U = d[keep], U[:, keep]
    coordinates = (np.sqrt(d)[:, None] * U.T) * scale  # of each group direction and feature
    basis = U / np.sqrt(d) / scale[:, None]
    products = np.vstack([centred[:, :m], sums.second[m:, :m]])
    cross = basis.T @ products
    of_groups, of_features = coordinates[:, :n_groups], coordinates[:, n_groups:]
    n_target = 0 if target is None else target.n_features
    # Behind the features of a target stands the target itself.
    ends = [n_target, n_target + (target is not None)]
    of_target, of_values, of_domain = np.split(of_features, ends, axis=1)

    def from_groups(part: Array | None) -> Array | None:
        return None if part is None else of_groups @ part

    space = LabelSpace(
        sums.n_samples,
        from_groups(groups.target) if target is None else of_target,
        from_groups(groups.domain) if domain is None else of_domain,
        from_groups(groups.domain_means) if domain is None else None,
        from_groups(groups.sign) if target is None else of_values[:, 0],
    )
    return space, cross


def _codes(labels: list[Any], names: list[Any]) -> Array:
    index = {name: i for i, name in enumerate(names)}
    return np.array([index[label] for label in labels])
