import numpy as np
import pytest

from reproduction.run import compute_long_run, synthetic_jobs
from reproduction.trials import Trial


def test_a_long_run_begins_with_the_tables_own_repeats(tiny_case):
    row = compute_long_run(tiny_case, 0, n_repeats=3)
    values = [
        Trial(tiny_case, "paper", repeat, ("svm",), 0).run()[0]["metrics"]["accuracy"]
        for repeat in range(3)
    ]
    assert row["mean"] == pytest.approx(np.mean(values))
    assert row["standard_error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))


def test_a_quick_run_has_no_long_runs(tiny_case):
    jobs = {
        quick: [job.key for job in synthetic_jobs([tiny_case], quick=quick, root_seed=0)]
        for quick in (True, False)
    }
    assert set(jobs[False]) - set(jobs[True]) == {("long_run", tiny_case.key, "svm")}
