"""What a plan contains for a time budget, how it is repeated, and which rows are scored."""

import json
from dataclasses import replace

import numpy as np
import pytest

from domainwise import evaluate
from domainwise.base import process as runner
from domainwise.base.files import to_json
from domainwise.evaluation import plan
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.plan import Costs, Plan, Size, clearly_worse, make_plan, workers_for
from domainwise.evaluation.problem import make_problem, outer_splits
from domainwise.models.registry import choose_methods

KEYS = tuple(method.key for method in choose_methods(None))


def table(n_domains=4, n=500, seed=0):
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n)
    X = rng.normal(size=(len(domain), 3)) + rng.normal(size=(n_domains, 3))[domain]
    return X, (X[:, 0] + rng.normal(size=len(X)) > 0).astype(int), domain


def problem(n_domains=4, n=500, **options):
    asked = dict(task="auto", scoring=None, max_rows=None, random_state=0) | options
    return make_problem(*table(n_domains, n), **asked)


def planned(some, methods=None, speed=None, **options):
    chosen = choose_methods(methods)
    with pytest.MonkeyPatch.context() as patch:
        if speed is not None:
            patch.setattr(plan, "measure_speed", lambda: speed)
        return make_plan(some, chosen, can_skip=methods is None, **options)


def test_a_small_table_is_evaluated_in_full_and_nothing_is_timed(monkeypatch):
    monkeypatch.setattr(plan, "measure_speed", lambda: pytest.fail("timed"))
    assert planned(problem()).sizes == (Size(2000, 4, KEYS),)
    assert planned(problem(12, 50)).sizes == (Size(600, 10, KEYS),)


def test_a_smaller_budget_means_fewer_groups_then_fewer_methods_and_then_fewer_rows():
    some = problem(12, 2000)
    costs = Costs(some, choose_methods(None), None, False)
    full_seconds = costs.total(KEYS, 24_000, 10) / plan.FIT_SHARE
    budgets = [share * full_seconds for share in (1.01, 0.6, 0.15, 0.05, 0.001)]
    plans = [planned(some, speed=1.0, time_budget=budget) for budget in budgets]
    assert plans[0].sizes == (Size(24_000, 10, KEYS),)
    for budget, made in zip(budgets[:-1], plans[:-1], strict=True):
        assert made.seconds <= plan.FIT_SHARE * budget
        seconds = sum(costs.total(size.methods, size.rows, size.groups) for size in made.sizes)
        assert made.seconds == pytest.approx(seconds, abs=0.06)
        assert sorted(size.rows for size in made.sizes) == [size.rows for size in made.sizes]
        assert {"constant", "linear"} <= set(made.sizes[-1].methods)
    folds = [made.sizes[-1].groups for made in plans]
    n_methods = [len(made.sizes[-1].methods) for made in plans]
    rows = [made.sizes[-1].rows for made in plans]
    for values in (folds, n_methods, rows):
        assert values == sorted(values, reverse=True)
    assert folds[1] == 5
    assert (rows[2], n_methods[2] < 7) == (24_000, True)
    assert len(plans[2].sizes) > 1  # fewer rows come first, on which all methods are compared
    assert plans[2].sizes[0].methods == KEYS
    assert rows[-1] < 24_000


def test_a_slow_machine_has_a_smaller_plan():
    some = problem(12, 2000)
    fast, slow = (planned(some, speed=speed, time_budget=300) for speed in (1.0, 10.0))
    assert slow.seconds < 0.2 * fast.seconds


def test_methods_chosen_by_name_are_never_skipped():
    made = planned(problem(4, 5000), "linear,ensemble", 1000.0, time_budget=5)
    assert [size.methods for size in made.sizes] == [("linear", "ensemble")] * len(made.sizes)
    assert made.sizes[-1].rows < 20_000
    quick = planned(problem(4, 5000), None, 1000.0, quick=True)
    assert quick.sizes[-1].methods == ("constant", "linear")
    assert set(quick.left_out) == {*KEYS} - {"constant", "linear"}
    assert all("would take about" in reason for reason in quick.left_out.values())


def test_a_quick_evaluation_prefers_fewer_methods_to_fewer_rows():
    (size,) = planned(problem(20, 2500), speed=1.0, quick=True).sizes
    assert (size.rows, size.groups) == (50_000, 3)
    assert {"constant", "linear", "boosting"} <= set(size.methods) < {*KEYS}


def test_a_number_of_rows_replaces_the_budget():
    assert planned(problem(), max_rows=80, time_budget=1.0).sizes == (Size(80, 4, KEYS),)
    assert planned(problem(), max_rows=None, time_budget=1.0).sizes == (Size(2000, 4, KEYS),)


def two_sizes(n_domains=6, n=60):
    """An evaluation on 120 and 360 rows, in which the SVM is left out after the first size."""
    X, _, domain = table(n_domains, n)
    y = X[:, 0] + 0.05 * np.random.default_rng(1).normal(size=len(X))
    sizes = tuple(Size(rows, 3, ("constant", "linear", "svm")) for rows in (120, 360))
    arguments = dict(progress=False, methods=["constant", "svm", "linear"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("domainwise.evaluation.plan.make_plan", lambda *a, **k: Plan(sizes))
        return (X, y, domain), arguments, evaluate(X, y, domain, **arguments)


@pytest.fixture(scope="module")
def ladder():
    return two_sizes()


def test_methods_that_are_clearly_worse_are_not_run_on_more_rows(ladder):
    (X, y, domain), arguments, evaluation = ladder
    assert [size.methods for size in evaluation.plan.sizes] == [
        ("constant", "linear", "svm"),
        ("constant", "linear"),
    ]
    assert {r.key: r.n_rows for r in evaluation.results} == {
        "linear": 360,
        "constant": 360,
        "svm": 120,
    }
    few = evaluate(
        X,
        y,
        domain,
        max_rows=120,
        cv=plan.LeaveDomainsOut(max_splits=3, random_state=0),
        **arguments,
    )
    assert clearly_worse(few) == ["svm"]
    assert evaluation.scores["svm"] == pytest.approx(few.scores["svm"])
    by_size = [entry["scores"] for entry in evaluation.facts["sizes"]]
    assert by_size[0]["linear"] == pytest.approx(-few.find("linear").mean)
    assert evaluation.compared == evaluation.results[:2]
    assert any(note.startswith("SVR: compared on 120 rows only") for note in evaluation.notes)


def test_a_method_that_is_not_clearly_worse_is_kept(ladder):
    _, _, evaluation = ladder
    worse, best = evaluation.find("svm"), evaluation.find("linear")
    noisy = {d: s + (1 if i % 2 else -1) for i, (d, s) in enumerate(best.scores.items())}
    results = [best, replace(worse, scores=noisy, n_rows=best.n_rows)]
    assert clearly_worse(replace_results(evaluation, results)) == []
    lower = {d: s - 0.5 for d, s in best.scores.items()}
    results = [best, replace(worse, scores=lower, n_rows=best.n_rows)]
    assert clearly_worse(replace_results(evaluation, results)) == ["svm"]


def replace_results(evaluation, results):
    from domainwise.evaluation.results import Results

    return Results(results, evaluation.domains, evaluation.measure, {}, evaluation.facts)


def test_a_plan_that_is_given_back_repeats_the_numbers(ladder, tmp_path, monkeypatch):
    (X, y, domain), arguments, evaluation = ladder
    monkeypatch.setattr(plan, "measure_speed", lambda: pytest.fail("timed"))
    evaluate(X, y, domain, plan=evaluation, out=tmp_path / "first", **arguments)
    stored = tmp_path / "first" / "evaluation.json"
    contents = json.loads(stored.read_text("utf-8"))
    assert Plan.read(contents) == evaluation.plan
    for source in (contents["plan"], contents, stored, tmp_path / "first", evaluation.plan):
        repeated = evaluate(X, y, domain, plan=source, **arguments)
        assert repeated.scores == evaluation.scores
        assert repeated.plan == evaluation.plan
    read, _ = read_evaluation(tmp_path / "first")
    assert read.plan == evaluation.plan
    assert {r.key: r.n_rows for r in read.results} == {r.key: r.n_rows for r in evaluation.results}


def test_a_plan_that_cannot_be_used_is_refused(ladder, tmp_path):
    (X, y, domain), arguments, evaluation = ladder
    for source, words in [
        ({"groups": 3}, "is missing"),
        ({**to_json(evaluation.plan), "sizes": []}, "contains no methods"),
        (tmp_path / "absent.json", "does not exist"),
    ]:
        with pytest.raises(ValueError, match=words):
            evaluate(X, y, domain, plan=source, **arguments)
    own = replace(evaluation.plan, sizes=(Size(360, 3, ("mine",)),))
    with pytest.raises(ValueError, match="methods of your own that were not passed: mine"):
        evaluate(X, y, domain, plan=own, **arguments)


def test_an_evaluation_says_whether_the_order_may_change_with_more_rows():
    X, y, domain = table()
    arguments = dict(progress=False, methods=["constant", "linear"])
    few = evaluate(X, y, domain, max_rows=80, **arguments)
    (note,) = [note for note in few.notes if "order of the methods" in note]
    assert note.startswith("With all 2,000 rows, to which a model will be fitted,")
    assert not any("order of" in note for note in evaluate(X, y, domain, **arguments).notes)
    sizes = tuple(Size(rows, 4, ("constant", "linear")) for rows in (80, 400))
    grown = evaluate(X, y, domain, plan=Plan(sizes), **arguments)
    (note,) = [note for note in grown.notes if "order of the methods" in note]
    assert "unlikely to change" in note
    assert "between 80 and 400 rows" in note


def test_models_are_fitted_to_drawn_rows_and_scored_on_all_rows_of_held_out_domains():
    X, y, domain = table()
    evaluation = evaluate(X, y, domain, methods=["linear"], max_rows=80, progress=False)
    records = evaluation.records["linear"]
    assert [len(record.row) for record in records] == [500] * 4
    assert evaluation.facts["rows"] == 80
    assert evaluation.best.n_rows == 80
    assert any(
        "80 of 2,000 rows" in note and "scored on 2,000" in note for note in evaluation.notes
    )
    drawn = problem().drawn(80)
    few = replace(drawn, parent=replace(drawn.parent, max_scored=400))
    (_, test), *_ = outer_splits(few, None)
    assert [len(rows) for rows in few.scored_rows(test)] == [100]
    half = test[::2]  # a split from the user that holds out a part of a domain
    assert few.full.index[few.scored_rows(half)[0]].tolist() == few.index[half].tolist()


def test_a_quick_evaluation_says_first_what_it_omits():
    X, y, domain = table()
    result = evaluate(X, y, domain, methods=["constant"], quick=True, progress=False)
    assert result.notes[0] == result.facts["quick"]
    assert result.notes[0].startswith("Quick evaluation: domains are held out in 3 groups; scores")


@pytest.mark.parametrize("quick", [False, True])
def test_two_domains_are_held_out_one_at_a_time(quick):
    X, y, domain = table(2, 40)
    evaluation = evaluate(X, y, domain, methods=["constant", "linear"], quick=quick, progress=False)
    assert len(evaluation.domains) == 2
    assert any("chosen by cross-validation over rows" in note for note in evaluation.notes)


def test_many_domains_and_domains_of_very_different_sizes_are_all_scored():
    sizes = [400, *[5] * 60]
    domain = np.repeat(np.arange(61), sizes)
    X = np.random.default_rng(0).normal(size=(len(domain), 2))
    y = X[:, 0] + domain % 3
    some = make_problem(X, y, domain, task="auto", scoring=None, max_rows=None, random_state=0)
    assert planned(some, speed=1000.0, time_budget=1.0).sizes[-1].rows >= 4 * 61
    evaluation = evaluate(X, y, domain, methods=["linear"], max_rows=244, progress=False)
    assert sorted(evaluation.domains) == list(range(61))
    assert len(evaluation.best.known) == 61


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
