"""What several estimators share about their arguments, written once.

Their descriptions stand in ``arguments.toml``. A docstring names some in braces on a line of their
own, such as ``{kernel} {target}``, and :func:`with_shared_arguments` puts the texts there with the
right indentation; so do the texts themselves.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib.resources import files
from typing import Any, TypeVar

from domainwise.checks.arguments import CONSTRAINTS

T = TypeVar("T", bound=type)

#: A line that names groups of arguments.
PLACE = re.compile(r"(?m)^( *)(\{\w+\}(?: \{\w+\})*)$")

_TEXT = (files("domainwise.estimators") / "arguments.toml").read_text(encoding="utf-8")
SHARED: dict[str, str] = tomllib.loads(_TEXT)


def with_shared_arguments(cls: T) -> T:
    """Fill the shared texts into a class's docstring, and give its arguments their constraints.

    A class says only where it differs from the shared constraints.
    """
    cls.__doc__ = PLACE.sub(_texts, cls.__doc__ or "")
    rules = CONSTRAINTS | getattr(cls, "_parameter_constraints", {})
    names = inspect.signature(cls).parameters
    cls._parameter_constraints = {name: rules[name] for name in names}  # type: ignore[attr-defined]
    return cls


def _texts(place: re.Match[str]) -> str:
    """Texts of the groups that a line names, with its indentation."""
    indent, groups = place.groups()
    texts = [PLACE.sub(_texts, SHARED[name]) for name in re.findall(r"\w+", groups)]
    lines = "\n".join(texts).splitlines()
    return "\n".join(indent + line if line else line for line in lines)


def keep_arguments(estimator: Any, arguments: dict[str, Any]) -> None:
    """Keep the arguments of ``__init__``, its ``locals()``, under their names and as they are."""
    vars(estimator).update({name: arguments[name] for name in arguments if name != "self"})
