"""Ridge machines with the invariant kernel, and their errors, from moments alone (theory 13).

With features Phi of landmarks and a domain factor F, ``sum_i s_i |y_i - f(x_i)|^2 + alpha |f|_w^2``
with ``|f|_w^2 = |f|^2 + w f'FF'f`` is least squares with the penalty ``alpha (I + w DD')``,
``D = Phi'F``: kernel ridge regression with the invariant kernel, without its matrix. Everything
here is a function of the rows' number, mean and centred second moment, by cell, and holds for
NumPy arrays and for tensors alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import placed, shifted_solve, side_by_side, to_host
from domainwise.backends import backend_of
from domainwise.backends.devices import moved, portable, restored
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.sums import NystromSums, added
from domainwise.kernels.fourier import Basis

#: Directions of domains below this share of the largest are rounding.
RANK_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Columns:
    """What the columns of a cell's moments are: features, descriptors of domains, targets.

    ``codes`` are the targets of each class, where cells hold rows of one class: these have no
    columns of their own.
    """

    n_features: int
    n_descriptors: int = 0
    codes: Mapping[Any, Array] | None = None


@dataclass(frozen=True)
class Weighted:
    """Number of rows, sum of weights, weighted mean, and weighted second moment about it."""

    n_samples: int
    total: float
    mean: Any
    second: Any


def weighted(
    cells: Mapping[Any, NystromSums], weights: Mapping[Any, float], columns: Columns
) -> Weighted:
    """Join cells of which each row weighs the same, targets of classes included."""
    masses = {key: weights[key] * cell.n_samples for key, cell in cells.items()}
    total = sum(masses.values())
    any_mean = next(iter(cells.values())).mean
    means = {}
    for key, cell in cells.items():
        own = [] if columns.codes is None else [placed(columns.codes[key], any_mean)]
        means[key] = side_by_side([cell.mean, *own])
    mean = sum(masses[key] * means[key] for key in cells) / total
    width = len(any_mean)
    second: Any = mean[:, None] * mean * 0.0
    for key, cell in cells.items():
        second[:width, :width] += weights[key] * cell.second
        if len(cells) > 1:
            away = means[key] - mean
            second += away[:, None] * (masses[key] * away)
    n_samples = sum(cell.n_samples for cell in cells.values())
    return Weighted(n_samples, float(total), mean, second)


@dataclass(frozen=True)
class RidgeProblem:
    """What the solutions for all penalties share."""

    second: Any  #: weighted, centred second moment of the M features
    cross: Any  #: that of features with targets, of shape (M, c)
    mean: Any  #: weighted mean of features
    target: Any  #: and of targets
    #: ``Phi'F`` of each domain factor, by whether domains are compared inside classes
    directions: dict[bool, Any]
    #: Their images under the second moment, where solutions are in terms of rows
    images: dict[bool, Any] | None = None

    @classmethod
    def of_moments(
        cls, moments: Weighted, columns: Columns, directions: dict[bool, Any]
    ) -> RidgeProblem:
        """Take features and targets apart."""
        m, first = columns.n_features, columns.n_features + columns.n_descriptors
        second, mean = moments.second, moments.mean
        return cls(second[:m, :m], second[:m, first:], mean[:m], mean[first:], directions)

    def solutions(self, kinds: Sequence[tuple[float, bool]], alphas: Sequence[float]) -> Any:
        """Solve for each kind of penalty (weight, conditional) and, inside it, each alpha.

        ``(S + alpha I + alpha w DD')^-1 C`` by Woodbury's formula: all kinds share the solutions
        for one alpha, with C and with D. They stand side by side.

        In terms of rows, ``S = AA'`` and ``D = A'F``, it is ``A'`` times the same with F for D and
        with ``F'S`` for ``D'``.
        """
        c, images = self.cross.shape[1], self.images or self.directions
        names = [name for name in self.directions if any(w and k == name for w, k in kinds)]
        right = side_by_side([self.cross, *(self.directions[name] for name in names)])
        found: dict[tuple[int, int], Any] = {}
        for a, alpha in enumerate(alphas):
            solved = shifted_solve(self.second, alpha, right)
            plain, first, by_name = solved[:, :c], c, {}
            for name in names:
                width = self.directions[name].shape[1]
                by_name[name] = solved[:, first : first + width]
                first += width
            for k, (weight, name) in enumerate(kinds):
                found[k, a] = plain
                if weight and by_name[name].shape[1]:
                    D, Z = images[name], by_name[name]
                    inner = D.T @ Z
                    found[k, a] = plain - Z @ shifted_solve(
                        (inner + inner.T) / 2, 1.0 / (alpha * weight), D.T @ plain
                    )
        order = [(k, a) for k in range(len(kinds)) for a in range(len(alphas))]
        return side_by_side([found[point] for point in order])

    def squared_errors(self, coefficients: Any, moments: Weighted, columns: Columns) -> Any:
        """Weighted sums of squared errors on other rows, from their moments about their own mean.

        Of many solutions, ``coefficients`` of shape (M, points * c): errors of shape (points, c).
        """
        other = self.of_moments(moments, columns, {})
        c, first = len(self.target), columns.n_features + columns.n_descriptors
        spread = moments.second[first:, first:].diagonal()
        B = coefficients.reshape(len(coefficients), -1, c)
        shape = B.shape[1:]
        explained = (coefficients * (other.second @ coefficients)).sum(0).reshape(shape)
        shared = (B * other.cross[:, None, :]).sum(0)
        offset = (other.mean - self.mean) @ coefficients
        bias = (other.target - self.target) - offset.reshape(shape)
        return (spread - 2.0 * shared + explained + moments.total * bias**2).clip(min=0.0)


def span(parts: Iterable[tuple[Any, Array]], shift: float, m: int, like: Any) -> Any:
    """Return ``Phi'F`` for ``FF' = GG' (GG' + shift I)^-1`` of centred label features G.

    ``parts`` are ``Phi'G`` and ``G'G`` of label features that are orthogonal to those of others.
    """
    found = [placed(np.zeros((m, 0)), like)]
    for cross, gram in parts:
        values, V = np.linalg.eigh(gram)
        keep = values > RANK_TOLERANCE * max(float(values[-1]), np.finfo(float).tiny)
        found.append(cross @ placed(V[:, keep] / np.sqrt(values[keep] + shift), like))
    return side_by_side(found)


def group_parts(
    groups: Mapping[Any, tuple[int, Any]], m: int, conditional: bool
) -> Iterator[tuple[Any, Array]]:
    """Label features of domains from counts and sums of (class, domain) groups, for :func:`span`.

    ``conditional`` compares domains inside each class.
    """
    by_class: dict[Any, list[Any]] = {}
    for (label, domain), (count, total) in groups.items():
        by_class.setdefault(label if conditional else None, []).append((domain, (count, total[:m])))
    for parts in by_class.values():
        inside = added(parts)
        if len(inside) < 2:
            continue
        counts = np.array([n for n, _ in inside.values()], dtype=np.float64)
        mean = sum(total for _, total in inside.values()) / counts.sum()
        cross = side_by_side([(total - n * mean)[:, None] for n, total in inside.values()])
        yield cross, np.diag(counts) - np.outer(counts, counts / counts.sum())


def descriptor_parts(cells: Iterable[NystromSums], columns: Columns) -> Iterator[tuple[Any, Array]]:
    """Label features of continuous descriptors, inside each of some cells, for :func:`span`."""
    m, end = columns.n_features, columns.n_features + columns.n_descriptors
    for cell in cells:
        yield cell.second[:m, m:end], to_host(cell.second[m:end, m:end])


_ARRAYS = ("landmarks", "dual", "intercept")


@dataclass(frozen=True)
class Expansion:
    """A function ``sum_j k(x, landmark_j) dual_j + intercept`` with c values."""

    kernel: Basis
    landmarks: Any
    dual: Any
    intercept: Any

    @classmethod
    def of_features(cls, features: NystromMap, coefficients: Any, intercept: Any) -> Expansion:
        """Write a function of the features in terms of the kernel, where its coefficients are."""
        dual = features.dual(to_host(coefficients))
        constant = features.kernel.constant * dual.sum(axis=0)
        dual, constant = placed(dual, coefficients), placed(constant, coefficients)
        landmarks = placed(features.landmarks, coefficients)
        return cls(features.kernel, landmarks, dual, intercept + constant)

    def __call__(self, X: Any) -> Any:
        """Values of rows, of shape (n, c)."""
        backend = backend_of(X)
        if not hasattr(X, "cpu"):
            X = X.astype(self.landmarks.dtype, copy=False)
        return backend.cross_product(self.kernel, X, self.landmarks, self.dual) + self.intercept

    def to(self, device: Any) -> Expansion:
        """Return the function on a torch device, or in memory for ``"numpy"``."""
        return replace(self, **{name: moved(getattr(self, name), device) for name in _ARRAYS})

    def __getstate__(self) -> dict[str, Any]:
        return portable(vars(self), _ARRAYS)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(restored(state))
