"""Kernel functions, evaluated so that centring loses no digits (theory 2).

Every Gram matrix in this package is centred, which removes any constant from the kernel.
:class:`Kernel` therefore evaluates ``k(x, x') - constant``: the RBF kernel as
``expm1(-gamma d^2)``, about a common origin, so that a tiny ``gamma`` or a large offset of the
features costs no precision, in float32 either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import comb
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist

from domainwise.arrays import Array

KERNEL_NAMES = ("rbf", "linear", "poly", "laplacian", "cosine", "precomputed")
#: Rows used by the median rule: all of them up to here, evenly spaced ones beyond.
MEDIAN_ROWS = 2000
#: An exponent of the RBF kernel may be off by this much before distances are taken from
#: differences instead of products, which are quicker.
EXPONENT_ERROR = {"float32": 1e-3, "float64": 1e-9}
#: Rows whose squared distances, and their inverses, numbers can hold.
SMALLEST_ROW, LARGEST_ROW = 1e-153, 1e153
#: Values of a polynomial kernel up to which sums of their squares and products are safe.
LARGEST_POWER = {"float32": 1e17, "float64": 1e100}


@dataclass(frozen=True)
class Kernel:
    """A kernel with every parameter resolved.

    Attributes
    ----------
    name : str
        One of ``KERNEL_NAMES`` or ``"callable"``.
    gamma : float
        Scale of ``rbf``, ``laplacian`` and ``poly``; the other kernels do not use it.
    degree, coef0 : float
        Of the polynomial kernel ``(gamma x'y + coef0)^degree``.
    origin : ndarray of shape (n_features,) or None
        Point subtracted from all rows where the (centred) kernel does not change by it.
    by_differences : bool
        Take RBF distances from differences: rows lie so far out, in units of the kernel's width,
        that rounding of their products would swamp short distances.
    function, params
        A user's kernel ``function(X, Y, **params)`` and its arguments.
    """

    name: str
    gamma: float = 1.0
    degree: float = 3
    coef0: float = 1.0
    origin: Array | None = None
    by_differences: bool = False
    function: Callable[..., Array] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constant(self) -> float:
        """What :meth:`block` leaves out of the kernel."""
        if self.name in ("rbf", "laplacian"):
            return 1.0
        if self.name == "poly" and float(self.degree).is_integer():
            return float(self.coef0**self.degree)
        return 0.0

    @property
    def is_product(self) -> bool:
        """Whether :meth:`block` is the plain product of prepared rows, so that K is thin."""
        return self.name in ("linear", "cosine")

    def centred_on(self, X: Array) -> Kernel:
        """Return this kernel with the mean of X as its origin, where that gains digits."""
        if self.name not in ("rbf", "linear"):
            return self
        origin = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        if self.name != "rbf":
            return replace(self, origin=origin)
        with np.errstate(over="ignore"):
            farthest = 0.0
            for start in range(0, len(X), 4096):
                rows = X[start : start + 4096] - origin
                farthest = max(farthest, float(np.einsum("ij,ij->i", rows, rows).max()))
            reach = self.gamma * farthest
        if products_suffice(reach, np.finfo(X.dtype).eps):
            return replace(self, origin=origin, by_differences=False)
        return replace(self, origin=None, by_differences=True)

    def prepare(self, X: Array) -> Prepared:
        """Bring rows into the form that :meth:`block` multiplies."""
        if self.origin is not None:
            X = X - self.origin
        if self.name == "rbf" and not self.by_differences:
            # -gamma d^2 = u.v - |u|^2/2 - |v|^2/2 for u = sqrt(2 gamma) x: two more columns turn
            # the whole exponent into one matrix product.
            U = X * X.dtype.type(np.sqrt(2.0 * self.gamma))
            half = -0.5 * np.einsum("ij,ij->i", U, U)[:, None]
            one = np.ones_like(half)
            return Prepared(np.hstack([U, half, one]), np.hstack([U, one, half]))
        if self.name == "poly":
            # Its values differ by orders of magnitude, of which float32 loses the small ones.
            X = X.astype(np.float64, copy=False)
            return Prepared(X * self.gamma, X)
        if self.name == "cosine":
            X = _divided(X, np.abs(X).max(axis=1, initial=0.0))  # squares stay within range
            X = _divided(X, np.sqrt(np.einsum("ij,ij->i", X, X)))
        return Prepared(X, X)

    def block(self, left: Array, right: Array, out: Array | None = None) -> Array:
        """Evaluate ``k - constant`` between the left form of some rows and the right of others."""
        if self.name == "callable":
            return self._call(left, right)
        if self.name == "laplacian" or self.by_differences:
            K = cdist(left, right, "cityblock" if self.name == "laplacian" else "sqeuclidean")
            K *= -self.gamma
            return np.expm1(K, out=K).astype(left.dtype, copy=False)
        if out is not None and out.dtype != left.dtype:
            out = None
        K = np.matmul(left, right.T, out=out)
        if self.name == "rbf":
            # Rounding must not make a row closer to another than to itself.
            np.minimum(K, 0, out=K)
            np.expm1(K, out=K)
        elif self.name == "poly":
            K = self._polynomial(K)
        return K

    def matrix(self, X: Array, Y: Array | None = None) -> Array:
        """Evaluate the kernel itself, constant included, between the rows of X and Y.

        >>> import numpy as np
        >>> Kernel("rbf", gamma=0.5).matrix(np.array([[0.0], [2.0]])).round(3)
        array([[1.   , 0.135],
               [0.135, 1.   ]])
        """
        left = self.prepare(X)
        right = left if Y is None else self.prepare(Y)
        K = self.block(left.left, right.right)
        if Y is None:
            if self.name in ("rbf", "laplacian"):
                np.fill_diagonal(K, 0.0)
            K = (K + K.T) / 2
        return K + K.dtype.type(self.constant) if self.constant else K

    def _polynomial(self, T: Array) -> Array:
        """(T + coef0)^degree - coef0^degree, by Horner's rule so that small T keep their digits."""
        if not float(self.degree).is_integer():
            base = T + T.dtype.type(self.coef0)
            if base.min(initial=0.0) < 0:
                raise ValueError(
                    f"degree={self.degree} has no value where gamma x'y + coef0 is negative, as "
                    "for some rows here: choose a whole degree, or features that are not negative"
                )
            return base ** T.dtype.type(self.degree)
        d, c = int(self.degree), float(self.coef0)
        total = np.ones_like(T)
        for power in range(d - 1, 0, -1):
            total *= T
            total += T.dtype.type(comb(d, power) * c ** (d - power))
        return total * T if d > 0 else np.zeros_like(T)

    def _call(self, X: Array, Y: Array) -> Array:
        assert self.function is not None
        K = np.asarray(self.function(X, Y, **self.params))
        if K.shape != (len(X), len(Y)):
            raise ValueError(
                f"the callable kernel returned shape {K.shape} for {len(X)} and {len(Y)} rows; "
                f"expected ({len(X)}, {len(Y)})"
            )
        if not np.isfinite(K).all():
            raise ValueError("the callable kernel returned NaN or infinite values")
        return K.astype(X.dtype, copy=False)


def _divided(X: Array, sizes: Array) -> Array:
    """Rows over their sizes; rows of zeros stay."""
    return np.asarray(X / np.where(sizes > 0, sizes, 1).astype(X.dtype)[:, None])


@dataclass(frozen=True)
class Prepared:
    """Rows ready for :meth:`Kernel.block`, as its left and as its right argument."""

    left: Array
    right: Array


def check_finite(values: Array, dtype: Any) -> Array:
    """Refuse values of a kernel that overflowed in a precision."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"the kernel overflows {np.dtype(dtype).name} at the scale of these features: scale X, "
            "or choose a smaller gamma or degree"
        )
    return values


def products_suffice(reach: float, eps: Any) -> bool:
    """Whether products tell exponents of up to ``reach`` well enough in a precision of eps."""
    precision = "float64" if eps < 1e-10 else "float32"
    return reach * float(eps) <= EXPONENT_ERROR[precision]


def make_kernel(
    kernel: str | Callable[..., Array],
    X: Array,
    *,
    gamma: float | str = "median",
    degree: float = 3,
    coef0: float = 1,
    kernel_params: Mapping[str, Any] | None = None,
) -> Kernel:
    """Resolve an estimator's kernel arguments on the rows X it is fitted to."""
    params = dict(kernel_params or {})
    if callable(kernel):
        return Kernel("callable", function=kernel, params=params)
    if params:
        raise ValueError(
            f"kernel_params={kernel_params!r} is for a callable kernel only; "
            f"kernel={kernel!r} takes gamma, degree and coef0"
        )
    resolved = resolve_gamma(gamma, kernel, X)
    found = Kernel(kernel, gamma=resolved, degree=degree, coef0=float(coef0)).centred_on(X)
    if kernel == "poly":
        _check_powers(found, X)
    return found


def _check_powers(kernel: Kernel, X: Array) -> None:
    """Refuse a polynomial whose values leave no room for the sums and squares made of them."""
    limit = LARGEST_POWER[np.dtype(X.dtype).name]
    with np.errstate(over="ignore"):
        farthest = np.square(np.float64(np.abs(X).max(initial=0.0))) * X.shape[1]
        exponent = kernel.degree * np.log10(kernel.gamma * farthest + abs(kernel.coef0) + 1.0)
    if exponent > np.log10(limit):
        raise ValueError(
            f"the polynomial kernel overflows: its values reach 1e{exponent:.0f}, and {X.dtype} "
            f"data allow {limit:.0e}; scale X, or choose a smaller gamma or degree"
        )


def resolve_gamma(gamma: float | str, kernel: str, X: Array) -> float:
    """Turn ``"median"``, ``"scale"`` or a number into the kernel's scale (theory 11.2).

    ``"median"`` takes the off-diagonal non-zero distances of all rows up to ``MEDIAN_ROWS``,
    beyond that of as many evenly spaced rows, so it is not random:
    ``1 / (2 median^2)`` for RBF, ``1 / median`` of the L1 distances for the Laplacian kernel,
    ``1 / n_features`` for the others. ``"scale"`` is the rule of :class:`sklearn.svm.SVC`.

    >>> import numpy as np
    >>> resolve_gamma("median", "rbf", np.array([[0.0], [2.0]]))
    0.125
    """
    if not isinstance(gamma, str):
        return float(gamma)
    if kernel == "precomputed":
        return 1.0
    n, p = X.shape
    if gamma == "scale":
        variance = float(X.var(dtype=np.float64))
        return 1.0 / (p * variance) if variance > 0 else 1.0
    if kernel not in ("rbf", "laplacian"):
        return 1.0 / p
    rows = X if n <= MEDIAN_ROWS else X[np.linspace(0, n - 1, MEDIAN_ROWS).astype(int)]
    metric = "euclidean" if kernel == "rbf" else "cityblock"
    rows = np.asarray(rows, dtype=np.float64)
    farthest = float(np.abs(rows).max(initial=0.0))
    if kernel == "rbf" and rows.any() and not SMALLEST_ROW < farthest < LARGEST_ROW:
        raise ValueError(
            f"gamma={gamma!r} cannot be found for features of size {farthest:.0e}, whose squared "
            "distances leave the range of numbers: scale X, or give gamma as a number"
        )
    distances = pdist(rows, metric)
    zeros = len(distances) - int(np.count_nonzero(distances))
    if zeros == len(distances):
        raise ValueError(
            f"gamma={gamma!r} needs rows that differ: all {len(rows)} rows looked at are the same; "
            "give gamma as a number"
        )
    # The median of the positive ones, which stand behind the zeros.
    low, high = (zeros + len(distances) - 1) // 2, (zeros + len(distances)) // 2
    distances.partition((low, high))
    median = float(distances[low] + distances[high]) / 2
    return 1.0 / (2.0 * median**2) if kernel == "rbf" else 1.0 / median
