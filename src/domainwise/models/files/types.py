"""The reviewed list of types that a model file may contain, and how skops builds each of them.

skops restores an object without calling its constructor, and then sets its attributes. A type is
listed here if this never runs code chosen by the file, as long as all attributes are of listed
types. The list contains estimators of scikit-learn and of this package, the records they consist
of, arrays, numbers and strings. Functions, methods and types defined elsewhere are not listed.

skops gets this list as ``trusted``, in addition to its own. This is not sufficient: skops also
trusts every scikit-learn estimator, without checking its arrays. It lets a file build an object by
calling a trusted type (``numpy.ndarray`` with any shape) or from other data (a compressed sparse
matrix), and use one object many times, so that a few bytes can fill all memory.

In files, types of this package have names without a module, such as ``domainwise.DCM``, so that a
type can move to another module. Before names are compared with the list, :func:`localize` adds the
modules.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from domainwise import API

_LISTS: dict[str, dict[str, str]] = tomllib.loads(
    (files("domainwise.models.files") / "types.toml").read_text(encoding="utf-8")
)
#: Names of types by module: parts of models that are not in the public API, and scikit-learn's.
PARTS, SKLEARN = _LISTS["parts"], _LISTS["scikit-learn"]
#: Modules of the types of this package: the public estimators and their parts.
OWN = {
    name: module
    for module, names in (*API.items(), *PARTS.items())
    for name in names.split()
    if name[0].isupper() and name != "Evaluation"
}

_SCALARS = "bool bool_ float32 float64 int32 int64 intp str_ uint32 uint64 uint8"
_LOSSES = "CyAbsoluteError CyHalfBinomialLoss CyHalfMultinomialLoss CyHalfSquaredError"


def _full_names(names_by_module: dict[str, str]) -> frozenset[str]:
    items = names_by_module.items()
    return frozenset(f"{module}.{name}" for module, names in items for name in names.split())


#: Types that each kind of skops node may build; other kinds of nodes are rejected.
ALLOWED: dict[str, frozenset[str]] = {
    "DTypeNode": _full_names({"numpy": "dtype"}),
    "DictNode": _full_names({"builtins": "dict"}),
    "JsonNode": _full_names({"builtins": "str"}),
    "ListNode": _full_names({"builtins": "list"}),
    # In scikit-learn 1.8, the module name of losses lacks the package.
    "LossNode": _full_names({"sklearn._loss._loss": _LOSSES, "_loss": _LOSSES}),
    "NdArrayNode": _full_names({"numpy": f"{_SCALARS} ndarray"}),
    "ObjectNode": _full_names(SKLEARN) | {f"{module}.{name}" for name, module in OWN.items()},
    # The generator with which gradient boosting draws features.
    "RandomGeneratorNode": _full_names({"numpy.random._generator": "Generator"}),
    "RandomStateNode": _full_names({"numpy.random.mtrand": "RandomState"}),
    "SetNode": _full_names({"builtins": "set"}),
    "SliceNode": _full_names({"builtins": "slice"}),
    "TreeNode": _full_names({"sklearn.tree._tree": "Tree"}),
    "TupleNode": _full_names({"builtins": "tuple"}),
    # Types of dict keys and of columns; skops calls them only to convert a key.
    "TypeNode": _full_names({"numpy": _SCALARS, "builtins": "bool float int str NoneType"}),
}

#: The list for skops, which trusts some of these types by default.
TRUSTED = sorted(frozenset().union(*ALLOWED.values()))

#: Module name of this package's types in model files.
PACKAGE = "domainwise"


def trusted_types() -> list[str]:
    """Return the names of all types that models may contain, for tools that load with skops.

    MLflow stores models with skops and asks which types it may load: pass this list to
    ``mlflow.sklearn.log_model(model, name="model", skops_trusted_types=...)``.
    :func:`domainwise.load` needs no list; it also checks the values in a file, unlike skops.

    Returns
    -------
    names : list of str
        Names with modules. They may change when this package is updated.

    See Also
    --------
    save : Writes a model to a file without MLflow.

    Examples
    --------
    >>> import domainwise
    >>> "domainwise.estimators.projections.exact.DCM" in domainwise.trusted_types()
    True
    """
    return list(TRUSTED)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all object descriptions in ``schema.json``, at any depth, without recursion.

    Every object that skops would build is described by a dict with the key ``__loader__``.
    """
    pending = [schema]
    while pending:
        entry = pending.pop()
        if isinstance(entry, dict):
            if "__loader__" in entry:
                yield entry
            pending.extend(entry.values())
        elif isinstance(entry, list):
            pending.extend(entry)


def forbidden_types(schema: Any) -> list[str]:
    """Return the types in ``schema.json`` that are not allowed; nothing is imported or built.

    >>> forbidden_types({"__loader__": "FunctionNode", "__module__": "os", "__class__": "system"})
    ['os.system']
    """
    forbidden_names = set()
    for node in nodes(schema):
        loader = node["__loader__"]
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if not isinstance(loader, str) or name not in ALLOWED.get(loader, frozenset()):
            forbidden_names.add(name)
    return sorted(forbidden_names)


def localize(schema: Any) -> None:
    """Add the modules of this package's types, which :func:`shorten_names` has removed.

    Names that are not listed are not changed, and :func:`forbidden_types` returns them.

    >>> node = {"__loader__": "ObjectNode", "__module__": "domainwise", "__class__": "DCM"}
    >>> localize(node)
    >>> node["__module__"]
    'domainwise.estimators.projections.exact'
    """
    for node in nodes(schema):
        name = node.get("__class__")
        is_own = node.get("__module__") == PACKAGE and node["__loader__"] == "ObjectNode"
        if is_own and isinstance(name, str) and name in OWN:
            node["__module__"] = OWN[name]


def shorten_names(schema: Any) -> dict[str, str]:
    """Remove modules from type names, and number the arrays, in a schema written by skops.

    skops gives every object an ``__id__``, and builds objects with the same ``__id__`` only once.
    Here, only arrays get one: an array that is used twice is stored once. Return the new names of
    array files, by former name.
    """
    new_names: dict[str, str] = {}
    for node in nodes(schema):
        if OWN.get(node["__class__"]) == node["__module__"]:
            node["__module__"] = PACKAGE
        node.pop("__id__", None)
        if _is_array_file(node):
            name = new_names.setdefault(node["file"], f"{len(new_names)}.npy")
            node.update(file=name, __id__=name)
    return new_names


def check_identifiers(schema: Any) -> None:
    """Raise ValueError if identifiers differ from those that :func:`shorten_names` sets."""
    for node in nodes(schema):
        expected_id = str(node["file"]) if _is_array_file(node) else None
        if node.get("__id__") != expected_id:
            raise ValueError("the identifier of an object does not match its array file")


def _is_array_file(node: dict[str, Any]) -> bool:
    return bool(node["__loader__"] == "NdArrayNode" and node["type"] == "numpy")
