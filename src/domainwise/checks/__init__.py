"""Checks of what users pass in, and warnings. Private imports from scikit-learn are here alone."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import sklearn

_OTHERS = [Path(library.__file__).parent for library in (sklearn, joblib)]
#: Folders whose code calls ours on behalf of a user: this package, scikit-learn and joblib.
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], *_OTHERS))


class NotAKernelWarning(UserWarning):
    """A matrix or function given as a kernel is not one."""


class NoDomainsWarning(UserWarning):
    """A model that compares domains has none, or one, to learn from."""


class RowFoldsWarning(UserWarning):
    """Rows are held out where domains should be."""


class ContextWarning(UserWarning):
    """Rows of a domain are predicted one by one, although those of its domain are given."""


class ClassShareWarning(UserWarning):
    """Class shares differ between source domains, and ``class_weight`` is None."""


@contextmanager
def needs_extra(purpose: str, extra: str) -> Iterator[None]:
    """Name the extra to install where an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{purpose} needs {error.name}: pip install "domainwise[{extra}]"'
        ) from None


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is of the user's own code."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)
