"""Fixtures shared by the whole suite."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from _pytest.doctest import DoctestModule

BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--every 10 runs a tenth of the tests of each file, one in any case."""
    parser.addoption("--every", type=int, default=1, metavar="N", help="an N-th of each file")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a part of every file: as many different tests as it may have, then further cases."""
    step, files = config.getoption("--every"), dict[Path, list[pytest.Item]]()
    if step == 1:
        return
    for item in items:
        files.setdefault(item.path, []).append(item)
    kept: set[pytest.Item] = set()
    for some in files.values():
        quota = -(-len(some) // step)
        firsts = {item.nodeid.partition("[")[0]: item for item in reversed(some)}
        first = _spread([*reversed(firsts.values())], quota)
        others = [item for item in some if item not in first]
        kept.update(first, _spread(others, quota - len(first)))
    items[:] = [item for item in items if item in kept]


def _spread(items: list[pytest.Item], n: int) -> list[pytest.Item]:
    """Return at most n of the items, evenly spread."""
    n = min(n, len(items))
    return [items[i * len(items) // n] for i in range(n)]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Any:
    """Look for doctests in src only.

    There a module of an extra that is not installed is passed over. A test module that was
    passed over so would stay half imported, and its tests would be missing without a word.
    """
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data files; a test that asks for it is skipped where there is none."""
    named = os.environ.get("DOMAINWISE_DATA")
    folder = Path(named) if named else BESIDE_THE_REPOSITORY
    if not folder.is_dir():
        pytest.skip(
            f"$DOMAINWISE_DATA is {named!r}, which is not a folder"
            if named
            else "no data files: $DOMAINWISE_DATA is unset and ../shared/data does not exist"
        )
    return folder


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forests, boosting and ensembles as they are, with few trees and kernels."""
    from domainwise.estimators.ensemble import members
    from domainwise.held_out.search import grids
    from domainwise.models import registry

    monkeypatch.setattr(registry, "N_TREES", 3)
    monkeypatch.setattr(grids, "MEMBER_GAMMAS", (1.0,))
    monkeypatch.setattr(members, "TREES", 8)
    monkeypatch.setattr(members, "COMPARED_TREES", 8)
    monkeypatch.setattr(members.MEMBER_TYPES["boosting"], "max_rounds", 20)


@pytest.fixture
def narrow_grids(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets methods choose from one value of some arguments, or of all.

    It is the second of the values, which is the middle one for widths.
    """
    from domainwise.held_out.search.grids import InUnits
    from domainwise.models.registry import METHODS

    def one_of(values: Any) -> Any:
        if isinstance(values, InUnits):
            return replace(values, values=values.values[1:2] or values.values)
        return values[1:2] or values

    def narrow(*names: str) -> None:
        for key, method in METHODS.items():
            grids = method.grids and tuple(
                {name: one_of(v) if not names or name in names else v for name, v in grid.items()}
                for grid in method.grids
            )
            monkeypatch.setitem(METHODS, key, replace(method, grids=grids))

    return narrow


@pytest.fixture(scope="session")
def hostile_labels() -> dict[str, tuple[Any, str]]:
    """24 labels that NumPy would change without a word, each with what the refusal says.

    Whoever turns labels into an array before they are checked takes them.
    """
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    gone, rows = "missing|NaN|None", np.arange(24)
    as_bytes = np.empty(24, dtype=object)
    as_bytes[:] = [b"a", b"a\0", b"b"] * 8
    own_text = np.dtypes.StringDType(na_object=None)
    return {
        "NaN among texts": (["a", float("nan"), "b"] * 8, gone),
        "None among texts": (pandas.Series(["a", None, "b"] * 8, dtype=object), gone),
        "a missing category": (pandas.Categorical(["a", None, "b"] * 8), gone),
        "a missing whole number": (pandas.array([1, None, 2] * 8, dtype="Int64"), gone),
        "null in Arrow": (arrow.array(["a", None, "b"] * 8), gone),
        "missing in NumPy's own text": (np.array(["a", None, "b"] * 8, own_text), gone),
        "masked": (np.ma.masked_array(rows % 3, mask=rows < 3), "missing values.*masked"),
        "no day": (np.array(["2024-01-01", "NaT", "2024-01-02"] * 8, "M8[D]"), "dates or dur"),
        "durations": (np.array([1, 2, 3] * 8, "m8[s]"), "dates or durations"),
        "records": (np.array([(1,), (2,), (3,)] * 8, [("site", int)]), "records"),
        "text that ends with a NUL character": (["a", "a\0", "b"] * 8, "NUL character"),
        "bytes that do": (as_bytes, "NUL character"),
        "lists of several lengths": ([[1], [1, 2], [3]] * 8, "one value for each row"),
        "too large for float64": ([2**53 + 1, 0.5, 1] * 8, "53 bits"),
        "too large for 64 bits": ([2**64, 1, 2] * 8, "64 bits"),
    }


@pytest.fixture(scope="session")
def hostile_rows() -> dict[str, tuple[Any, str, bool]]:
    """What is not a table of 24 rows of numbers, and what the refusal says.

    The truth value says whether text and dates in it may mean something to whoever passes rows on.
    """
    pandas = pytest.importorskip("pandas")
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    X = np.random.default_rng(0).normal(size=(24, 3))
    frame = pandas.DataFrame(X, columns=list("abc"))
    days = frame[["a"]].assign(day=pandas.date_range("2024-01-01", periods=24))
    dates = np.arange(72).reshape(24, 3)
    named = r"dates or times.*\('day'\)"
    return {
        "masked values": (np.ma.masked_array(X, mask=X > 1), "masked", False),
        "records": (np.array([tuple(r) for r in X], dtype="f8, f8, f8"), "structured array", False),
        "dict": ({"a": X[:, 0]}, "got dict", False),
        "set": ({1, 2}, "got set", False),
        "generator": ((row for row in X), "got generator", False),
        "None": (None, "got NoneType", False),
        "text": ("abc", "got str", False),
        "number": (np.array(3.0), "scalar|1 dimension", False),
        "column": (frame["a"], "2-dimensional", False),
        "dates": (dates.astype("M8[D]"), "dates or times", True),
        "durations": (dates.astype("m8[s]"), "dates or times", True),
        "frame with dates": (days, named, True),
        "polars with dates": (polars.from_pandas(days), named, True),
        "Arrow with dates": (arrow.table(days), named, True),
        "text in a cell": (
            frame.assign(a="x"),
            "could not convert string to float: 'x'",
            True,
        ),
        "sparse matrix": (scipy.sparse.csr_array(X), "[Ss]parse", True),
        "sparse columns": (frame.astype(pandas.SparseDtype(float)), "sparse columns", True),
    }


@pytest.fixture(scope="session")
def made_up_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a complete results file with invented scores.

    It exercises summaries and reports for every table without running anything.
    """

    def make(
        profile: str = "full",
        n_repeats: int = 8,
        tables: tuple[str, ...] = ("synthetic", "parkinsons", "gvhd", "landmine", "oil"),
        seed: int = 0,
    ) -> Path:
        from domainwise.base.files import ResultStore
        from reproduction.protocols import SETTINGS, TABLES

        folder = tmp_path_factory.mktemp("results")
        store = ResultStore(folder)
        store.open(root_seed=seed, profile=profile)
        rng = np.random.default_rng(seed)
        for name in tables:
            for case in TABLES[name].cases:
                sized = case.quick() if profile == "quick" else case
                for setting in SETTINGS:
                    store.append(_invented_rows(sized, setting, n_repeats, rng))
                store.append(_invented_times(sized, rng))
        store.append(_invented_pictures(rng))
        return folder

    return make


def _invented_rows(
    case: Any, setting: str, n_repeats: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    level = {"accuracy": 70.0, "rmse": 9.0}
    return [
        {
            "kind": "result",
            "status": "ok",
            "table": case.table,
            "case": case.key,
            "fingerprint": case.fingerprint(),
            "setting": setting,
            "repeat": repeat,
            "method": method,
            "n_train": 700 + repeat,
            "n_test": 300,
            "train_domains": ["0", "1"],
            "test_domains": ["2"],
            "metrics": {
                key: level.get(key, 0.7) * (1 + 0.02 * number + 0.05 * rng.standard_normal())
                for key in case.metrics
            },
            "selection": {"rule": "best mean score over held-out sources, 9 candidates"},
            "eigenvalues": [3.0],
            "invariance": {
                "domain_dependence": float(rng.uniform(0, 0.2)),
                "target_dependence": float(rng.uniform(0, 0.5)),
                "mean_mmd": float(rng.uniform()),
            },
            "warnings": [],
            "seconds": 0.1,
        }
        for repeat in range(n_repeats)
        for number, method in enumerate(case.methods_of(setting))
    ]


def _invented_times(case: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "kind": "timing",
            "status": "ok",
            "table": case.table,
            "case": case.key,
            "fingerprint": case.fingerprint(),
            "method": method,
            "seconds": float(10 ** rng.uniform(-2, 1)),
            "peak_mib": 200.0,
            "n_landmarks": None,
        }
        for method in case.methods
    ]


def _invented_pictures(rng: np.random.Generator) -> list[dict[str, Any]]:
    panels = [
        {
            "title": title,
            "n_rows": 40,
            "x": rng.normal(size=40).tolist(),
            "y": rng.normal(size=40).tolist(),
            "target": rng.choice([-1, 1], 40).tolist(),
        }
        for title in ("source domains", "unseen 1", "unseen 2", "unseen 3")
    ]
    rows: list[dict[str, Any]] = [
        {"kind": "projection", "method": method, "panels": panels}
        for method in ("coir", "dica", "dcm")
    ]
    spectrum = [4.0, *[1.0] * 30, 0.5, 0.3]
    rows.append(
        {
            "kind": "spectrum",
            "method": "algorithm1",
            "n_classes": 2,
            "n_domains": 3,
            "eigenvalues": spectrum,
        }
    )
    return rows
