"""Array types for annotations, and functions that work on both arrays and tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, pdist

if TYPE_CHECKING:
    import pandas


Array = NDArray[Any]
Frame: TypeAlias = "pandas.DataFrame"
#: Types of estimator arguments. Tensors, data frames and Dask collections count as ArrayLike.
MaybeArray = ArrayLike | None
Seed = int | RandomState | None
KernelLike = str | Callable[..., ArrayLike]
ClassWeight = dict[Any, float] | str | None
Scoring = str | Callable[..., float] | None
Decision = str | float
Label = Hashable  #: label of a class or a domain


class Estimator(Protocol):
    """An estimator with scikit-learn's interface."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""

    def fit(self, *args: Any, **params: Any) -> Any:
        """Fit the estimator."""


class Splitter(Protocol):
    """A splitter with scikit-learn's interface."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterable[Any]:
        """Yield the indices of training rows and test rows for each split."""


CrossValidator = int | Splitter | Iterable[Any] | None

__all__ = ["Array", "ArrayLike", "is_dask", "is_tensor"]


def is_tensor(X: Any) -> bool:
    """Return whether X is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, getattr(torch, "Tensor", ()))


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    dask = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)


#: Up to this number of features, a loop over features is faster on a GPU than torch.cdist with
#: p=1, which uses a block of threads for each pair of rows.
MAX_LOOP_FEATURES = 64
#: Up to this number of groups, group sums of tensors are products with a matrix of indicators.
MAX_INDICATOR_GROUPS = 512


def namespace(X: Any) -> Any:
    """Return the module whose functions work on X."""
    return sys.modules["torch"] if is_tensor(X) else np


def cast(X: Any, dtype: Any) -> Any:
    """Convert X to ``dtype``; return X itself if it already has that dtype."""
    return X.to(dtype) if is_tensor(X) else X.astype(dtype, copy=False)


def copied(X: Any) -> Any:
    """Return a copy of an array or a tensor."""
    return X.clone() if is_tensor(X) else np.array(X)


def read_only(X: Any) -> Any:
    """Return X for a user's estimator, which cannot change the rows or columns of the caller."""
    if isinstance(X, np.ndarray):
        X = X.view()
        X.flags.writeable = False
    return X.copy(deep=False) if hasattr(X, "iloc") else X


def to_host(X: Any) -> Array:
    """Return an array or a tensor as a NumPy array in host memory."""
    return np.asarray(X.cpu().numpy() if is_tensor(X) else X)


def to_device_of(values: Any, like: Any) -> Any:
    """Convert an array to a tensor on the device of ``like``, if ``like`` is a tensor."""
    if not is_tensor(like):
        return values
    return namespace(like).from_numpy(np.array(values)).to(like.device)


def as_type_of(values: Any, X: Any) -> Any:
    """Convert values to an array or tensor with the device and precision of X."""
    return cast(to_device_of(np.asarray(values), X), X.dtype)


def precision_name(X: Any) -> str:
    """Return the name of the dtype of an array or a tensor, such as ``"float32"``."""
    return str(X.dtype).removeprefix("torch.")


def squared_norms(X: Any) -> Any:
    """Return the squared norm of each row."""
    # torch.einsum would use TF32 if that is enabled.
    return X.square().sum(1) if is_tensor(X) else np.einsum("ij,ij->i", X, X)


def column_norms(V: Any) -> Any:
    """Return the norm of each column."""
    return (V * V).sum(0) ** 0.5


def cholesky_solver(A: Any) -> Callable[[Any], Any] | None:
    """Return a function that applies ``A^-1``, or None if A is not positive definite.

    A may be overwritten.
    """
    if is_tensor(A):
        torch = namespace(A)
        factor, error_code = torch.linalg.cholesky_ex(A)
        return None if int(error_code) else lambda V: torch.cholesky_solve(V, factor)
    try:
        # The transpose of the symmetric A is in Fortran order, so LAPACK does not copy it.
        factorization = cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return lambda V: cho_solve(factorization, V, check_finite=False)


def concatenate_columns(arrays: Sequence[Any]) -> Any:
    """Concatenate arrays along the last axis."""
    return namespace(arrays[0]).concatenate(list(arrays), axis=-1)


def shifted_solve(S: Any, shift: float, B: Any) -> Any:
    """Return ``(S + shift I)^-1 B`` for an S that is positive semi-definite up to rounding."""
    A, indices = S + 0.0, np.arange(len(S))
    A[indices, indices] += shift
    solve = cholesky_solver(A)
    if solve is not None:
        return solve(B)
    eigenvalues, U = namespace(S).linalg.eigh(S)
    return U @ ((U.T @ B) / (eigenvalues.clip(min=0.0) + shift)[:, None])


def group_sums(rows: Any, group_codes: Any, n_groups: int) -> Any:
    """Return sums of rows by group as float64; on a GPU, rounding can differ between runs."""
    n, xp = len(rows), namespace(rows)
    if not is_tensor(rows):
        indicators = csr_array((np.ones(n, rows.dtype), (group_codes, np.arange(n))), (n_groups, n))
        return np.asarray(indicators @ rows, dtype=np.float64)
    if n_groups <= MAX_INDICATOR_GROUPS:
        indicators = xp.zeros((n, n_groups), dtype=rows.dtype, device=rows.device)
        return (indicators.scatter_(1, group_codes[:, None], 1.0).T @ rows).double()
    sums = xp.zeros((n_groups, rows.shape[1]), dtype=xp.float64, device=rows.device)
    return sums.index_add_(0, group_codes, rows.double())


def cross_distances(X: Any, Y: Any, *, l1: bool) -> Any:
    """Return L1 or squared Euclidean distances between rows, without inner products (precise)."""
    if not is_tensor(X):
        return cdist(X, Y, "cityblock" if l1 else "sqeuclidean")
    if l1 and X.device.type == "cuda" and X.shape[1] <= MAX_LOOP_FEATURES:
        distances = X.new_zeros((len(X), len(Y)))
        differences = namespace(X).empty_like(distances)
        for j in range(X.shape[1]):
            namespace(X).sub(X[:, j, None], Y[None, :, j], out=differences)
            distances.add_(differences.abs_())
        return distances
    if l1:
        return namespace(X).cdist(X, Y, p=1.0)
    return namespace(X).cdist(X, Y, p=2.0, compute_mode="donot_use_mm_for_euclid_dist").square_()


def evenly_spaced(n: int, max_count: int) -> Array:
    """Return at most ``max_count`` of the indices 0 ... n - 1, evenly spaced."""
    return np.linspace(0, n - 1, min(n, max_count)).astype(int)


def median_distance(X: Any, *, l1: bool, weights: Array | None = None) -> float | None:
    """Return the median of non-zero L1 or Euclidean distances between rows; None if all are 0.

    With integer weights, it is the median for rows that are repeated as often as they say.
    """
    if is_tensor(X):
        distances = to_host(namespace(X).nn.functional.pdist(X, p=1.0 if l1 else 2.0))
    else:
        distances = pdist(X, "cityblock" if l1 else "euclidean")
    is_nonzero = distances > 0
    if not is_nonzero.any():
        return None
    if weights is None:
        return float(np.median(distances[is_nonzero]))
    pair_weights = np.multiply(*(weights[i] for i in np.triu_indices(len(weights), 1)))
    distances, pair_weights = distances[is_nonzero], pair_weights[is_nonzero]
    order = np.argsort(distances)
    sums = np.cumsum(pair_weights[order])
    middle = [np.searchsorted(sums, sums[-1] / 2, side) for side in ("left", "right")]
    return float(distances[order[np.minimum(middle, len(order) - 1)]].mean())


def content_keys(X: Any) -> Any:
    """Return a number for each row, a random projection: only equal rows have equal numbers.

    Choices made in the order of these numbers do not depend on the order of the rows.
    """
    xp, weights = namespace(X), np.random.default_rng(0).normal(size=X.shape[1])
    step = max(1, 2**20 // X.shape[1])
    batches = [cast(X[i : i + step], xp.float64) for i in range(0, len(X), step)]
    return xp.hstack([batch @ as_type_of(weights, batch) for batch in batches])


def available_memory(X: Any = None) -> int | None:
    """Return the free bytes of host memory, or of the GPU if X is on one; None if unknown."""
    if is_tensor(X) and X.device.type == "cuda":
        cuda = namespace(X).cuda
        unused_bytes = cuda.memory_reserved(X.device) - cuda.memory_allocated(X.device)
        return int(cuda.mem_get_info(X.device)[0] + unused_bytes)
    with suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
