"""Find a data file, check that it is the right one, and read it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from domainwise.checks.arguments import check_arguments
from domainwise.datasets.registry import DataFile, data_files

_ENVIRONMENT = "DOMAINWISE_DATA"

# Files already found correct in this process, by path, size and modification time.
_VERIFIED: set[tuple[str, int, int]] = set()


@dataclass(frozen=True)
class DatasetInfo:
    """One line of :func:`list_datasets`.

    ``rows``, ``domains``, ``features``, ``target`` and ``classes`` describe what the loader returns
    by default; ``classes`` is None for a continuous target. ``path`` is where the file was found,
    None where it is absent.
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
        """Whether the file was found (its checksum is not looked at)."""
        return self.path is not None


def list_datasets() -> list[DatasetInfo]:
    """Every data set that has a loader, and whether its file is on this machine.

    Nothing is read: sizes are those of the files the loaders accept.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> from domainwise.datasets import list_datasets
    >>> [info.name for info in list_datasets() if info.classes is None]
    ['parkinsons', 'bike', 'communities', 'kc_house']
    """
    known = [field.name for field in fields(DatasetInfo) if field.name != "path"]
    return [
        DatasetInfo(path=_find(entry), **{name: getattr(entry, name) for name in known})
        for entry in data_files().values()
    ]


def cache_dir() -> Path:
    """Folder for data files when ``$DOMAINWISE_DATA`` does not have them."""
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification asks for relative paths to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "domainwise"


def read_table(name: str, as_frame: bool) -> Any:
    """Read the file of a data set into a pandas frame after checking it, and the option."""
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
    # pandas 3.1 reads every digit by default and deprecates asking for it.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact = {"float_precision": "round_trip"} if version < (3, 1) else {}
    return pd.read_csv(path, **exact)


def verified_path(entry: DataFile) -> Path:
    """Path of the data file; an error if it is absent or not the expected one."""
    path = _find(entry)
    if path is None:
        given = os.environ.get(_ENVIRONMENT) or "not set"
        raise FileNotFoundError(
            f"{entry.file} was not found: looked in ${_ENVIRONMENT} ({given}) and in {cache_dir()}."
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
                f" {entry.sha256}. It may be cut off or another version; it was made from"
                f" {entry.origin}"
            )
        _VERIFIED.add(key)
    return path


def _find(entry: DataFile) -> Path | None:
    given = os.environ.get(_ENVIRONMENT)
    folders = [*([Path(given).expanduser()] if given else []), cache_dir()]
    paths = (folder / entry.file for folder in folders)
    return next((path for path in paths if path.is_file()), None)
