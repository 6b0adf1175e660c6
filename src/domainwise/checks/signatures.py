"""What several estimators share about their arguments, written once.

Their descriptions stand in ``arguments.toml``. A docstring names some in braces on a line of their
own, such as ``{kernel} {target}``, and :func:`with_shared_arguments` puts the texts there with the
right indentation; so do the texts themselves, and the docstrings of methods. In the docstring of a
class ``{class}`` is its name, and ``{exact_class}`` that of its exact form.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from importlib.resources import files
from typing import Any, TypeVar, dataclass_transform

from domainwise.arrays import ArrayLike, KernelLike, MaybeArray, Seed
from domainwise.checks.arguments import CONSTRAINTS
from domainwise.checks.inputs import refuse_masked_targets

T = TypeVar("T", bound=type)
C = TypeVar("C")

#: Methods that fit.
FITTING = ("fit", "partial_fit", "fit_transform")
#: What domains are called elsewhere.
OTHER_NAMES = ("groups", "group", "domains", "domain")

#: A line that names groups of arguments.
PLACE = re.compile(r"(?m)^( *)(\{\w+\}(?: \{\w+\})*)$")

_TEXT = (files("domainwise.checks") / "arguments.toml").read_text(encoding="utf-8")
SHARED: dict[str, str] = tomllib.loads(_TEXT)


def with_shared_arguments(cls: T) -> T:
    """Fill the shared texts into the docstrings of a class and of the methods that it has.

    Its arguments get their constraints; a class says only where it differs from the shared ones.
    """
    doc, name = PLACE.sub(_texts, cls.__doc__ or ""), cls.__name__
    doc = doc.replace("{exact_class}", name.removeprefix("Fast")).replace("{class}", name)
    cls.__doc__ = doc
    ours = [base for base in cls.__mro__ if base.__module__.startswith("domainwise.")]
    for member in (member for base in ours for member in vars(base).values()):
        _fill(member)
        _fill(getattr(member, "fn", None))  # of a method that is there on a condition
    rules = CONSTRAINTS | getattr(cls, "_parameter_constraints", {})
    names = inspect.signature(cls).parameters
    cls._parameter_constraints = {name: rules[name] for name in names}  # type: ignore[attr-defined]
    return cls


def _fill(method: Any) -> None:
    """Fill the shared texts into the docstring of a method, unless that has been done."""
    doc = getattr(method, "__doc__", None)
    if isinstance(doc, str) and not isinstance(method, type) and PLACE.search(doc):
        method.__doc__ = PLACE.sub(_texts, doc)


def _texts(place: re.Match[str]) -> str:
    """Texts of the groups that a line names, with its indentation."""
    indent, groups = place.groups()
    texts = [PLACE.sub(_texts, SHARED[name]) for name in re.findall(r"\w+", groups)]
    lines = "\n".join(texts).splitlines()
    return "\n".join(indent + line if line else line for line in lines)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def arguments(cls: type[C]) -> type[C]:
    """Make the ``__init__`` of a class from the arguments that it and its bases annotate."""
    return dataclass(with_domain_checks(cls), eq=False, repr=False, kw_only=True)


def with_domain_checks(cls: type[C]) -> type[C]:
    """Make methods that fit refuse domains under another name, and labels that are masked."""
    for base in cls.__mro__:
        for name in FITTING if base.__module__.startswith("domainwise.") else ():
            method = vars(base).get(name)
            if inspect.isfunction(method) and not hasattr(method, "checks_domains"):
                setattr(base, name, _checking_domains(method))
    return cls


def _checking_domains(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def checked(self: Any, *rows: Any, **named: Any) -> Any:
        wrong = [name for name in OTHER_NAMES if name in named]
        if wrong and wrong[0] not in signature.parameters:
            raise TypeError(
                f"{type(self).__name__}.{method.__name__}() got an unexpected keyword argument "
                f"{wrong[0]!r}. Pass the domain of each row as sample_domain: "
                f"{method.__name__}(X, y, sample_domain={wrong[0]})"
            )
        given = dict(zip(signature.parameters, (self, *rows), strict=False)) | named
        if getattr(self, "_uses_target", True):
            refuse_masked_targets(given.get("y"), given.get("sample_domain"))
        return method(self, *rows, **named)

    checked.checks_domains = True  # type: ignore[attr-defined]
    return checked


@arguments
class KernelArguments:
    """Of whatever has a kernel of rows."""

    kernel: KernelLike = "rbf"
    gamma: float | str = "median"
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None


@arguments
class ComponentArguments(KernelArguments):
    """Of every projection; ``n_components`` alone may be given without its name."""

    n_components: int | None = field(default=None, kw_only=False)


@arguments
class TargetArguments(ComponentArguments):
    """Of methods that look at targets through a kernel."""

    target_kernel: KernelLike = "auto"
    target_gamma: float | str = "median"
    epsilon: float = 1e-3


@arguments
class DomainArguments:
    """Of methods that look at domains through a kernel."""

    domain_kernel: KernelLike = "auto"
    domain_gamma: float | str = "median"
    domain_weight: float = 1.0


@arguments
class InvarianceArguments(DomainArguments, KernelArguments):
    """Of the invariant kernel and whatever is built on it."""

    domain_epsilon: float = 1e-3
    conditional: bool = False


@arguments
class ExactArguments:
    """Of the exact forms."""

    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 200
    random_state: Seed = None
    verbose: int = 0


@arguments
class LandmarkArguments:
    """Of forms on landmarks."""

    n_landmarks: float | str = "auto"
    landmarks: ArrayLike = "uniform"
    feature_map: str = "nystroem"
    random_state: Seed = None


@arguments
class LabelLandmarkArguments(LandmarkArguments):
    """Of those that may have landmarks of a continuous target, too."""

    target_landmarks: MaybeArray = None
