"""The paper's experiments, declared in ``protocols.toml``: what one runner needs to know.

What the paper prints is in :mod:`domainwise.paper.printed`. A table is a set of cases; a case is
one data set, one way of splitting its domains, and the methods to compare there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from domainwise.paper.cases import Case, Table

_TEXT = (files("domainwise.paper") / "protocols.toml").read_text(encoding="utf-8")
_DECLARED = tomllib.loads(_TEXT)


def _names(listed: Sequence[str]) -> tuple[str, ...]:
    """A list of names, with those of a group in place of ``*group``."""
    groups = _DECLARED["groups"]
    parts = (groups[name[1:]] if name.startswith("*") else [name] for name in listed)
    return tuple(name for part in parts for name in part)


def _table(key: str, declared: Mapping[str, Any]) -> Table:
    cases = []
    for name, own in declared["cases"].items():
        values = {**declared["shared"], **own}
        lists = {field: _names(values[field]) for field in ("metrics", "methods", "tuned_methods")}
        cases.append(Case(key=f"{key}/{name}", **{**values, **lists}))
    return Table(
        key=key,
        title=declared["title"],
        cases=tuple(cases),
        about=declared["about"],
        stand_in=declared.get("stand_in", ""),
        data_files=tuple(declared.get("data_files", ())),
    )


TABLES: dict[str, Table] = {
    key: _table(key, declared) for key, declared in _DECLARED["tables"].items()
}


def select_tables(name: str) -> tuple[Table, ...]:
    """The tables a user names: one of them, or "all"; a ValueError where there is no such table."""
    if name == "all":
        return tuple(TABLES.values())
    if name not in TABLES:
        raise ValueError(f"no table is called {name!r}; choose {', '.join(TABLES)} or all")
    return (TABLES[name],)


def find_case(key: str) -> Case:
    """The case with this key, in full size."""
    return {case.key: case for table in TABLES.values() for case in table.cases}[key]
