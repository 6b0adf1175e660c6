"""What is known about each data file without opening it: checksum, size, origin, description.

It stands in ``registry.toml``. The files are derived from public copies of the original releases
(mostly a ``domain`` column added to the original columns) and are never part of this package.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class DataFile:
    """One data set as its loader returns it by default, and the file it comes from."""

    name: str
    file: str
    sha256: str
    rows: int
    domains: int
    features: int
    target: str
    description: str
    origin: str
    descr: str
    classes: int | None = None


@cache
def data_files() -> dict[str, DataFile]:
    """Every data set by name, in the order in which users see them."""
    text = (files("domainwise.datasets") / "registry.toml").read_text(encoding="utf-8")
    return {name: DataFile(name, **entry) for name, entry in tomllib.loads(text).items()}
