"""Data files: what is known about them, where they are, and whether they are the right ones.

``registry.toml`` has the checksum, size, origin and description of each file. The files are derived
from public copies of the original releases, mostly with a ``domain`` column in front. One of them,
whose licence allows it, is in this folder.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from domainwise.checks.arguments import check_arguments

_ENVIRONMENT = "DOMAINWISE_DATA"
_PACKAGE = Path(__file__).parent

# Files whose checksum was right in this process, by path, size and modification time.
_VERIFIED: set[tuple[str, int, int]] = set()


@dataclass(frozen=True)
class DataFile:
    """One data set as its loader returns it by default, and its file."""

    name: str
    file: str
    sha256: str
    rows: int
    domains: int
    domain: str
    features: int
    target: str
    description: str
    origin: str
    descr: str
    classes: int | None = None

    @property
    def path(self) -> Path | None:
        """Where the file is; None if it is absent."""
        named = os.environ.get(_ENVIRONMENT)
        folders = [_PACKAGE, *([Path(named).expanduser()] if named else []), cache_dir()]
        paths = (folder / self.file for folder in folders)
        return next((path for path in paths if path.is_file()), None)


@cache
def data_files() -> dict[str, DataFile]:
    """Every data set by name, in the order in which users see them."""
    text = (files("domainwise.datasets") / "registry.toml").read_text(encoding="utf-8")
    return {name: DataFile(name, **entry) for name, entry in tomllib.loads(text).items()}


@dataclass(frozen=True)
class DatasetInfo:
    """One line of :func:`list_datasets`.

    ``rows``, ``domains``, ``features``, ``target`` and ``classes`` describe what the loader returns
    by default; ``classes`` is None for a continuous target. ``path`` is where the file is, None if
    it is absent.
    """

    name: str
    file: str
    path: Path | None
    rows: int
    domains: int
    features: int
    target: str
    classes: int | None
    description: str

    @property
    def present(self) -> bool:
        """Whether the file is on this machine (its checksum is not checked)."""
        return self.path is not None


def list_datasets() -> list[DatasetInfo]:
    """List every data set that has a loader, and whether its file is on this machine.

    No file is read: sizes are those of the files that the loaders accept.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> from domainwise.datasets import list_datasets
    >>> [info.name for info in list_datasets() if info.classes is None]
    ['parkinsons', 'bike', 'communities', 'kc_house']
    """
    names = [field.name for field in fields(DatasetInfo)]
    return [
        DatasetInfo(**{name: getattr(entry, name) for name in names})
        for entry in data_files().values()
    ]


def cache_dir() -> Path:
    """Folder for data files that are not in ``$DOMAINWISE_DATA``."""
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification asks for relative paths to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "domainwise"


def read_table(name: str, as_frame: bool) -> Any:
    """Read the file of a data set into a pandas frame, after checking it and ``as_frame``."""
    check_arguments(f"load_{name}", as_frame=as_frame)
    entry = data_files()[name]
    path = verified_path(entry)
    try:
        import pandas as pd

        if path.suffix == ".parquet":
            return pd.read_parquet(path)
    except ImportError as error:
        needed = "pandas and pyarrow" if path.suffix == ".parquet" else "pandas"
        raise ImportError(
            f'reading {entry.file} needs {needed}: pip install "domainwise[data]"'
        ) from error
    # pandas 3.1 reads every digit by default and deprecates the argument.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact = {"float_precision": "round_trip"} if version < (3, 1) else {}
    return pd.read_csv(path, **exact)


def verified_path(entry: DataFile) -> Path:
    """Path of the data file; an error if it is absent or not the expected one."""
    path = entry.path
    if path is None:
        named = os.environ.get(_ENVIRONMENT) or "not set"
        raise FileNotFoundError(
            f"{entry.file} was not found in ${_ENVIRONMENT} ({named}) or in {cache_dir()}."
            f" Put the file in one of these folders. It is made from {entry.origin}"
        )
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if key not in _VERIFIED:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != entry.sha256:
            raise ValueError(
                f"{path} is not the expected file: its SHA-256 is {digest}, expected"
                f" {entry.sha256}. It may be incomplete or another version; it was made from"
                f" {entry.origin}"
            )
        _VERIFIED.add(key)
    return path
