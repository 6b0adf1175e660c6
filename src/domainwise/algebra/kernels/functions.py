"""Kernel functions and their checks, evaluated so that centring loses no precision (theory 2).

Every Gram matrix in this package is centred, which removes any constant from the kernel.
:class:`Kernel` therefore evaluates ``k(x, x') - constant``. For the RBF kernel, this is
``expm1(-gamma d^2)``, where the distances d are computed from rows minus a common origin. The
result is precise for a tiny ``gamma`` and for features with a large offset, even in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.lib import introspect

from domainwise.base import arrays
from domainwise.base.arrays import Array
from domainwise.base.messages import NotAKernelWarning, warn_caller

#: The median rule uses all rows, or this number of evenly spaced rows if there are more.
MEDIAN_ROWS = 2000
#: RBF distances are computed from inner products (faster than from differences of rows) if the
#: error of the exponent ``-gamma d^2`` is at most this.
EXPONENT_ERROR = {"float32": 1e-3, "float64": 1e-9}
#: Squared distances and their inverses fit into float64 if the largest absolute value is between
#: these numbers.
MIN_MAGNITUDE, MAX_MAGNITUDE = 1e-153, 1e153
#: Limits for polynomial and linear kernel values, so that sums of their products do not overflow.
MAX_POLYNOMIAL = {"float32": 1e17, "float64": 1e100}
MAX_LINEAR = {"float32": 1e38, "float64": 1e154}
#: Exponentials of MIN_CHUNKED or more values are computed in cache-sized chunks of about CHUNK.
CHUNK, MIN_CHUNKED = 2**15, 2**12


@cache
def compiled_functions() -> Any:
    """Return the module of compiled functions, or None if Numba is not installed."""
    try:
        from domainwise.algebra.kernels import compiled
    except ImportError:
        return None
    except Exception as error:  # for example, because of incompatible versions
        message = f"Numba cannot be imported ({error}), so slower NumPy functions are used."
        warnings.warn(f"{message} Reinstall Numba.", RuntimeWarning, stacklevel=2)
        return None
    return compiled


@cache
def _is_vectorized() -> bool:
    """Return whether NumPy's ``expm1`` uses vector instructions for float32 numbers."""
    targets = introspect.opt_func_info(func_name="^expm1$").get("expm1", {})
    return not targets.get("ff", {"current": "baseline"})["current"].startswith("baseline")


def expm1(X: Any, *, compiled: bool = False) -> Any:
    """Replace the numbers x <= 0 in X with ``e^x - 1``, precise even for small x, and return X.

    If NumPy's expm1 does not use vector instructions for float32 numbers, these are computed as
    ``2 h / (1 - h)`` with ``h = tanh(x / 2)``, which takes a third of the time.
    """
    if arrays.is_tensor(X):
        return X.expm1_()
    if compiled and X.flags.c_contiguous and compiled_functions() is not None:
        compiled_functions().expm1(X.reshape(-1))
    elif X.size < MIN_CHUNKED or X.dtype != np.float32 or _is_vectorized():
        np.expm1(X, out=X)
    else:
        for chunk in np.array_split(X, -(-X.size // CHUNK)):
            chunk *= 0.5
            np.tanh(chunk, out=chunk)
            chunk *= 2.0 / (1.0 - chunk)
    return X


@dataclass(frozen=True)
class Kernel:
    """A kernel function with known parameters: gamma is a number, not the name of a rule."""

    name: str  #: one of ``KERNEL_NAMES`` or ``"callable"``
    #: Scale of ``rbf``, ``laplacian`` and ``poly``; the other kernels do not use it.
    gamma: float = 1.0
    degree: float = 3  #: exponent in the polynomial kernel ``(gamma x'y + coef0)^degree``
    coef0: float = 1.0
    #: Point subtracted from all rows, for kernels whose centred matrix does not depend on it.
    origin: Array | None = None
    by_differences: bool = False  #: whether RBF distances are computed from differences
    function: Callable[..., Array] | None = None  #: a user's kernel ``function(X, Y, **params)``
    params: Mapping[str, Any] = field(default_factory=dict)
    symmetrised: bool = False  #: average ``function(X, Y)`` and the transpose of ``function(Y, X)``
    sound: bool = True  #: False for a function or matrix known not to be positive semi-definite

    @property
    def constant(self) -> float:
        """The constant that :meth:`block` subtracts from kernel values."""
        if self.name in ("rbf", "laplacian"):
            return 1.0
        if self.name == "poly" and float(self.degree).is_integer():
            return float(self.coef0**self.degree)
        return 0.0

    @property
    def is_product(self) -> bool:
        """Whether :meth:`block` only multiplies rows, so that K is a product of thin matrices."""
        return self.name in ("linear", "cosine")

    def centred_on(self, X: Any) -> Kernel:
        """Return this kernel with the mean of X as its origin, if that makes it more precise.

        An RBF kernel whose exponents would be imprecise is evaluated ``by_differences`` instead.
        """
        if self.name not in ("rbf", "linear"):
            return self
        origin = arrays.cast(X.mean(0, dtype=arrays.namespace(X).float64), X.dtype)
        host_origin, batch_size = arrays.to_host(origin), max(1, 2**22 // X.shape[1])
        if self.name == "rbf":
            starts = range(0, len(X), batch_size)
            with np.errstate(over="ignore"):
                squares = [
                    arrays.squared_norms(X[i : i + batch_size] - origin).max() for i in starts
                ]
            eps = float(np.finfo(host_origin.dtype).eps)
            exponent_error = self.gamma * max(map(float, squares)) * eps
            if not exponent_error <= EXPONENT_ERROR[arrays.precision_name(host_origin)]:
                return replace(self, origin=None, by_differences=True)
        return replace(self, origin=host_origin, by_differences=False)

    def subtract_origin(self, X: Any) -> Any:
        """Return rows minus the origin of the kernel."""
        return X if self.origin is None else X - arrays.as_type_of(self.origin, X)

    def prepare(self, X: Any) -> Prepared:
        """Convert rows to the left and right arguments of :meth:`block`."""
        xp, X = arrays.namespace(X), self.subtract_origin(X)
        if self.name == "rbf" and not self.by_differences:
            # -gamma d^2 = u.v - |u|^2/2 - |v|^2/2 for u = sqrt(2 gamma) x: with two more columns,
            # the whole exponent is one matrix product.
            U = X * sqrt(2.0 * self.gamma)
            norm_terms = -0.5 * arrays.squared_norms(U)[:, None]
            ones = xp.ones_like(norm_terms)
            return Prepared(xp.hstack([U, norm_terms, ones]), xp.hstack([U, ones, norm_terms]))
        if self.name == "poly":
            # Kernel values differ by orders of magnitude, and small ones are imprecise in float32.
            # Tensors keep their dtype, because some devices are slow in float64.
            X = X if arrays.is_tensor(X) else arrays.cast(X, np.float64)
            return Prepared(X * self.gamma, X)
        if self.name == "cosine":
            X = _divide_rows(X, xp.amax(xp.abs(X), 1))  # so that squares do not overflow
            X = _divide_rows(X, xp.sqrt(arrays.squared_norms(X)))
        return Prepared(X, X)

    def block(self, left: Any, right: Any, out: Any = None, *, compiled: bool = False) -> Any:
        """Evaluate ``k - constant`` between prepared rows (see :meth:`prepare`).

        ``compiled=True`` uses compiled exponentials, which are faster for a large matrix.
        """
        if self.name == "callable":
            return self._call(left, right)
        xp = arrays.namespace(left)
        if self.name == "laplacian" or self.by_differences:
            distances = arrays.cross_distances(left, right, l1=self.name == "laplacian")
            distances *= -self.gamma
            return arrays.cast(expm1(distances, compiled=compiled), left.dtype)
        if out is not None and out.dtype != left.dtype:
            out = None
        K = xp.matmul(left, right.T, out=out)
        if self.name == "rbf":
            # Rounding must not make an exponent positive.
            xp.clip(K, None, 0.0, out=K)
            expm1(K, compiled=compiled)
        elif self.name == "poly":
            K = self._polynomial(K)
        return K

    def matrix(self, X: Any, Y: Any = None) -> Any:
        """Evaluate the kernel, including the constant, between the rows of X and Y (default: X).

        >>> import numpy as np
        >>> Kernel("rbf", gamma=0.5).matrix(np.array([[0.0], [2.0]])).round(3)
        array([[1.   , 0.135],
               [0.135, 1.   ]])
        """
        prepared_X = self.prepare(X)
        prepared_Y = prepared_X if Y is None else self.prepare(Y)
        K = self.block(prepared_X.left, prepared_Y.right)
        if Y is None:
            if self.name in ("rbf", "laplacian"):
                K.reshape(-1)[:: len(K) + 1] = 0.0  # the diagonal, without rounding errors
            K = (K + K.T) / 2
        return K + self.constant if self.constant else K

    def _polynomial(self, T: Any) -> Any:
        """Return (T + coef0)^degree - coef0^degree by Horner's rule, precise for small T."""
        xp, c = arrays.namespace(T), float(self.coef0)
        if not float(self.degree).is_integer():
            base = T + c
            if bool((base < 0).any()):
                raise ValueError(
                    f"degree={self.degree} must be an integer, because gamma x'y + coef0 is "
                    "negative for some pairs of rows. Choose an integer degree, or pass features "
                    "and a coef0 that are not negative."
                )
            return base ** float(self.degree)
        d = int(self.degree)
        total = xp.ones_like(T)
        for power in range(d - 1, 0, -1):
            total *= T
            total += comb(d, power) * c ** (d - power)
        return total * T if d > 0 else xp.zeros_like(T)

    def _call(self, X: Any, Y: Any) -> Any:
        assert self.function is not None
        xp = arrays.namespace(X)
        K = self.function(X, Y, **self.params)
        K = xp.as_tensor(K).detach() if arrays.is_tensor(X) else np.asarray(K)
        if self.symmetrised:
            K = (K + replace(self, symmetrised=False)._call(Y, X).T) / 2
        if tuple(K.shape) != (len(X), len(Y)):
            raise ValueError(
                f"the callable kernel returned shape {tuple(K.shape)} for {len(X)} and {len(Y)} "
                f"rows. Return shape ({len(X)}, {len(Y)}), one value for each pair of rows."
            )
        if not arrays.is_tensor(X) and K.dtype.kind not in "biuf":
            raise ValueError(f"the callable kernel returned {K.dtype} values. Return real numbers.")
        if not bool(xp.isfinite(K).all()):
            raise ValueError(
                "the callable kernel returned NaN or infinite values. Return finite values for all "
                "rows of X, or scale X."
            )
        return arrays.cast(K, X.dtype)


def _divide_rows(X: Any, norms: Any) -> Any:
    """Divide rows by their norms; rows of zeros are unchanged."""
    return X / arrays.namespace(X).where(norms > 0, norms, 1.0)[:, None]


@dataclass(frozen=True)
class Prepared:
    """Rows converted to the left and to the right argument of :meth:`Kernel.block`."""

    left: Any
    right: Any


def check_finite(values: Any, dtype: Any) -> Any:
    """Return kernel values unchanged; raise ValueError if they overflowed ``dtype``."""
    if not bool(arrays.namespace(values).isfinite(values).all()):
        raise ValueError(
            f"the kernel overflows {np.dtype(dtype).name} for feature values this large. Scale X, "
            "or choose a smaller gamma or degree."
        )
    return values


def make_kernel(
    kernel: str | Callable[..., Array],
    X: Any,
    *,
    gamma: float | str = "median",
    degree: float = 3,
    coef0: float = 1,
    kernel_params: Mapping[str, Any] | None = None,
    weights: Array | None = None,
) -> Kernel:
    """Return the kernel of an estimator, with its parameters computed from the training rows X."""
    params = dict(kernel_params or {})
    if callable(kernel):
        return Kernel("callable", function=kernel, params=params)
    if params:
        raise ValueError(
            f"kernel_params={kernel_params!r} needs a callable kernel; got kernel={kernel!r}. Pass "
            "gamma, degree and coef0 instead."
        )
    gamma = resolve_gamma(gamma, kernel, X, weights)
    resolved_kernel = Kernel(kernel, gamma=gamma, degree=degree, coef0=float(coef0)).centred_on(X)
    if kernel not in ("poly", "linear"):
        return resolved_kernel
    # Sums and squares of kernel values must not overflow.
    is_poly = kernel == "poly"
    dtype_name = arrays.precision_name(X)
    limit = (MAX_POLYNOMIAL if is_poly else MAX_LINEAR)[dtype_name]
    with np.errstate(over="ignore"):
        max_product = np.square(np.float64(abs(X).max())) * X.shape[1]
        max_base = gamma * max_product + abs(resolved_kernel.coef0) if is_poly else max_product
        max_log10 = (degree if is_poly else 1) * np.log10(max_base + 1.0)
    if max_log10 > np.log10(limit):
        raise ValueError(
            f"the {'polynomial' if is_poly else 'linear'} kernel overflows {dtype_name}: "
            f"its values reach 1e{max_log10:.0f}, and the limit is {limit:.0e}. Scale X"
            f"{', or choose a smaller gamma or degree' * is_poly}."
        )
    return resolved_kernel


def resolve_gamma(gamma: float | str, kernel: str, X: Any, weights: Array | None = None) -> float:
    """Return gamma as a number, given ``"median"``, ``"scale"`` or a number (theory 11.2).

    With the median m of the non-zero distances between rows (L1 distances for the Laplacian
    kernel), ``"median"`` is ``1 / (2 m^2)`` for RBF and ``1 / m`` for the Laplacian kernel. At most
    ``MEDIAN_ROWS`` evenly spaced rows are used. ``"median"`` is ``1 / n_features`` for the other
    kernels. ``"scale"`` is the rule of :class:`sklearn.svm.SVC`. ``weights`` are those of rows.

    >>> import numpy as np
    >>> resolve_gamma("median", "rbf", np.array([[0.0], [2.0]]))
    0.125
    """
    if not isinstance(gamma, str):
        return float(gamma)
    if kernel == "precomputed":
        return 1.0
    (n, p), xp = X.shape, arrays.namespace(X)
    if gamma == "scale":
        values = arrays.cast(X, xp.float64)
        if weights is None:
            variance = float(xp.var(values, correction=0))
        else:
            values = arrays.to_host(values)
            mean = np.average(values.mean(axis=1), weights=weights)
            variance = np.average(((values - mean) ** 2).mean(axis=1), weights=weights)
        return 1.0 / (p * variance) if variance > 0 else 1.0
    if kernel not in ("rbf", "laplacian"):
        return 1.0 / p
    if n > MEDIAN_ROWS:
        indices = arrays.evenly_spaced(n, MEDIAN_ROWS)
        X, weights = X[indices], None if weights is None else weights[indices]
    rows = arrays.cast(X, xp.float64)
    max_abs = float(abs(rows).max())
    if kernel == "rbf" and max_abs > 0 and not MIN_MAGNITUDE < max_abs < MAX_MAGNITUDE:
        raise ValueError(
            f"gamma={gamma!r} cannot be computed: the largest absolute value is {max_abs:.0e}, "
            "so squared distances overflow or underflow. Rescale the values, or pass gamma as a "
            "number."
        )
    median = arrays.median_distance(rows, l1=kernel == "laplacian", weights=weights)
    if median is None:
        raise ValueError(
            f"gamma={gamma!r} cannot be computed: the {len(rows)} rows used for it are identical. "
            "Pass gamma as a number."
        )
    return 1.0 / (2.0 * median**2) if kernel == "rbf" else 1.0 / median


#: Precisions, fastest first: operands of products have 11, 22 and 24 significant bits.
PRECISIONS = ("tf32", "tf32x3", "ieee")

_precision_variable: ContextVar[str] = ContextVar("domainwise_precision", default="tf32x3")


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the precision of float32 products with kernel matrices on a CUDA device.

    This affects only fits and transforms of float32 tensors on a GPU inside the ``with`` block.
    Compensated summation is used with all three precisions.

    Parameters
    ----------
    name : {"tf32", "tf32x3", "ieee"}
        ``"tf32"`` rounds operands to 11 significant bits: it is the fastest, with relative errors
        of a few 1e-4. ``"tf32x3"``, the default, uses about 22 bits and three products on tensor
        cores instead of one. ``"ieee"`` multiplies in ordinary float32, without tensor cores.

    Examples
    --------
    >>> import domainwise
    >>> with domainwise.precision("tf32"):
    ...     pass  # DCM().fit(X_cuda, y, sample_domain)
    """
    if name not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {name!r}")
    token = _precision_variable.set(name)
    try:
        yield
    finally:
        _precision_variable.reset(token)


def current_precision() -> str:
    """Return the precision of the current context."""
    return _precision_variable.get()


#: Maximum numbers of evenly spaced rows that are used to check a matrix and a function.
MATRIX_ROWS, FUNCTION_ROWS = 1000, 200
#: Negative eigenvalues and asymmetries up to this share of the norm count as rounding errors.
TOLERANCES = {"float64": 1e-8, "float32": 1e-4}
#: Kernels that are positive semi-definite for all parameters, or that are checked elsewhere.
VALID_KERNELS = ("rbf", "laplacian", "linear", "cosine", "precomputed")


def check_precomputed(K: Any) -> bool:
    """Reject a training matrix that is not square, and warn if it is not a kernel.

    Return whether a sample of its rows and columns is a kernel matrix.
    """
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f'kernel="precomputed" requires a square matrix in fit; got shape {tuple(K.shape)}. '
            "Pass the kernel values of all pairs of training rows."
        )
    row_indices = arrays.evenly_spaced(len(K), MATRIX_ROWS)
    K_sample = arrays.to_host(K[row_indices][:, row_indices]).astype(np.float64)
    description = 'the matrix passed with kernel="precomputed"'
    return not _warn_if_not_kernel(K_sample, TOLERANCES[arrays.precision_name(K)], description)


def check_kernel(kernel: Kernel, rows: Any) -> Kernel:
    """Warn if a function is not a kernel, and symmetrize it if it is not symmetric."""
    if kernel.name in VALID_KERNELS or len(rows) < 2:
        return kernel
    sample_rows = rows[arrays.evenly_spaced(len(rows), FUNCTION_ROWS)]
    prepared_rows = kernel.prepare(sample_rows)
    K = arrays.to_host(kernel.block(prepared_rows.left, prepared_rows.right)).astype(np.float64)
    function_name = getattr(kernel.function, "__name__", kernel.name)
    description = f"the matrix computed by kernel={function_name}"
    reason = _warn_if_not_kernel(K, TOLERANCES[arrays.precision_name(rows)], description)
    return replace(kernel, symmetrised="symmetric" in reason, sound=not reason)


def refuse_unsound(kernel: Kernel, n_rows: int) -> None:
    """Reject a function that is not a kernel, for solvers that do not store its matrix."""
    if not kernel.sound:
        raise ValueError(
            f"the kernel function is not positive semi-definite. With {n_rows} rows, the kernel "
            "matrix is not stored, so its positive part cannot be computed. Pass the matrix with "
            'kernel="precomputed", or use solver="dense" or an estimator with landmarks.'
        )


def positive_part(K: Any) -> tuple[Any, Any]:
    """Return the positive part of the centred matrix, and the eigenvectors that span it.

    The centred kernel values of new rows must be projected onto the same eigenvectors.
    """
    xp = arrays.namespace(K)
    eigenvalues, eigenvectors = xp.linalg.eigh(_centred((K + K.T) / 2))
    is_positive = eigenvalues > 1e-10 * abs(eigenvalues).max()
    if not bool(is_positive.any()):
        raise ValueError(
            "the kernel matrix has no positive eigenvalue after centring. If it contains distances "
            "or negated kernel values, pass kernel values instead."
        )
    basis = eigenvectors[:, is_positive]
    return (basis * eigenvalues[is_positive]) @ basis.T, basis


def _warn_if_not_kernel(K: Any, tolerance: float, description: str) -> str:
    """Warn if a matrix is not a kernel, and return the reason, or "" if it is a kernel."""
    limit = tolerance * max(float(np.linalg.norm(K)), np.finfo(np.float64).tiny)
    reasons = []
    if float(np.abs(K - K.T).max()) > limit:
        reasons.append("not symmetric (the mean of the matrix and its transpose is used)")
    try:
        np.linalg.cholesky(_centred((K + K.T) / 2) + limit * np.eye(len(K)))
    except np.linalg.LinAlgError:
        reasons.append(
            "not positive semi-definite (only the positive part is used; check whether you passed "
            "distances or a negated kernel)"
        )
    reason = ", and ".join(reasons)
    if reason:
        warn_caller(f"{description} is not a kernel: it is {reason}", NotAKernelWarning)
    return reason


def _centred(K: Any) -> Any:
    column_means = K.mean(0)
    return K - column_means - (column_means - column_means.mean())[:, None]
