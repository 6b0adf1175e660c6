"""Input checks and warnings; only this folder imports private names from scikit-learn."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import sklearn

#: Folders whose code :func:`warn_caller` skips to find the user's line.
LIBRARY_FOLDERS = tuple(
    f"{folder}{os.sep}"
    for folder in (Path(__file__).parents[1], *(Path(m.__file__).parent for m in (sklearn, joblib)))
)


class NotAKernelWarning(UserWarning):
    """A matrix or function passed as a kernel is not symmetric or not positive semi-definite."""


class NoDomainsWarning(UserWarning):
    """``sample_domain`` is missing, or contains no domains that a model can compare."""


class RowFoldsWarning(UserWarning):
    """Rows are held out instead of domains."""


class ContextWarning(UserWarning):
    """Rows are predicted one by one, although other rows from their domain are available."""


@contextmanager
def needs_extra(purpose: str, extra: str) -> Iterator[None]:
    """Turn a failed import into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{purpose} needs {error.name}: pip install "domainwise[{extra}]"'
        ) from None


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the innermost line of the user's code."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)
