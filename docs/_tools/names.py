"""Public names in the order of the API reference. Tests can import this module without Sphinx."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

#: Modules whose ``__all__`` is public, with a description. All other modules are private.
MODULES = {
    "domainwise": "",
    "domainwise.selection": "Splitters, scores and searches that hold out whole domains.",
    "domainwise.plots": "Plots with the interface of scikit-learn's displays.",
    "domainwise.metrics": (
        "Scores by domain, and measures of how much features depend on the domain."
    ),
    "domainwise.datasets": "Simulated data, and loaders for real data sets. Files are read from "
    "``$DOMAINWISE_DATA``, or from the user's cache folder.",
    "domainwise.distributed": "Fits from files on a cluster.",
    "domainwise.federated": "Fits across sites that do not share their rows.",
    "domainwise.labels": "Targets and domains as factors of kernel matrices.",
    "domainwise.reference": "The paper's algorithms, line by line, for comparison.",
}

#: Modules that describe the arguments of all their functions once, in their own docstring.
DESCRIBED_ONCE = {"domainwise.reference"}

#: Groups of the names in ``domainwise``; names that are not in any group are listed at the end.
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
        "These estimators choose their parameters by holding out source domains.",
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


#: Methods with conventional names, which are always listed and must describe all their parameters.
#: Other methods without a description of their parameters are internal and not listed.
VERBS = {
    *("fit", "fit_transform", "partial_fit", "transform", "predict", "predict_proba", "score"),
    *("predict_set", "predict_interval", "decision_function", "to", "split", "get_n_splits"),
    *("plot", "from_estimator", "from_predictions", "report"),
}
#: Internal methods and properties without parameters, which other folders use.
BETWEEN_FOLDERS = {"base_kernel", "column_means", "expansion", "feature_limits", "label_rules"}
BETWEEN_FOLDERS |= {"n_totals", "predicts_most_probable", "settled", "unfitted"}
#: Parameters that need no description.
PLAIN = {"self", "cls", "path"}


@dataclass
class Group:
    """A section of the reference: its heading, a description, and the full names in it."""

    heading: str
    about: str
    names: list[str] = field(default_factory=list)


def public_names(module: str) -> list[str]:
    """Names in ``__all__`` of a module, except its version."""
    return [name for name in import_module(module).__all__ if name != "__version__"]


def groups() -> list[Group]:
    """All public names, each listed once, in the module that users import it from."""
    top = public_names("domainwise")
    listed = [
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
        listed.append(Group(module, about, [f"{module}.{name}" for name in own]))
    return [group for group in [*listed, others] if group.names]


def resolve(name: str) -> Any:
    """The object with a full name, ``module.name``."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def own_members(name: str) -> list[str]:
    """Public methods and properties that this package defines, in the order of definition."""
    cls = resolve(name)
    members = [
        member
        for member, owner in _members(name)
        if owner.startswith("domainwise") and _is_for_users(cls, member)
    ]
    return sorted(members, key="to".__eq__)  # ``to`` is listed last


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
    """Public methods that a class inherits from scikit-learn."""
    return sorted(member for member, owner in _members(name) if owner.startswith("sklearn"))


def _members(name: str) -> list[tuple[str, str]]:
    """Public members of a class in the order of definition, with the module that defines them."""
    modules: dict[str, str] = {}
    for base in reversed(resolve(name).__mro__):
        for member, value in vars(base).items():
            if member.startswith("_") or not _is_documented_member(value):
                continue
            modules[member] = base.__module__
    return list(modules.items())


def _is_documented_member(value: Any) -> bool:
    # Descriptors of scikit-learn (available_if, metadata requests) behave like functions.
    kinds = (property, classmethod, staticmethod)
    return isinstance(value, kinds) or (
        (callable(value) or hasattr(value, "fn")) and hasattr(value, "__get__")
    )
