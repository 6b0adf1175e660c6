"""What a quick evaluation skips, how many workers are used, and which rows are scored."""

from dataclasses import replace

import numpy as np
import pytest

from domainwise import evaluate
from domainwise.base import process as runner
from domainwise.evaluation import plan
from domainwise.evaluation.plan import plan_quick, workers_for
from domainwise.evaluation.problem import make_problem, outer_splits
from domainwise.models.registry import choose_methods


def table(n_domains=4, n=500, seed=0):
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n)
    X = rng.normal(size=(len(domain), 3)) + rng.normal(size=(n_domains, 3))[domain]
    return X, (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int), domain


def problem(**options):
    asked = dict(task="auto", scoring=None, max_rows=None, random_state=0) | options
    return make_problem(*table(), **asked)


def planned(monkeypatch, seconds, methods=None, max_rows="auto"):
    monkeypatch.setattr(plan, "seconds_per_cost", lambda *about: seconds)
    return plan_quick(problem(), choose_methods(methods), None, None, max_rows, 1)


def test_a_quick_evaluation_uses_fewer_rows_and_then_skips_the_slowest_methods(monkeypatch):
    fast = planned(monkeypatch, 0.01)
    assert (len(fast.problem.y), len(fast.methods), fast.left_out) == (600, 7, {})
    slow = planned(monkeypatch, 0.5)
    assert len(slow.problem.y) == 300
    assert list(slow.left_out) == ["ensemble", "invariantridge"]
    assert "would take too long are not run (ensemble, invariantridge)" in slow.description
    slowest = planned(monkeypatch, 1000.0)
    assert [method.key for method in slowest.methods] == ["constant", "linear"]


def test_methods_chosen_by_name_are_never_skipped(monkeypatch):
    slow = planned(monkeypatch, 1000.0, "linear,ensemble", max_rows=200)
    assert [method.key for method in slow.methods] == ["linear", "ensemble"]
    assert len(slow.problem.y) == 200


def test_models_are_fitted_to_drawn_rows_and_scored_on_all_rows_of_held_out_domains():
    X, y, domain = table()
    evaluation = evaluate(X, y, domain, methods=["linear"], max_rows=80, progress=False)
    records = evaluation.records["linear"]
    assert [len(record.row) for record in records] == [500] * 4
    assert evaluation.facts["rows"] == 80
    assert any(
        "80 of 2,000 rows" in note and "scored on 2,000" in note for note in evaluation.notes
    )
    drawn = problem().drawn(80)
    few = replace(drawn, parent=replace(drawn.parent, max_scored=400))
    (_, test), *_ = outer_splits(few, None)
    assert [len(rows) for rows in few.scored_rows(test)] == [100]
    half = test[::2]  # a split from the user that holds out a part of a domain
    assert few.full.index[few.scored_rows(half)[0]].tolist() == few.index[half].tolist()


def test_a_quick_evaluation_states_the_number_of_rows_in_one_note():
    X, y, domain = table()
    result = evaluate(X, y, domain, methods=["constant"], quick=True, progress=False)
    (note,) = [note for note in result.notes if "600 of 2,000 rows" in note]
    assert note == result.notes[0] == result.facts["quick"]
    assert "drawn evenly from the domains" in note


@pytest.mark.parametrize("quick", [False, True])
def test_two_domains_are_held_out_one_at_a_time(quick):
    X, y, domain = table(2, 40)
    evaluation = evaluate(X, y, domain, methods=["constant", "linear"], quick=quick, progress=False)
    assert len(evaluation.domains) == 2
    assert any("chosen by cross-validation over rows" in note for note in evaluation.notes)


def test_memory_limits_the_number_of_workers_and_little_work_needs_one(monkeypatch):
    monkeypatch.setattr(runner, "effective_n_jobs", lambda n_jobs: 16 if n_jobs < 0 else n_jobs)
    monkeypatch.setattr(runner, "available_memory", lambda: 2_000_000_000)
    some = problem()
    assert workers_for(some, -1, 100.0) < 16
    assert workers_for(some, 3, 100.0) == 3
    assert workers_for(some, -1, 1.0) == 1
    assert workers_for(some, None, 100.0) == 1
    monkeypatch.setattr(runner, "available_memory", lambda: 10**12)
    assert workers_for(some, -1, 100.0) == 16
