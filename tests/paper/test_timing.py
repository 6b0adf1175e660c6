import json

from domainwise.paper.reproduce import ProjectionJob, SpectrumJob, plan_figures
from domainwise.paper.timing import TimingPoint, measure, plan_timing


def test_a_point_is_measured_in_a_process_of_its_own():
    (row,) = TimingPoint("synthetic/eta0.1-gamma0.1", "svm", quick=True, root_seed=0).run()
    assert row["status"] == "ok", row
    assert row["kind"] == "timing"
    assert 0 < row["seconds"] < 60
    assert row["peak_mib"] >= row["before_mib"] > 10
    json.dumps(row)


def test_a_point_that_fails_says_so(tiny_table):
    (row,) = TimingPoint("synthetic/tiny", "svm", quick=False, root_seed=0).run()
    assert row["status"] == "error"
    assert "synthetic/tiny" in row["error"]


def test_measured_points_are_not_measured_again(tiny_table):
    (case,) = tiny_table.cases
    points = plan_timing([case], [], quick=False, root_seed=0)
    assert {point.method for point in points} == set(case.methods) - {"majority"}
    done = {"case": case.key, "method": "svm", "fingerprint": case.fingerprint(), "status": "ok"}
    left = plan_timing([case], [done], quick=False, root_seed=0)
    assert {point.method for point in left} == {point.method for point in points} - {"svm"}
    assert measure(points[0])["n_train"] > 0


def test_the_figure_has_sources_and_three_unseen_domains():
    (row,) = ProjectionJob("dcm", 30, 0).run()
    assert [panel["title"] for panel in row["panels"]] == [
        "source domains",
        "unseen 1",
        "unseen 2",
        "unseen 3",
    ]
    assert row["n_informative"] == 1
    assert all(len(panel["x"]) == len(panel["target"]) for panel in row["panels"])


def test_the_spectrum_has_one_value_above_1_per_class_and_one_below_per_domain_less_one():
    (row,) = SpectrumJob(0, rows_per_domain=15).run()
    values = row["eigenvalues"]
    assert sum(value > 1 + 1e-6 for value in values) == row["n_classes"] - 1
    assert sum(value < 1 - 1e-6 for value in values) == row["n_domains"] - 1


def test_figures_are_made_once():
    jobs = plan_figures([], quick=True, root_seed=0)
    assert len(jobs) == 4
    done = [{"kind": "projection", "method": "dcm"}, {"kind": "spectrum", "method": "algorithm1"}]
    assert len(plan_figures(done, quick=True, root_seed=0)) == 2
