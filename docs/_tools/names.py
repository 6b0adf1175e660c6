"""The public names, in the order of the API reference. Tests can import this without Sphinx."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

#: Modules whose ``__all__`` is public, and what to say about each. What else has an ``__all__`` is
#: the library's own business.
MODULES = {
    "domainwise": "",
    "domainwise.selection": "Splitters, scores and searches that hold out whole domains.",
    "domainwise.plots": "Plots with the interface of scikit-learn's displays.",
    "domainwise.metrics": (
        "Scores by domain, and measures of how much features depend on the domain."
    ),
    "domainwise.datasets": "Simulated data, and loaders of real data sets. Files are read from "
    "``$DOMAINWISE_DATA``, or from the cache folder of the user.",
    "domainwise.distributed": "Fits from files on a cluster.",
    "domainwise.federated": "Fits across sites that do not share their rows.",
    "domainwise.labels": "Targets and domains as factors of kernel matrices.",
    "domainwise.reference": "The paper's algorithms line by line, for comparison.",
}

#: Modules that describe the arguments of all their functions once, in their own docstring.
DESCRIBED_ONCE = {"domainwise.reference"}

#: Groups of the names of ``domainwise`` itself; a name in none of them is listed at the end.
GROUPS = {
    "From a table to a model": (
        "Compare methods on held-out domains, fit and save models, and check new rows.",
        (
            "evaluate",
            "Evaluation",
            "check_shift",
            "ShiftWatch",
            "save",
            "load",
            "trusted_types",
            "to_onnx",
        ),
    ),
    "Predictors": (
        "Each estimator chooses its arguments by holding out source domains.",
        (
            "DomainEnsembleClassifier",
            "DomainEnsembleRegressor",
            "InvariantRidgeClassifierCV",
            "InvariantRidgeCV",
            "SiteAdapter",
        ),
    ),
    "The invariant kernel": (
        "Kernel machines with a penalty on differences between domains.",
        ("InvariantKernel", "InvariantFeatures", "InvariantSVC", "InvariantSVR"),
    ),
    "Context": ("Values of a row relative to its own domain.", ("DomainContext",)),
    "Projections": (
        "A few features per row, computed exactly and without an N×N matrix.",
        ("DCM", "DCMCV", "COIR", "DICA", "KPCA", "SCA", "MDA", "MIDA"),
    ),
    "Projections on landmarks": (
        "The same methods in one pass over the rows, with ``partial_fit``.",
        (
            "FastDCM",
            "FastDCMCV",
            "FastCOIR",
            "FastDICA",
            "FastKPCA",
            "FastSCA",
            "FastMDA",
            "FastMIDA",
        ),
    ),
    "Settings": ("", ("precision",)),
}


#: Methods that users call by convention: their docstrings have to describe all arguments. Other
#: methods that leave arguments undescribed are called by the library's own folders, and not listed.
VERBS = {
    *("fit", "fit_transform", "partial_fit", "transform", "predict", "predict_proba", "score"),
    *("predict_set", "predict_interval", "decision_function", "to", "split", "get_n_splits"),
    *("plot", "from_estimator", "from_predictions", "report"),
}
#: The same, without arguments.
BETWEEN_FOLDERS = {"measured", "n_totals", "settled", "expansion", "base_kernel"}
BETWEEN_FOLDERS |= {"column_means", "feature_limits"}
#: Arguments that say what they are.
PLAIN = {"self", "cls", "path"}


@dataclass
class Group:
    """A part of the reference: heading, a sentence, and full names."""

    heading: str
    about: str
    names: list[str] = field(default_factory=list)


def public_names(module: str) -> list[str]:
    """Names that a module offers, its version apart."""
    return [name for name in import_module(module).__all__ if name != "__version__"]


def groups() -> list[Group]:
    """Every public name once, at the place where users import it from."""
    top = public_names("domainwise")
    found = [
        Group(heading, about, [f"domainwise.{name}" for name in names if name in top])
        for heading, (about, names) in GROUPS.items()
    ]
    grouped = {name for _, names in GROUPS.values() for name in names}
    others = Group("More", "", [f"domainwise.{name}" for name in top if name not in grouped])
    seen = {id(resolve(f"domainwise.{name}")) for name in top}
    for module, about in MODULES.items():
        if module == "domainwise" or find_spec(module) is None:
            continue
        own = [name for name in public_names(module) if id(resolve(f"{module}.{name}")) not in seen]
        found.append(Group(module, about, [f"{module}.{name}" for name in own]))
    return [group for group in [*found, others] if group.names]


def resolve(name: str) -> Any:
    """The object of a full name, ``module.name``."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def own_members(name: str) -> list[str]:
    """Public methods and properties of a class that this package documents, in reading order."""
    cls = resolve(name)
    found = [
        member
        for member, owner in _members(name)
        if owner.startswith("domainwise") and _is_for_users(cls, member)
    ]
    return sorted(found, key="to".__eq__)  # where a model is comes after what it does


def _is_for_users(cls: type, member: str) -> bool:
    value = inspect.getattr_static(cls, member)
    value = getattr(value, "fn", getattr(value, "__func__", value))  # available_if, classmethod
    text = inspect.getdoc(value) or ""
    if member in BETWEEN_FOLDERS or text.startswith("Not available"):
        return False
    if isinstance(value, property) or member in VERBS or "\nParameters\n" in text:
        return True
    return set(inspect.signature(value).parameters) <= PLAIN


def inherited_methods(name: str) -> list[str]:
    """Public methods that a class has from scikit-learn."""
    return sorted(member for member, owner in _members(name) if owner.startswith("sklearn"))


def _members(name: str) -> list[tuple[str, str]]:
    """Public members of a class in the order of their definition, and the module of each."""
    found: dict[str, str] = {}
    for base in reversed(resolve(name).__mro__):
        for member, value in vars(base).items():
            if member.startswith("_") or not _is_documented_member(value):
                continue
            found.setdefault(member, "")
            found[member] = base.__module__
    return list(found.items())


def _is_documented_member(value: Any) -> bool:
    # Descriptors of scikit-learn (available_if, metadata requests) bind like functions.
    kinds = (property, classmethod, staticmethod)
    return isinstance(value, kinds) or (
        (callable(value) or hasattr(value, "fn")) and hasattr(value, "__get__")
    )
