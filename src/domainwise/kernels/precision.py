"""How precisely tensor products on a GPU are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: From quick to precise: significant bits of the operands of a product are 11, 22, 24.
PRECISIONS = ("tf32", "tf32x3", "ieee")

_current: ContextVar[str] = ContextVar("domainwise_precision", default="tf32x3")


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the precision of float32 products with kernel matrices on a CUDA device.

    It concerns fitting and transforming float32 tensors on a GPU inside the ``with`` block, and
    nothing else. Sums are compensated in all three.

    Parameters
    ----------
    name : {"tf32", "tf32x3", "ieee"}
        ``"tf32"`` rounds operands to 11 significant bits: the quickest, for relative errors of a
        few 1e-4. ``"tf32x3"``, the default, keeps about 22 bits at three times the work of the
        tensor cores. ``"ieee"`` multiplies in plain float32, without tensor cores.

    Examples
    --------
    >>> import domainwise
    >>> with domainwise.precision("tf32"):
    ...     pass  # DCM().fit(X_cuda, y, sample_domain)
    """
    if name not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {name!r}")
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_precision() -> str:
    """Return the precision in force."""
    return _current.get()
