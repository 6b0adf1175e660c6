"""Input checks and warnings; only this folder imports private names from scikit-learn."""

from __future__ import annotations

import os
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn

#: Maximum number of characters of a name or a cell in a message.
MAX_CHARACTERS = 80
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


def listed(names: Collection[object], max_names: int = 4, conjunction: str = " and ") -> str:
    """Join at most ``max_names`` names for a sentence, and count the others.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], conjunction=", ")
    ('a, b and c', 'a, b, c')
    >>> listed(["a", "b", "c"], max_names=1)
    'a and 2 more'
    """
    *first_names, last_name = [*map(str, names)][:max_names] or [""]
    if (n_more := len(names) - max_names) > 0:
        first_names, last_name, conjunction = [*first_names, last_name], f"{n_more} more", " and "
    return conjunction.join(filter(None, (", ".join(first_names), last_name)))


def quoted(value: object) -> str:
    """Return a name, a label or a cell as Python code; a long one is shortened."""
    value = value.item() if isinstance(value, np.generic) else value
    text = value if isinstance(value, str) else repr(value)
    n_more = len(text) - MAX_CHARACTERS
    text = repr(text[:MAX_CHARACTERS]) if isinstance(value, str) else text[:MAX_CHARACTERS]
    return f"{text}… ({n_more:,} more characters)" if n_more > 0 else text


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the innermost line of the user's code."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)


def load_texts(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file in a package."""
    return tomllib.loads((files(package) / name).read_text(encoding="utf-8"))


class Checks:
    """A function that raises errors with the messages in ``errors.toml`` of a package."""

    def __init__(self, package: str) -> None:
        self.texts: dict[str, str] = load_texts(package, "errors.toml")

    def __call__(
        self, condition: object, kind: str, error: type[Exception] = ValueError, /, **values: object
    ) -> None:
        """Raise an error with a text and the values in it, unless the condition is true."""
        if not condition:
            raise error(self.texts[kind].format(**values))
