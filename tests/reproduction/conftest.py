"""A case small enough to be run many times."""

from collections.abc import Iterator

import pytest

from reproduction.protocols import TABLES, Case, Table


@pytest.fixture
def tiny_case() -> Case:
    return Case(
        key="synthetic/tiny",
        title="tiny",
        source="synthetic",
        source_params={"eta": 0.1, "n_domains": 5, "n_per_domain": 20, "n_features": 4},
        train_domains=3,
        test_domains=2,
        metrics=("accuracy", "label_auc", "g_mean", "score_auc"),
        gamma=0.2,
        epsilon=1e-3,
        methods=("majority", "svm", "coir", "dcm", "fastdcm", "algorithm1", "algorithm2"),
        tuned_methods=("svm", "dcm"),
        m=2,
        repeats=3,
        tuned_repeats=1,
        tuning_rows=10,
        tuning_folds=2,
        repeats_of={"algorithm1": 1},
    )


@pytest.fixture
def tiny_table(tiny_case: Case) -> Iterator[Table]:
    """Replace all tables of the package with a tiny one for the duration of a test."""
    table = Table("synthetic", "Tiny", (tiny_case,), "A tiny table.")
    before = dict(TABLES)
    TABLES.clear()
    TABLES["synthetic"] = table
    yield table
    TABLES.clear()
    TABLES.update(before)
