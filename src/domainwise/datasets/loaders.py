"""Loaders for data files. All loaders return a ``Bunch`` with the same entries.

``registry.toml`` contains the checksum, size, origin and description of each file. The files were
made from public copies of the original releases; in most of them, the first column is ``domain``.
Only the file for :func:`load_heart` is included in the package, because its license permits that.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import Bunch

from domainwise.checks import needs_extra
from domainwise.checks.arguments import POSITIVE, check_arguments

__all__ = [
    "DatasetInfo",
    "list_datasets",
    "load_adult",
    "load_bike",
    "load_communities",
    "load_cytof",
    "load_facies",
    "load_gvhd",
    "load_heart",
    "load_hipc",
    "load_kc_house",
    "load_landmine",
    "load_oilwells",
    "load_parkinsons",
    "load_shoppers",
]

_FOLDER_VARIABLE = "DOMAINWISE_DATA"
_PACKAGE_FOLDER = Path(__file__).parent
# Path, size and modification time of each file that this process has verified.
_VERIFIED_FILES: set[tuple[str, int, int]] = set()
Loader = TypeVar("Loader", bound=Callable[..., Bunch])


@cache
def registry_entries() -> dict[str, dict[str, Any]]:
    """Return the entries of ``registry.toml`` by name, in the order of :func:`list_datasets`."""
    return tomllib.loads((_PACKAGE_FOLDER / "registry.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set, as returned by :func:`list_datasets`.

    ``rows``, ``domains``, ``features``, ``target`` and ``classes`` describe what the loader returns
    by default; ``classes`` is None for a continuous target. ``path`` is the path of the file, or
    None if the file is missing.
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
    """Describe all data sets that have a loader, and find their files on this machine.

    The files are not read.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> from domainwise.datasets import list_datasets
    >>> [info.name for info in list_datasets() if info.classes is None]
    ['parkinsons', 'bike', 'communities', 'kc_house']
    """
    infos = []
    for name, entry in registry_entries().items():
        values_by_field = {"classes": None, **entry, "name": name, "path": find_file(entry["file"])}
        infos.append(DatasetInfo(**{f.name: values_by_field[f.name] for f in fields(DatasetInfo)}))
    return infos


def find_file(file_name: str) -> Path | None:
    """Return the path of a data file, or None if the file is missing."""
    user_folder = os.environ.get(_FOLDER_VARIABLE)
    user_folders = [Path(user_folder).expanduser()] if user_folder else []
    paths = (folder / file_name for folder in (_PACKAGE_FOLDER, *user_folders, cache_dir()))
    return next((path for path in paths if path.is_file()), None)


def cache_dir() -> Path:
    """Return the cache folder, which is searched after ``$DOMAINWISE_DATA``."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that relative paths must be ignored.
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "domainwise"


def verified_path(name: str) -> Path:
    """Check that a data set's file exists and has the right checksum, and return its path."""
    entry = registry_entries()[name]
    file_name, expected_digest, origin = entry["file"], entry["sha256"], entry["origin"]
    path = find_file(file_name)
    if path is None:
        folder_text = os.environ.get(_FOLDER_VARIABLE) or "not set"
        raise FileNotFoundError(
            f"{file_name} was not found in ${_FOLDER_VARIABLE} ({folder_text}) or in "
            f"{cache_dir()}. Copy the file to one of these folders. It was made from {origin}."
        )
    file_status = path.stat()
    file_version = (str(path.resolve()), file_status.st_size, file_status.st_mtime_ns)
    if file_version not in _VERIFIED_FILES:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != expected_digest:
            raise ValueError(
                f"{path} is not the expected file: its SHA-256 is {digest}, but should be "
                f"{expected_digest}. It may be incomplete or a different version. Replace it with "
                f"the file made from {origin}."
            )
        _VERIFIED_FILES.add(file_version)
    return path


def read_table(name: str, as_frame: bool) -> Any:
    """Check ``as_frame`` and a data set's file, and read the file into a pandas data frame."""
    check_arguments(f"load_{name}", as_frame=as_frame)
    path = verified_path(name)
    with needs_extra(f"reading {path.name}", "data"):
        import pandas as pd

        if path.suffix == ".parquet":
            import pyarrow  # noqa: F401

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
    """Make the Bunch that a loader returns; text columns become indicators such as ``sex_Female``.

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
        DESCR=registry_entries()[name]["descr"],
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


#: Part of every loader's docstring: the parameter ``as_frame`` and the return value.
_SHARED_TEXT = """\
as_frame : bool, default=False
    Whether to return pandas objects instead of arrays. If True, ``frame`` contains all columns
    of the file, with text columns unchanged.

Returns
-------
Bunch
    ``data`` of shape {shape}, ``target``, ``sample_domain`` ({domain}), ``feature_names`` and the
    description ``DESCR``. In ``data``, text columns are replaced by indicators such as
    ``sex_Female``."""


def with_shared_docstring(loader: Loader) -> Loader:
    """Replace ``{shared}`` in a loader's docstring with the text that all loaders share."""
    entry = registry_entries()[loader.__name__.removeprefix("load_")]
    text = _SHARED_TEXT.format(shape=(entry["rows"], entry["features"]), domain=entry["domain"])
    loader.__doc__ = cleandoc(loader.__doc__ or "").replace("{shared}", text)
    return loader


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


@with_shared_docstring
def load_parkinsons(target: str = "motor_UPDRS", *, as_frame: bool = False) -> Bunch:
    """Parkinson's telemonitoring: 16 voice measures and clinical scores of 42 people.

    Parameters
    ----------
    target : {"motor_UPDRS", "total_UPDRS", "both"}, default="motor_UPDRS"
        The score to predict; "both" returns a target with two columns, motor first.
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_parkinsons
    >>> parkinsons = load_parkinsons("both")  # doctest: +SKIP
    >>> parkinsons.target.shape  # doctest: +SKIP
    (5875, 2)
    """
    score_names = ["motor_UPDRS", "total_UPDRS"]
    check_choice(target, "target", [*score_names, "both"])
    table = read_table("parkinsons", as_frame)
    features = list(table.loc[:, "Jitter(%)":"PPE"].columns)
    target_columns = score_names if target == "both" else target
    return make_bunch("parkinsons", table, as_frame, features, target_columns)


@with_shared_docstring
def load_gvhd(target: str = "t_cell", *, ungated: bool = True, as_frame: bool = False) -> Bunch:
    """Graft-versus-host disease (FlowCAP-I): T cells and other cells in 12 samples; 6 channels.

    Parameters
    ----------
    target : {"t_cell", "label"}, default="t_cell"
        "t_cell" is 1 for T cells; "label" is the manual gate, 0 to 5. The same number may stand
        for different populations in different samples.
    ungated : bool, default=True
        Whether to include cells outside all gates (their ``t_cell`` is 0).
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_gvhd
    >>> load_gvhd(ungated=False).data.shape  # doctest: +SKIP
    (198596, 6)
    """
    check_choice(target, "target", ["t_cell", "label"])
    check_arguments("load_gvhd", {"ungated": ["boolean"]}, ungated=ungated)
    table = read_table("gvhd", as_frame)
    if not ungated:
        table = table[table["label"] != 0]
    features = ["FSC.H", "SSC.H", "FL1.H", "FL2.H", "FL3.H", "FL4.H"]
    return make_bunch("gvhd", table, as_frame, features, target)


@with_shared_docstring
def load_oilwells(
    *,
    event_classes: Sequence[int] = (2, 6),
    sensors: Sequence[str] = ("P-TPT", "T-TPT"),
    missing: str = "drop_rows",
    as_frame: bool = False,
) -> Bunch:
    """3W oil wells: normal (0) and abnormal (1) windows of 60 seconds.

    Parameters
    ----------
    event_classes : sequence of {2, 3, 4, 6}, default=(2, 6)
        Event classes whose windows are included. Classes 3 and 4 have almost no normal windows.
    sensors : sequence of str, default=("P-TPT", "T-TPT")
        Any of P-PDG, P-TPT, T-TPT, P-MON-CKP, T-JUS-CKP, P-JUS-CKGL and QGL. Each sensor has
        four features: mean, std, slope, range.
    missing : {"drop_rows", "drop_columns", "keep"}, default="drop_rows"
        What to do with missing values: drop rows with missing values (10 windows by default), drop
        columns with missing values, or keep missing values as NaN.
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_oilwells
    >>> load_oilwells().feature_names[:2]  # doctest: +SKIP
    ['P-TPT_mean', 'P-TPT_std']
    """
    event_classes = check_subset(event_classes, "event_classes", (2, 3, 4, 6))
    all_sensors = ("P-PDG", "P-TPT", "T-TPT", "P-MON-CKP", "T-JUS-CKP", "P-JUS-CKGL", "QGL")
    sensors = check_subset(sensors, "sensors", all_sensors)
    check_choice(missing, "missing", ("keep", "drop_rows", "drop_columns"))
    table = read_table("oilwells", as_frame)
    table = table[table["event_class"].isin(event_classes)]
    statistics = ("mean", "std", "slope", "range")
    features = [f"{sensor}_{statistic}" for sensor in sensors for statistic in statistics]
    table, features = handle_missing(table, features, missing)
    return make_bunch("oilwells", table, as_frame, features, "label")


@with_shared_docstring
def load_facies(*, recruit: bool = False, missing: str = "keep", as_frame: bool = False) -> Bunch:
    """Well-log facies: 9 rock types in 9 wells, with 7 logs.

    Parameters
    ----------
    recruit : bool, default=False
        Whether to include the pseudo-well Recruit F9: 80 rows, all of facies 9.
    missing : {"keep", "drop_rows", "drop_columns"}, default="keep"
        The log PE was not measured in two wells. "keep" returns NaN for these values; make a
        ``SimpleImputer`` the first step of a pipeline to fit it to the source wells only.
        "drop_columns" drops PE (6 features, 9 wells), and "drop_rows" drops the two wells (3,164
        rows, 7 wells).
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_facies
    >>> load_facies(missing="drop_columns").data.shape  # doctest: +SKIP
    (4069, 6)
    """
    check_choice(missing, "missing", ("keep", "drop_rows", "drop_columns"))
    check_arguments("load_facies", {"recruit": ["boolean"]}, recruit=recruit)
    table = read_table("facies", as_frame)
    if not recruit:
        table = table[table["domain"] != "Recruit F9"]
    features = ["GR", "ILD_log10", "DeltaPHI", "PHIND", "PE", "NM_M", "RELPOS"]
    table, features = handle_missing(table, features, missing)
    return make_bunch("facies", table, as_frame, features, "Facies")


@with_shared_docstring
def load_hipc(target: str = "label", *, domain: str = "sample", as_frame: bool = False) -> Bunch:
    """HIPC T cells: 10 populations in 19 samples from 5 centers, with 7 markers.

    Rows are sorted by sample and population: shuffle them before taking subsets.

    Parameters
    ----------
    target : {"label", "population"}, default="label"
        The population as a number from 1 to 10, or its name.
    domain : {"sample", "center", "patient"}, default="sample"
        What a domain is: one of the 19 samples, 5 centers or 3 patients.
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_hipc
    >>> len(set(load_hipc(domain="center").sample_domain))  # doctest: +SKIP
    5
    """
    check_choice(target, "target", ["label", "population"])
    check_choice(domain, "domain", ["sample", "center", "patient"])
    table = read_table("hipc", as_frame)
    features = ["CCR7", "CD4", "CD45RA", "CD3", "HLADR", "CD38", "CD8"]
    domain_column = "domain" if domain == "sample" else domain
    return make_bunch("hipc", table, as_frame, features, target, domain_column)


@with_shared_docstring
def load_cytof(*, cofactor: float | None = None, as_frame: bool = False) -> Bunch:
    """Mass cytometry: 5 cell labels in 16 samples from several centers, with 8 markers.

    Parameters
    ----------
    cofactor : float or None, default=None
        If not None, raw counts x are transformed to ``arcsinh(x / cofactor)``; 5 is usual in mass
        cytometry.
    {shared}

    Examples
    --------
    >>> from domainwise.datasets import load_cytof
    >>> load_cytof(cofactor=5).data.shape  # doctest: +SKIP
    (80000, 8)
    """
    check_arguments("load_cytof", {"cofactor": [POSITIVE, None]}, cofactor=cofactor)
    table = read_table("cytof", as_frame)
    features = [f"m{j}" for j in range(1, 9)]
    if cofactor is not None:
        table[features] = np.arcsinh(table[features] / cofactor)
    return make_bunch("cytof", table, as_frame, features, "label")


@with_shared_docstring
def load_heart(*, as_frame: bool = False) -> Bunch:
    """Heart disease: patients with (1) and without (0) disease in 4 hospitals; 13 features.

    The file is part of the package. Missing values are NaN. Cholesterol values (``chol``) of 0 also
    stand for missing values: all values from Switzerland, and 49 from the VA hospital.

    Parameters
    ----------
    {shared}

    See Also
    --------
    make_synthetic : Simulated domains.

    References
    ----------
    A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano (1989), Heart Disease, UCI Machine Learning
    Repository, https://doi.org/10.24432/C52P4X (CC BY 4.0).

    Examples
    --------
    >>> from domainwise.datasets import load_heart
    >>> heart = load_heart()
    >>> heart.data.shape
    (920, 13)
    >>> sorted(set(heart.sample_domain.tolist()))
    ['cleveland', 'hungarian', 'switzerland', 'va']
    """
    return make_bunch("heart", read_table("heart", as_frame), as_frame)


def _make_loader(name: str) -> Callable[..., Bunch]:
    """Make a loader whose only argument is ``as_frame``."""

    def load(*, as_frame: bool = False) -> Bunch:
        return make_bunch(name, read_table(name, as_frame), as_frame)

    entry = registry_entries()[name]
    load.__name__ = load.__qualname__ = f"load_{name}"
    load.__doc__ = f"""{entry["description"]}.

    Parameters
    ----------
    {{shared}}

    Examples
    --------
    >>> from domainwise.datasets import load_{name}
    >>> load_{name}().data.shape  # doctest: +SKIP
    {entry["rows"], entry["features"]}
    """
    return with_shared_docstring(load)


load_landmine = _make_loader("landmine")
load_adult = _make_loader("adult")
load_shoppers = _make_loader("shoppers")
load_bike = _make_loader("bike")
load_communities = _make_loader("communities")
load_kc_house = _make_loader("kc_house")
