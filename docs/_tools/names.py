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
    "domainwise.datasets": "Heart disease in four hospitals, and simulated data.",
    "domainwise.distributed": "Fits models to Parquet files on a cluster.",
    "domainwise.labels": "Targets and domains as factors of kernel matrices.",
}

#: Groups of names in ``domainwise``; names that are not in any group are listed at the end.
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
    "Context": ("Features relative to the other rows of the same domain.", ("DomainContext",)),
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


#: Pages of the guide, and the names that they explain; the reference links to them.
GUIDE = {
    "guide/report": "evaluate Evaluation DomainScoresDisplay ForestDisplay PooledScores "
    "pool_scores",
    "guide/shift": "check_shift ShiftWatch ShiftDisplay",
    "guide/libraries": "save load trusted_types to_onnx LeaveDomainsOut",
    "guide/choosing": "DomainEnsembleClassifier DomainEnsembleRegressor InvariantRidgeClassifierCV "
    "InvariantRidgeCV DCM DCMCV COIR DICA KPCA SCA MDA MIDA DomainMapDisplay",
    "guide/labels": "SiteAdapter",
    "invariant": "InvariantKernel InvariantFeatures InvariantSVC InvariantSVR InvariantSearchCV",
    "guide/context": "DomainContext",
    "guide/scale": "FastDCM FastDCMCV FastCOIR FastDICA FastKPCA FastSCA FastMDA FastMIDA",
    "gpu": "precision",
    "guide/problem": "domain_cross_validate DomainScores worst_domain_score",
    "guide/uncertainty": "DomainConformal CalibrationDisplay DecisionCurveDisplay DecisionCurves "
    "Estimate SiteEstimates adapt_class_shares calibration_slope net_benefit observed_expected",
    "guide/clinical": "decision_scores",
    "distributed": "fit_parquet",
    "guide/glossary": "InvarianceReport invariance_report hsic mmd",
}

#: Methods that are always listed and must describe all their parameters. Other methods are listed
#: only if they have no parameters or describe them.
LISTED_METHODS = {
    *(
        "fit",
        "fit_transform",
        "partial_fit",
        "merge",
        "transform",
        "predict",
        "predict_proba",
        "score",
    ),
    *("predict_set", "predict_interval", "decision_function", "to", "split", "get_n_splits"),
    *("plot", "from_estimator", "from_predictions", "report"),
}
#: Methods and properties without parameters that only other folders use; they are not listed.
INTERNAL_MEMBERS = {"base_kernel", "column_means", "expansion", "feature_limits", "label_rules"}
INTERNAL_MEMBERS |= {"predicts_most_probable", "settled", "unfitted"}
#: Parameters that need no description.
UNDESCRIBED_PARAMETERS = {"self", "cls", "path"}


@dataclass
class Group:
    """A section of the reference: its heading, a description, and the full names in it."""

    heading: str
    about: str
    names: list[str] = field(default_factory=list)


def public_names(module: str) -> list[str]:
    """Return the names in a module's ``__all__``, except its version."""
    return [name for name in import_module(module).__all__ if name != "__version__"]


def groups() -> list[Group]:
    """Return all public names, each listed once, in the module that users import it from."""
    root_names = public_names("domainwise")
    listed = [
        Group(heading, about, [f"domainwise.{name}" for name in names if name in root_names])
        for heading, (about, names) in GROUPS.items()
    ]
    grouped = {name for _, names in GROUPS.values() for name in names}
    others = Group("More", "", [f"domainwise.{name}" for name in root_names if name not in grouped])
    seen = {id(resolve(f"domainwise.{name}")) for name in root_names}
    for module, about in MODULES.items():
        if module == "domainwise" or find_spec(module) is None:
            continue
        own = [name for name in public_names(module) if id(resolve(f"{module}.{name}")) not in seen]
        listed.append(Group(module, about, [f"{module}.{name}" for name in own]))
    return [group for group in [*listed, others] if group.names]


def guide_page(name: str) -> str | None:
    """Return the page of the guide that explains a public name, or None."""
    short_name = name.rpartition(".")[2]
    return next((page for page, listed in GUIDE.items() if short_name in listed.split()), None)


def resolve(name: str) -> Any:
    """Return the object with the full name ``module.name``."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def own_members(name: str) -> list[str]:
    """Return the public methods and properties that this package defines, in their order."""
    cls = resolve(name)
    members = [
        member
        for member, owner in _members(name)
        if owner.startswith("domainwise") and _is_for_users(cls, member)
    ]
    return sorted(members, key=lambda member: member == "to")  # ``to`` is listed last


def _is_for_users(cls: type, member: str) -> bool:
    value = inspect.getattr_static(cls, member)
    value = getattr(value, "fn", getattr(value, "__func__", value))  # available_if, classmethod
    text = inspect.getdoc(value) or ""
    if member in INTERNAL_MEMBERS or text.startswith("Not available"):
        return False
    if isinstance(value, property) or member in LISTED_METHODS or "\nParameters\n" in text:
        return True
    return set(inspect.signature(value).parameters) <= UNDESCRIBED_PARAMETERS


def inherited_methods(name: str) -> list[str]:
    """Return the public methods that a class inherits from scikit-learn."""
    return sorted(member for member, owner in _members(name) if owner.startswith("sklearn"))


def _members(name: str) -> list[tuple[str, str]]:
    """Return the public members of a class in their order, with the modules that define them."""
    modules: dict[str, str] = {}
    for base in reversed(resolve(name).__mro__):
        for member, value in vars(base).items():
            if member.startswith("_") or not _is_documented_member(value):
                continue
            modules[member] = base.__module__
    return list(modules.items())


def _is_documented_member(value: Any) -> bool:
    # scikit-learn's descriptors (available_if, metadata requests) behave like functions.
    kinds = (property, classmethod, staticmethod)
    return isinstance(value, kinds) or (
        (callable(value) or hasattr(value, "fn")) and hasattr(value, "__get__")
    )
