"""Every case on real data runs, in its quick size."""

from dataclasses import replace

import pytest

from reproduction.protocols import TABLES
from reproduction.trials import Trial, make_split

CASES = [
    case.quick() for table in TABLES.values() for case in table.cases if case.source != "synthetic"
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_a_case_runs_on_its_data(case, data_dir, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(data_dir))
    rows = Trial(case, "paper", 0, ("majority", "dcm"), 0).run()
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    assert all(set(row["metrics"]) >= set(case.metrics[:1]) for row in rows)
    assert len(rows[0]["train_domains"]) == case.train_domains
    assert len(rows[0]["test_domains"]) == case.test_domains


@pytest.mark.parametrize(
    ("key", "methods"), [("oil/facies", ("sca", "mda", "mida")), ("parkinsons/motor", ("mida",))]
)
@pytest.mark.parametrize("setting", ["paper", "tuned"])
def test_methods_that_are_not_in_the_paper_run_too(key, methods, setting, data_dir, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(data_dir))
    case = next(case for case in CASES if case.key == key)
    case = replace(case, tuning_rows=10, tuning_folds=2)
    rows = Trial(case, setting, 0, methods, 0).run()
    assert [row["status"] for row in rows] == ["ok"] * len(methods), rows


def test_gvhd_samples_keep_their_share_of_t_cells(data_dir, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(data_dir))
    case = next(case for case in CASES if case.key == "gvhd/n1000")
    split = make_split(case, 0, 0)
    assert len(split.X) == case.train_domains * case.rows_per_domain
    assert 0.05 < split.y.mean() < 0.25
