"""The rule of partial_fit: all batches come with the same arguments, and all with domains or none.

What the first batch settles (landmarks, gamma, the domain of each row) is not looked at again, so
that a later change would be ignored, or applied to some of the rows.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Any

import numpy as np

from domainwise.arrays.namespace import to_host

#: Arguments that change no result.
_WITHOUT_EFFECT = {"n_jobs", "verbose"}
#: Under which a record says whether domains were passed.
_DOMAINS = "sample_domain"


def batch_record(estimator: Any, sample_domain: Any) -> dict[str, str]:
    """Write down what all batches of an estimator must share, in words that can be stored."""
    given = {
        name: _described(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in _WITHOUT_EFFECT
    }
    return given | {_DOMAINS: _presence(sample_domain)}


def check_batch(estimator: Any, first: dict[str, str] | None, sample_domain: Any) -> None:
    """Refuse a batch that does not fit the record of the first; None is that of an older file."""
    if first is None:
        return
    check_same_arguments(estimator, first)
    now = _presence(sample_domain)
    if now != first[_DOMAINS]:
        raise ValueError(
            f"partial_fit of {type(estimator).__name__}: sample_domain is {now} in this batch, but "
            f"was {first[_DOMAINS]} in earlier ones. Pass sample_domain with every batch or with "
            "none, or start again with fit"
        )


def check_same_arguments(
    estimator: Any, first: dict[str, str] | None, names: Collection[str] | None = None
) -> None:
    """Refuse arguments, all or those of some names, that have changed since the first batch."""
    now = batch_record(estimator, None)
    for name, before in (first or {}).items():
        if name == _DOMAINS or (names is not None and name not in names):
            continue
        if now.get(name) != before:
            raise ValueError(
                f"{type(estimator).__name__} was given {name}={now.get(name)} after a batch with "
                f"{name}={before}. All batches need the same arguments: set {name} back, or start "
                "again with fit, or with a clone, for the new value"
            )


def _presence(sample_domain: Any) -> str:
    return "missing" if sample_domain is None else "given"


def _described(value: Any) -> str:
    """Say what an argument is, alike for equal values and after a model was saved and loaded."""
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if isinstance(value, np.random.RandomState):  # its state changes as numbers are drawn
        return "RandomState"
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_described(value[key])}" for key in value) + "}"
    if isinstance(value, list | tuple) and all(np.ndim(each) == 0 for each in value):
        return f"[{', '.join(map(_described, value))}]"
    if isinstance(value, list | tuple) or hasattr(value, "__array__"):
        array = np.asarray(to_host(value))
        if array.ndim == 1 and array.size <= 10:
            return _described(array.tolist())
        numbers = array.dtype.kind in "biuf"
        content = array.astype(np.float64).tobytes() if numbers else repr(array.tolist()).encode()
        return f"array(shape={array.shape}, digest={sha256(content).hexdigest()[:8]})"
    return repr(value) if hasattr(value, "get_params") else type(value).__name__
