"""Arguments that several estimators share: signatures, docstrings, and checks for partial_fit.

Descriptions are in ``arguments.toml``. :func:`documented_arguments` inserts them into docstrings
in place of lines such as ``{kernel} {target}``, with the indentation of the line. Descriptions may
also contain such lines. In the docstring of a class, ``{class}`` is replaced by its name, and
``{exact_class}`` by the name of the corresponding exact estimator.

All calls to partial_fit must use the same arguments, and all or none of them must pass domains.
Landmarks and gamma are computed from the first batch only, so a later change of an argument would
be ignored, or would affect only some of the rows.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from domainwise.base.arguments import CONSTRAINTS
from domainwise.base.arrays import ArrayLike, KernelLike, MaybeArray, Seed, to_host
from domainwise.base.inputs import refuse_masked_targets
from domainwise.base.process import filtered_warnings

C = TypeVar("C")

#: Methods that fit a model.
FIT_METHODS = ("fit", "partial_fit", "fit_transform")

#: A line of placeholders for shared descriptions.
PLACEHOLDERS = re.compile(r"(?m)^( *)(\{\w+\}(?: \{\w+\})*)$")

#: Descriptions by placeholder.
DESCRIPTIONS: dict[str, str] = tomllib.loads(
    (files("domainwise.base") / "arguments.toml").read_text(encoding="utf-8")
)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def arguments(cls: type[C]) -> type[C]:
    """Generate ``__init__`` from the annotations in a class and its bases; add domain checks."""
    return dataclass(with_domain_checks(cls), eq=False, repr=False, kw_only=True)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def documented_arguments(cls: type[C]) -> type[C]:
    """Like :func:`arguments`; insert shared descriptions into docstrings of class and methods.

    Arguments of the class get the shared constraints, unless its ``_parameter_constraints``
    override them.
    """
    cls, name = arguments(cls), cls.__name__
    doc = PLACEHOLDERS.sub(_expand, cls.__doc__ or "")
    cls.__doc__ = doc.replace("{exact_class}", name.removeprefix("Fast")).replace("{class}", name)
    package_classes = [base for base in cls.__mro__ if base.__module__.startswith("domainwise.")]
    for member in (member for base in package_classes for member in vars(base).values()):
        _expand_docstring(member)
        _expand_docstring(getattr(member, "fn", None))  # the function inside available_if
    constraints = CONSTRAINTS | getattr(cls, "_parameter_constraints", {})
    cls._parameter_constraints = {  # type: ignore[attr-defined]
        name: constraints[name] for name in inspect.signature(cls).parameters
    }
    return cls


def _expand_docstring(method: Any) -> None:
    """Insert shared descriptions into the docstring of a method, once."""
    doc = getattr(method, "__doc__", None)
    if isinstance(doc, str) and not isinstance(method, type) and PLACEHOLDERS.search(doc):
        method.__doc__ = PLACEHOLDERS.sub(_expand, doc)


def _expand(match: re.Match[str]) -> str:
    """Replace a line of placeholders with their descriptions, indented like the line."""
    indent, placeholders = match.groups()
    descriptions = [DESCRIPTIONS[name] for name in re.findall(r"\w+", placeholders)]
    lines = PLACEHOLDERS.sub(_expand, "\n".join(descriptions)).splitlines()
    return "\n".join(indent + line if line else line for line in lines)


def with_domain_checks(cls: type[C]) -> type[C]:
    """Make fit methods reject masked labels."""
    for base in cls.__mro__:
        for name in FIT_METHODS if base.__module__.startswith("domainwise.") else ():
            method = vars(base).get(name)
            if inspect.isfunction(method) and not hasattr(method, "checks_domains"):
                setattr(base, name, _with_checks(method))
    return cls


def _with_checks(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def method_with_checks(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound_arguments = dict(zip(signature.parameters, (self, *args), strict=False)) | kwargs
        if getattr(self, "_uses_target", True):
            refuse_masked_targets(bound_arguments.get("y"), bound_arguments.get("sample_domain"))
        # scikit-learn changes filters, too. If threads fit at the same time, it may restore filters
        # that another fit has set. The last fit to end leaves those that the first has found.
        with filtered_warnings():
            return method(self, *args, **kwargs)

    method_with_checks.checks_domains = True  # type: ignore[attr-defined]
    return method_with_checks


@arguments
class KernelArguments:
    """Arguments of the kernel between rows."""

    kernel: KernelLike = "rbf"
    gamma: float | str = "median"
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None


@arguments
class ComponentArguments(KernelArguments):
    """Arguments of all projections; only ``n_components`` can be passed by position."""

    n_components: int | None = field(default=None, kw_only=False)


@arguments
class TargetArguments(ComponentArguments):
    """Arguments of methods with a kernel between targets."""

    target_kernel: KernelLike = "auto"
    target_gamma: float | str = "median"
    epsilon: float = 1e-3


@arguments
class DomainArguments:
    """Arguments of methods with a kernel between domains."""

    domain_kernel: KernelLike = "auto"
    domain_gamma: float | str = "median"
    domain_weight: float = 1.0


@arguments
class InvarianceArguments(DomainArguments, KernelArguments):
    """Arguments of the invariant kernel and of estimators that use it."""

    domain_epsilon: float = 1e-3
    conditional: bool = False


@arguments
class ExactArguments:
    """Arguments of exact estimators."""

    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 200
    random_state: Seed = None
    verbose: int = 0


@arguments
class LandmarkArguments:
    """Arguments of estimators with landmarks."""

    n_landmarks: float | str = "auto"
    landmarks: ArrayLike = "uniform"
    feature_map: str = "nystroem"
    random_state: Seed = None


@arguments
class LabelLandmarkArguments(LandmarkArguments):
    """Arguments of estimators with landmarks for rows and for a continuous target."""

    target_landmarks: MaybeArray = None


#: Arguments that do not change results.
_NO_EFFECT_ON_RESULTS = {"n_jobs", "verbose"}
#: Key of the entry in a batch's record that says whether domains were passed.
DOMAINS_KEY = "sample_domain"


def batch_record(estimator: Any, sample_domain: Any) -> dict[str, str]:
    """Return a record of what all batches must have in common, as strings that can be saved."""
    parameters = estimator.get_params(deep=False).items()
    record = {name: describe(v) for name, v in parameters if name not in _NO_EFFECT_ON_RESULTS}
    return record | {DOMAINS_KEY: "missing" if sample_domain is None else "given"}


def check_batch(estimator: Any, first_record: dict[str, str], sample_domain: Any) -> None:
    """Reject a batch that differs from the record of the first batch."""
    check_same_arguments(estimator, first_record)
    presence = batch_record(estimator, sample_domain)[DOMAINS_KEY]
    if presence != first_record[DOMAINS_KEY]:
        raise ValueError(
            f"{type(estimator).__name__}.partial_fit: sample_domain is {presence} in this batch, "
            f"but was {first_record[DOMAINS_KEY]} in earlier batches. Pass sample_domain with "
            "every batch or with none, or start again with fit."
        )


def check_same_arguments(
    estimator: Any, first_record: dict[str, str], names: Collection[str] | None = None
) -> None:
    """Reject arguments (all, or those in ``names``) that have changed since the first batch."""
    current_record = batch_record(estimator, None)
    for name, first_value in first_record.items():
        is_checked = name != DOMAINS_KEY and (names is None or name in names)
        if is_checked and current_record.get(name) != first_value:
            raise ValueError(
                f"{type(estimator).__name__} now has {name}={current_record.get(name)}, but the "
                f"first batch was fitted with {name}={first_value}. All batches need the same "
                f"arguments: restore {name}, or start again with fit or a clone."
            )


def describe(value: Any) -> str:
    """Describe an argument; equal values have the same description, even in a loaded model."""
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if isinstance(value, np.random.RandomState):  # drawing numbers changes its state
        return "RandomState"
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(value[key])}" for key in value) + "}"
    if isinstance(value, list | tuple) and all(np.ndim(item) == 0 for item in value):
        return f"[{', '.join(map(describe, value))}]"
    if isinstance(value, list | tuple) or hasattr(value, "__array__"):
        array = np.asarray(to_host(value))
        if array.ndim == 1 and array.size <= 10:
            return describe(array.tolist())
        is_numeric = array.dtype.kind in "biuf"
        content = array.astype(float).tobytes() if is_numeric else repr(array.tolist()).encode()
        return f"array(shape={array.shape}, digest={sha256(content).hexdigest()[:8]})"
    return repr(value) if hasattr(value, "get_params") else type(value).__name__
