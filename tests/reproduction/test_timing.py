import json

from domainwise.base.files import ResultStore
from reproduction.protocols import find_case
from reproduction.run import (
    compute_eigenvalues,
    compute_projection,
    make_plan,
    measure,
    measure_in_process,
    timing_jobs,
)


def test_a_fit_is_measured_in_a_separate_process():
    case = find_case("synthetic/eta0.1-gamma0.1").quick()
    job = next(j for j in timing_jobs([case], quick=True, root_seed=0) if j.method == "svm")
    (row,) = job.run()
    assert row["status"] == "ok", row
    assert (row["kind"], row["table"], row["case"]) == ("timing", "synthetic", case.key)
    assert row["fingerprint"] == case.fingerprint()
    assert 0 < row["seconds"] < 60
    assert row["peak_mib"] >= row["before_mib"] > 10
    json.dumps(row)


def test_a_failing_measurement_is_reported(tiny_table):
    row = measure_in_process("synthetic/tiny", "svm", False, 0)
    assert row["status"] == "error"
    assert "synthetic/tiny" in row["error"]


def test_existing_rows_are_not_computed_again(tiny_table, tmp_path):
    (case,) = tiny_table.cases
    store = ResultStore(tmp_path)
    store.open(root_seed=0, profile="full")
    options = {"quick": False, "root_seed": 0}
    plan = make_plan([tiny_table], store, **options)
    keys = {job.key for job in (*plan.parallel_jobs, *plan.serial_jobs) if hasattr(job, "key")}
    timed = {("timing", case.key, method) for method in set(case.methods) - {"majority"}}
    panels = {("projection", None, method) for method in ("coir", "dica", "dcm")}
    others = {("spectrum", None, "algorithm1"), ("long_run", case.key, "svm")}
    assert keys == timed | panels | others
    failed = ("timing", case.key, "dcm")
    for kind, name, method in sorted(keys, key=str):
        row = {"kind": kind, "method": method, "status": "ok"}
        row |= {} if name is None else {"case": name, "fingerprint": case.fingerprint()}
        row |= {"status": "error"} if (kind, name, method) == failed else {}
        store.append([row])
    plan = make_plan([tiny_table], store, **options)
    assert [job.key for job in plan.serial_jobs] == [failed]
    assert not any(hasattr(job, "key") for job in plan.parallel_jobs)
    assert measure(case.key, "svm", False, 0)["n_train"] > 0


def test_the_figure_has_sources_and_three_unseen_domains():
    row = compute_projection("dcm", 30, 0)
    assert [panel["title"] for panel in row["panels"]] == [
        "source domains",
        "unseen 1",
        "unseen 2",
        "unseen 3",
    ]
    assert row["n_informative"] == 1
    assert all(len(panel["x"]) == len(panel["target"]) for panel in row["panels"])


def test_the_spectrum_has_one_value_above_1_per_class_and_one_below_per_domain_less_one():
    row = compute_eigenvalues(15, 0)
    values = row["eigenvalues"]
    assert sum(value > 1 + 1e-6 for value in values) == row["n_classes"] - 1
    assert sum(value < 1 - 1e-6 for value in values) == row["n_domains"] - 1
