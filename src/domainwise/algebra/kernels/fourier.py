"""Random Fourier features, which do not depend on the training rows (theory 9.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, pi, sqrt
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from domainwise.algebra.kernels.functions import Kernel, Prepared
from domainwise.base.arrays import Array
from domainwise.base.namespace import as_type_of, cast, namespace

FOURIER_KERNELS = ("rbf", "laplacian")


@dataclass(frozen=True)
class FourierMap:
    """A map to M features ``sqrt(2 / M) cos(w'x + b)``, whose inner products approximate a kernel.

    Frequencies w are drawn from the kernel's spectral distribution: normal for
    ``exp(-gamma |x - y|^2)``, Cauchy in each coordinate for ``exp(-gamma |x - y|_1)``. Each
    frequency is used for two features, a cosine and a sine, which is more precise than two
    frequencies with random phases. If M is odd, the last feature has a random phase.

    :meth:`prepare` and :meth:`block` have the interface of
    :class:`~domainwise.algebra.kernels.functions.Kernel`, with ``points`` instead of a second set
    of rows.

    >>> import numpy as np
    >>> fourier = FourierMap("rbf", gamma=0.5, n_columns=1, n_features=10_000)
    >>> Phi = fourier.transform(np.array([[0.0], [2.0]]))
    >>> bool(abs(Phi[0] @ Phi[1] - np.exp(-2.0)) < 0.02)
    True
    """

    kernel: str  #: one of ``FOURIER_KERNELS``
    gamma: float
    n_columns: int  #: number of columns of X
    n_features: int  #: M, the number of Fourier features
    seed: int = 0
    #: One row for each of the M features: its frequency, followed by its phase.
    points: Array = field(init=False, repr=False, compare=False)

    # Attributes that a Kernel also has.
    name: ClassVar[str] = "fourier"
    constant: ClassVar[float] = 0.0
    is_product: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.kernel not in FOURIER_KERNELS:
            raise ValueError(
                f"kernel={self.kernel!r} has no random Fourier features. Use one of the kernels "
                f'{", ".join(FOURIER_KERNELS)}, or feature_map="nystroem".'
            )
        if not (isinstance(self.gamma, Real) and self.gamma > 0 and isfinite(self.gamma)):
            raise ValueError(f"gamma must be a positive, finite number; got {self.gamma!r}")
        for name in ("n_columns", "n_features"):
            count = getattr(self, name)
            if not isinstance(count, Integral) or count < 1:
                raise ValueError(f"{name} must be an integer of at least 1; got {count!r}")
        # RandomState draws the same numbers in all versions of NumPy, so that computers that share
        # only the seed compute the same features.
        rng = np.random.RandomState(self.seed)
        shape = ((self.n_features + 1) // 2, self.n_columns)
        if self.kernel == "rbf":
            frequencies = sqrt(2.0 * self.gamma) * rng.standard_normal(shape)
        else:
            frequencies = self.gamma * rng.standard_cauchy(shape)
        phases = np.tile([0.0, -pi / 2], len(frequencies))
        points = np.column_stack([np.repeat(frequencies, 2, axis=0), phases])[: self.n_features]
        if self.n_features % 2:
            points[-1, -1] = rng.uniform(0.0, 2.0 * pi)
        object.__setattr__(self, "points", points)

    def transform(self, X: Any) -> Any:
        """Return the features of the rows of X, an array or a tensor, in the precision of X."""
        rows = self.prepare(X).left
        return cast(self.block(rows, as_type_of(self.points, rows)), X.dtype)

    def prepare(self, X: Any) -> Prepared:
        """Return X with a column of ones, for :meth:`block`, and X itself, both in float64.

        Cauchy frequencies can be so large that angles would be imprecise in float32.
        """
        xp = namespace(X)
        X = cast(X, xp.float64)
        return Prepared(xp.hstack([X, xp.ones_like(X[:, :1])]), X)

    def block(self, left: Any, right: Any, out: Any = None, *, compiled: bool = False) -> Any:
        """Return the features of prepared rows (``left``), one for each point (``right``)."""
        xp = namespace(left)
        out = None if out is None or out.dtype != left.dtype else out
        features = xp.matmul(left, right.T, out=out)  # so far, the angles w'x + b
        xp.cos(features, out=features)
        features *= sqrt(2.0 / self.n_features)
        return features


#: A family of functions of a row, one for each landmark or point.
Basis = Kernel | FourierMap
