import numpy as np
import pytest

from domainwise.paper.reproduce import LongRun, plan_long_runs
from domainwise.paper.trials import Trial


def test_a_long_run_begins_with_the_tables_own_repeats(tiny_case):
    (row,) = LongRun(tiny_case, 0, repeats=3).run()
    values = [
        Trial(tiny_case, "paper", repeat, ("svm",), 0).run()[0]["metrics"]["accuracy"]
        for repeat in range(3)
    ]
    assert row["mean"] == pytest.approx(np.mean(values))
    assert row["standard_error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))


def test_long_runs_are_done_once(tiny_case):
    assert len(plan_long_runs([tiny_case], [], root_seed=0)) == 1
    assert plan_long_runs([tiny_case], [{"case": tiny_case.key}], root_seed=0) == []
