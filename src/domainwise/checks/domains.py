"""A warning where a method that uses domains is given none that it could learn from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from domainwise.checks.inputs import Labels

_LEARNS_NOTHING = "learns nothing about domains"


def warn_about_domains(
    estimator: Any, sample_domain: Any, domain: Labels, n_rows: int, *, stacklevel: int = 5
) -> None:
    """Warn if domains are missing, one, or as many as rows; continuous descriptors are fine."""
    why = ""
    if sample_domain is None:
        why = (
            "sample_domain is missing; pass it to fit (cross_val_score does not pass groups on: "
            "see domain_cross_validate)"
        )
    elif domain.codes is not None and domain.n_categories == 1:
        why = "sample_domain names one domain only"
    elif domain.codes is not None and 2 < n_rows == domain.n_categories:
        why = "sample_domain is different in every row"
    if why:
        name = type(estimator).__name__
        warnings.warn(f"{name} {_LEARNS_NOTHING}: {why}", UserWarning, stacklevel=stacklevel)


@contextmanager
def quiet_about_domains() -> Iterator[None]:
    """Fits that are part of another one: whoever fits that one has said it, or need not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{_LEARNS_NOTHING}")
        yield
