"""Loaders for the data sets of the experiments and benchmarks, which return a ``Bunch`` each.

``data.toml`` contains the checksum, size, origin and description of each file. The files were made
from public copies of the original releases; in most of them, the first column is ``domain`` and the
last one is the target. They are read from the folder ``$DOMAINWISE_DATA``, or else from
``domainwise`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, and their SHA-256 digests are checked.

A ``Bunch`` contains ``data``, ``target``, ``sample_domain``, ``feature_names`` and the description
``DESCR``; with ``as_frame=True``, its values are pandas objects, and ``frame`` contains all columns
of the file. In ``data``, text columns are replaced by indicators such as ``sex_Female``.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from domainwise.datasets import load_heart as load_heart
from domainwise.datasets import make_synthetic as make_synthetic

FOLDER_VARIABLE = "DOMAINWISE_DATA"
#: Entries of ``data.toml`` by name.
DATA_SETS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("data.toml").read_text(encoding="utf-8")
)


def list_datasets() -> str:
    """Return one line for each data set: its size, whether its file is here, and what it is."""
    lines = []
    for name, entry in DATA_SETS.items():
        size = f"{entry['rows']:>7,} rows, {entry['domains']:>3} domains"
        presence = "present" if find_file(entry["file"]) else "missing"
        lines.append(f"{name:<15} {size}  {presence}  {entry['description']}")
    return "\n".join(lines)


def find_file(file_name: str) -> Path | None:
    """Return the path of a data file, or None if the file is missing."""
    user_folder = os.environ.get(FOLDER_VARIABLE)
    user_folders = [Path(user_folder).expanduser()] if user_folder else []
    paths = (folder / file_name for folder in (*user_folders, cache_dir()))
    return next((path for path in paths if path.is_file()), None)


def cache_dir() -> Path:
    """Return the cache folder, which is searched after ``$DOMAINWISE_DATA``."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that relative paths must be ignored.
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "domainwise"


def verified_path(name: str) -> Path:
    """Check that a data set's file exists and has the right checksum, and return its path."""
    entry = DATA_SETS[name]
    file_name, expected_digest, origin = entry["file"], entry["sha256"], entry["origin"]
    path = find_file(file_name)
    if path is None:
        folder_text = os.environ.get(FOLDER_VARIABLE) or "not set"
        raise FileNotFoundError(
            f"{file_name} was not found in ${FOLDER_VARIABLE} ({folder_text}) or in "
            f"{cache_dir()}. Copy the file to one of these folders. It was made from {origin}."
        )
    status = path.stat()
    digest = file_digest(path.resolve(), status.st_size, status.st_mtime_ns)
    if digest != expected_digest:
        raise ValueError(
            f"{path} is not the expected file: its SHA-256 is {digest}, but should be "
            f"{expected_digest}. It may be incomplete or a different version. Replace it with "
            f"the file made from {origin}."
        )
    return path


@cache
def file_digest(path: Path, size: int, modified: int) -> str:
    """Return the SHA-256 digest of a file, which is read again only if it has changed."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_table(name: str) -> Any:
    """Check a data set's file, and read it into a pandas data frame."""
    path = verified_path(name)
    import pandas as pd

    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    # pandas 3.1 reads all digits by default and deprecates ``float_precision``.
    pandas_version = tuple(map(int, pd.__version__.split(".")[:2]))
    read_options = {"float_precision": "round_trip"} if pandas_version < (3, 1) else {}
    return pd.read_csv(path, **read_options)


def make_bunch(
    name: str,
    table: Any,
    as_frame: bool,
    features: list[str] | None = None,
    target: str | list[str] | None = None,
    domain: str = "domain",
) -> Bunch:
    """Make the Bunch that a loader returns.

    By default, the last column is the target, and all others except the first are features.
    """
    import pandas as pd

    table = table.reset_index(drop=True)
    data = pd.get_dummies(table[features or list(table.columns[1:-1])]).astype(np.float64)
    return Bunch(
        data=data if as_frame else data.to_numpy(),
        target=_labels(table[target or table.columns[-1]], as_frame),
        sample_domain=_labels(table[domain].rename("sample_domain"), as_frame),
        feature_names=list(data.columns),
        DESCR=DATA_SETS[name]["descr"],
        **({"frame": table} if as_frame else {}),
    )


def _labels(column: Any, as_frame: bool) -> Any:
    """Return targets or domains, with integers as int64 and categories as strings."""
    if column.ndim == 1 and column.dtype.kind != "f":
        column = column.astype(np.int64 if column.dtype.kind in "iu" else str)
    if as_frame:
        return column
    array = column.to_numpy()
    # Fixed-width strings can be sorted, and are the same with every pandas version.
    return array if array.dtype.kind in "fiu" else array.astype(str)


def handle_missing(table: Any, features: list[str], missing: str) -> tuple[Any, list[str]]:
    """Keep missing values, or drop the rows or columns that contain them."""
    is_missing = table[features].isna()
    if missing == "drop_rows":
        table = table[~is_missing.any(axis=1)]
    elif missing == "drop_columns":
        features = [name for name in features if not is_missing[name].any()]
    if len(table) == 0 or not features:
        raise ValueError(
            f"missing={missing!r} leaves {len(table)} rows and {len(features)} features. Use "
            "missing='keep' to keep missing values as NaN."
        )
    return table, features


def check_choice(choice: object, name: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``choice``, the value of the argument ``name``, is accepted."""
    if choice not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {choice!r}")


def check_subset(values: Any, name: str, choices: Sequence[Any]) -> list[Any]:
    """Return values as a list; raise ValueError if it is empty or contains invalid values."""
    value_list = [values] if isinstance(values, (str, int)) else list(values)
    if not value_list or not all(value in choices for value in value_list):
        raise ValueError(
            f"{name} must contain one or more of {', '.join(map(repr, choices))}; got {values!r}"
        )
    return value_list


def load_parkinsons(target: str = "motor_UPDRS", *, as_frame: bool = False) -> Bunch:
    """Parkinson's telemonitoring: 16 voice measures and clinical scores of 42 people.

    ``target`` is "motor_UPDRS", "total_UPDRS", or "both" for two columns, motor first.
    """
    score_names = ["motor_UPDRS", "total_UPDRS"]
    check_choice(target, "target", [*score_names, "both"])
    table = read_table("parkinsons")
    features = list(table.loc[:, "Jitter(%)":"PPE"].columns)
    target_columns = score_names if target == "both" else target
    return make_bunch("parkinsons", table, as_frame, features, target_columns)


def load_gvhd(target: str = "t_cell", *, ungated: bool = True, as_frame: bool = False) -> Bunch:
    """Graft-versus-host disease (FlowCAP-I): T cells and other cells in 12 samples; 6 channels.

    The target "t_cell" is 1 for T cells; "label" is the manual gate, 0 to 5, whose numbers may
    stand for different populations in different samples. ``ungated`` includes cells outside all
    gates (their ``t_cell`` is 0).
    """
    check_choice(target, "target", ["t_cell", "label"])
    table = read_table("gvhd")
    if not ungated:
        table = table[table["label"] != 0]
    features = ["FSC.H", "SSC.H", "FL1.H", "FL2.H", "FL3.H", "FL4.H"]
    return make_bunch("gvhd", table, as_frame, features, target)


def load_oilwells(
    *,
    event_classes: Sequence[int] = (2, 6),
    sensors: Sequence[str] = ("P-TPT", "T-TPT"),
    missing: str = "drop_rows",
    as_frame: bool = False,
) -> Bunch:
    """3W oil wells: normal (0) and abnormal (1) windows of 60 seconds.

    Event classes 3 and 4 have almost no normal windows. Each sensor has four features: mean, std,
    slope and range. ``missing`` is "drop_rows" (10 windows by default), "drop_columns" or "keep".
    """
    event_classes = check_subset(event_classes, "event_classes", (2, 3, 4, 6))
    all_sensors = ("P-PDG", "P-TPT", "T-TPT", "P-MON-CKP", "T-JUS-CKP", "P-JUS-CKGL", "QGL")
    sensors = check_subset(sensors, "sensors", all_sensors)
    check_choice(missing, "missing", ("keep", "drop_rows", "drop_columns"))
    table = read_table("oilwells")
    table = table[table["event_class"].isin(event_classes)]
    statistics = ("mean", "std", "slope", "range")
    features = [f"{sensor}_{statistic}" for sensor in sensors for statistic in statistics]
    table, features = handle_missing(table, features, missing)
    return make_bunch("oilwells", table, as_frame, features, "label")


def load_facies(*, recruit: bool = False, missing: str = "keep", as_frame: bool = False) -> Bunch:
    """Well-log facies: 9 rock types in 9 wells, with 7 logs.

    ``recruit`` includes the pseudo-well Recruit F9: 80 rows, all of facies 9. The log PE was not
    measured in two wells: ``missing`` keeps these values as NaN ("keep"), drops PE ("drop_columns":
    6 features, 9 wells) or drops the two wells ("drop_rows": 3,164 rows, 7 wells).
    """
    check_choice(missing, "missing", ("keep", "drop_rows", "drop_columns"))
    table = read_table("facies")
    if not recruit:
        table = table[table["domain"] != "Recruit F9"]
    features = ["GR", "ILD_log10", "DeltaPHI", "PHIND", "PE", "NM_M", "RELPOS"]
    table, features = handle_missing(table, features, missing)
    return make_bunch("facies", table, as_frame, features, "Facies")


def load_hipc(target: str = "label", *, domain: str = "sample", as_frame: bool = False) -> Bunch:
    """HIPC T cells: 10 populations in 19 samples from 5 centers, with 7 markers.

    The target is the population as a number from 1 to 10 ("label"), or its name ("population"). A
    domain is one of the 19 samples ("sample"), 5 centers ("center") or 3 patients ("patient").
    Rows are sorted by sample and population: shuffle them before taking subsets.
    """
    check_choice(target, "target", ["label", "population"])
    check_choice(domain, "domain", ["sample", "center", "patient"])
    table = read_table("hipc")
    features = ["CCR7", "CD4", "CD45RA", "CD3", "HLADR", "CD38", "CD8"]
    domain_column = "domain" if domain == "sample" else domain
    return make_bunch("hipc", table, as_frame, features, target, domain_column)


def load_cytof(*, cofactor: float | None = None, as_frame: bool = False) -> Bunch:
    """Mass cytometry: 5 cell labels in 16 samples from several centers, with 8 markers.

    Raw counts x are transformed to ``arcsinh(x / cofactor)`` unless ``cofactor`` is None; 5 is
    usual in mass cytometry.
    """
    table = read_table("cytof")
    features = [f"m{j}" for j in range(1, 9)]
    if cofactor is not None:
        table[features] = np.arcsinh(table[features] / cofactor)
    return make_bunch("cytof", table, as_frame, features, "label")


def load_plain(name: str, *, as_frame: bool = False) -> Bunch:
    """Load a data set whose first column is the domain and whose last column is the target."""
    return make_bunch(name, read_table(name), as_frame)


load_landmine = partial(load_plain, "landmine")
load_adult = partial(load_plain, "adult")
load_shoppers = partial(load_plain, "shoppers")
load_bike = partial(load_plain, "bike")
load_communities = partial(load_plain, "communities")
load_kc_house = partial(load_plain, "kc_house")
load_impact_trials = partial(load_plain, "impact_trials")
load_large_adult = partial(load_plain, "large_adult")
load_large_airbnb = partial(load_plain, "large_airbnb")
load_large_beijing = partial(load_plain, "large_beijing")
load_large_bike = partial(load_plain, "large_bike")
load_large_kc_house = partial(load_plain, "large_kc_house")
