"""Evaluations on disk: they go on after a kill, refuse what is not theirs, can be read again."""

import json
import os
import signal
import time

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer

from domainwise import evaluate
from domainwise.evaluation.folder import read_evaluation
from domainwise.jobs.runner import Expected, TimeLeft
from domainwise.jobs.store import ResultsError
from domainwise.models.registry import METHODS as METHODS_BY_KEY

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

METHODS = ["constant", "linear", "kpca"]


def table(seed=0, n=20):
    rng = np.random.default_rng(seed)
    domain = np.repeat(["ayr", r"$\nosuch$", "cork"], n)
    X = rng.normal(size=(3 * n, 2)) + rng.normal(size=(3, 2))[np.repeat([0, 1, 2], n)]
    return X, np.where(X[:, 0] + rng.normal(size=3 * n) > 0, "yes", "no"), domain


def run(out=None, **change):
    given = dict(methods=METHODS, scoring="accuracy", progress=False, out=out) | change
    X, y, domain = given.pop("table", table())
    return evaluate(X, y, domain, **given)


def numbers(found):
    """All that must not depend on interruptions."""
    told = found.to_dict()
    for method in told["methods"]:
        del method["seconds"]
    return told


def forked(work):
    """Do something in a process of its own, and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def size_of(path):
    return path.stat().st_size if path.exists() else 0


@pytest.fixture(scope="module")
def undisturbed():
    return numbers(run())


def test_ten_kills_at_random_moments_change_no_number(tmp_path, undisturbed):
    rng = np.random.default_rng(0)
    killed = 0
    for number in range(10):
        out = tmp_path / str(number // 5)  # five times each, so that the end is reached, too
        results = out / "jobs" / "results.jsonl"
        child = forked(lambda out=out: run(out))
        goal = size_of(results) + rng.integers(4000)
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while size_of(results) < goal and os.waitid(os.P_PID, child, look) is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert killed > 1
    for folder in ("0", "1"):
        assert numbers(run(tmp_path / folder)) == undisturbed
        assert not list((tmp_path / folder / "jobs").glob(".*.parquet"))


def test_only_what_is_missing_is_done_again(tmp_path, undisturbed):
    run(tmp_path)
    results = tmp_path / "jobs" / "results.jsonl"
    lines = results.read_text("utf-8").splitlines(keepends=True)
    jobs = [place for place, line in enumerate(lines) if '"kind": "job"' in line]
    # The second job is finished but for its line, which is cut off in the middle.
    results.write_text("".join(lines[: jobs[1]]) + lines[jobs[1]][:40], "utf-8")
    done = []
    found = run(tmp_path, progress=lambda cost, rows: done.extend(rows))
    assert len(done) == 3 * len(METHODS) - 1
    assert numbers(found) == undisturbed
    done.clear()
    assert numbers(run(tmp_path, progress=lambda cost, rows: done.extend(rows))) == undisturbed
    assert not done


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": table(seed=1)}, "begun with table"),
        ({"methods": ["constant"]}, "begun with methods"),
        ({"random_state": 1}, "begun with"),
        ({"scoring": get_scorer("accuracy")}, "scoring by name"),
        ({"methods": [*METHODS[:2], ("kpca2", LogisticRegression(C=2.0))]}, "begun with methods"),
    ],
)
def test_another_table_or_question_is_refused_unless_forced(tmp_path, change, words):
    run(tmp_path, methods=METHODS[:2])
    before = (tmp_path / "jobs" / "results.jsonl").read_bytes()
    with pytest.raises(ValueError, match=words):
        run(tmp_path, **({"methods": METHODS[:2]} | change))
    assert (tmp_path / "jobs" / "results.jsonl").read_bytes() == before
    found = run(tmp_path, methods=["constant"], table=table(seed=1), force=True)
    assert [result.key for result in found.results] == ["constant"]


def test_of_two_processes_in_a_folder_one_is_kept_out(tmp_path):
    ready, begun = os.pipe()
    over, _end = os.pipe()

    def wait(cost, rows):
        os.write(begun, b"1")
        os.read(over, 1)

    child = forked(lambda: run(tmp_path, progress=wait))
    os.read(ready, 1)
    try:
        with pytest.raises(ResultsError, match="another run is writing"):
            run(tmp_path)
        with pytest.raises(ResultsError, match="another run is writing"):
            run(tmp_path, force=True)
    finally:
        os.kill(child, signal.SIGKILL)  # the system frees the folder
        os.waitpid(child, 0)
    assert run(tmp_path).results


def test_another_measure_costs_nothing_and_says_what_was_chosen_for_which(tmp_path):
    both = run(tmp_path, scoring=["accuracy", "balanced_accuracy"])
    done = []
    later = run(tmp_path, scoring="balanced_accuracy", progress=lambda *job: done.append(job))
    assert not done
    assert later.scores == both.others[0].scores
    assert later.scores != both.scores
    assert any("chosen for accuracy" in note for note in later.notes)
    assert not any("chosen for" in note for note in both.notes)
    assert later.to_dict()["recipe"] == both.to_dict()["recipe"]


def test_scores_are_those_of_the_predictions_kept_in_parquet(tmp_path):
    found = run(tmp_path, scoring=["accuracy", "roc_auc"])
    kept = pandas.concat(map(pandas.read_parquet, (tmp_path / "jobs").glob("*.parquet")))
    outside = kept[kept["fold"] < 0]
    for (method, domain), rows in outside.groupby(["method", "domain"]):
        right = np.mean(rows["prediction"] == rows["target"])
        assert found.scores[method][domain] == pytest.approx(right, abs=1e-12)
    assert len(outside) == 60 * len(METHODS)


def test_predictions_that_were_changed_are_refused_by_name(tmp_path):
    run(tmp_path)
    files = sorted((tmp_path / "jobs").glob("*linear.parquet"))
    first, second = files[0].read_bytes(), files[1].read_bytes()
    frame = pandas.read_parquet(files[0])
    frame["prediction"] = frame["prediction"].replace({"yes": "no"})
    frame.to_parquet(files[0], index=False)
    edited = files[0].read_bytes()
    for content in (edited, first[:-7], second):
        files[0].write_bytes(content)
        for use in (lambda: read_evaluation(tmp_path, every=True), lambda: run(tmp_path)):
            with pytest.raises(ValueError, match=f"{files[0].name} was changed after it was writt"):
                use()
    run(tmp_path, force=True)
    assert files[0].read_bytes() == first


def test_force_removes_only_what_jobs_wrote(tmp_path):
    run(tmp_path)
    own = [tmp_path / "jobs" / name for name in ("mine.parquet", ".mine.parquet", "notes.txt")]
    for path in own:
        path.write_text("mine")
    run(tmp_path, methods=["constant"], force=True)
    assert [path.read_text() for path in own] == ["mine"] * 3
    assert not list((tmp_path / "jobs").glob("*linear*"))
    (tmp_path / "jobs" / "results.jsonl").write_text("my results\n")
    with pytest.raises(ResultsError, match="is not a results file of domainwise; it is unchanged"):
        run(tmp_path, force=True)
    assert (tmp_path / "jobs" / "results.jsonl").read_text() == "my results\n"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"methods": []}, "best is not the first method"),
        ({"domains": ["ayr"]}, "a method is not scored on the domains"),
        ({"measure": None}, "measure: a mapping expected, got NoneType"),
        ({"notes": [1]}, r"notes\[0\]: str expected, got int"),
    ],
)
def test_a_result_of_another_form_is_refused_in_words(tmp_path, change, words):
    run(tmp_path)
    path = tmp_path / "evaluation.json"
    stored = json.loads(path.read_text("utf-8")) | change
    del stored["digest"]
    path.write_text(json.dumps(stored), "utf-8")
    with pytest.raises(ResultsError, match=words):
        read_evaluation(tmp_path)


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_the_scores_do_not_depend_on_the_configured_output_of_transformers(output, undisturbed):
    pytest.importorskip(output)
    with config_context(transform_output=output):
        found = run()
        found.fit("kpca").predict(table()[0])
    assert found.to_dict()["methods"][0]["per_domain"] == undisturbed["methods"][0]["per_domain"]


def test_what_was_found_can_be_read_again(tmp_path):
    found = run(tmp_path, scoring=["accuracy", "roc_auc"])
    again, stored = read_evaluation(tmp_path)
    assert str(again) == str(found)
    assert again.scores == found.scores
    assert again.others[0].scores == found.others[0].scores
    np.testing.assert_array_equal(again.projection.Z, found.projection.Z)
    assert stored["best"] == found.best_


def test_time_left_follows_what_methods_took_whatever_their_rough_cost():
    seconds = {"slow": 5.0, "quick": 0.1, "middling": 1.0}
    jobs = {
        (kind, split): Expected(kind, 1.0 + split / 10, 1.0)
        for kind in seconds
        for split in range(10)
    }
    clock = TimeLeft(jobs)
    took = {key: seconds[key[0]] * job.size for key, job in jobs.items()}
    for kind in seconds:  # a tenth of the work: one job of each kind
        clock.done((kind, 0), took.pop((kind, 0)))
    assert clock.left() == pytest.approx(sum(took.values()), rel=0.3)


#: CPU seconds of every job of evaluations of real tables, 200 rows each, split by split.
RECORDED = {
    "bike_seasons": {
        "ensemble": [8.0, 8.82, 8.97, 8.36, 8.45, 8.26, 8.29, 9.78],
        "invariantridge": [0.19, 0.18, 0.18, 0.18, 0.19, 0.2, 0.2, 0.23],
        "invariant": [0.43, 0.54, 0.57, 0.5, 0.47, 0.5, 0.44, 0.52],
        "dcmcv": [0.39, 0.51, 0.51, 0.42, 0.45, 0.48, 0.51, 0.55],
        "boosting": [0.52, 0.6, 0.53, 0.54, 0.59, 0.46, 0.46, 0.48],
        "fastdcm": [0.51, 0.5, 0.39, 0.39, 0.39, 0.41, 0.39, 0.42],
        "coir": [0.22, 0.21, 0.22, 0.2, 0.21, 0.2, 0.21, 0.22],
        "dcm": [0.22, 0.21, 0.21, 0.2, 0.2, 0.2, 0.21, 0.23],
        "dica": [0.25, 0.25, 0.24, 0.24, 0.25, 0.25, 0.25, 0.25],
        "kpca": [0.2, 0.2, 0.19, 0.19, 0.2, 0.2, 0.19, 0.19],
        "svm": [0.23, 0.24, 0.24, 0.21, 0.22, 0.22, 0.23, 0.23],
        "linear": [0.09, 0.1, 0.1, 0.1, 0.1, 0.1, 0.11, 0.1],
        "constant": [0.06, 0.07, 0.06, 0.07, 0.06, 0.06, 0.06, 0.07],
    },
    "shoppers_months": {
        "invariantridge": [0.35, 0.42, 0.35, 0.37, 0.43, 0.48, 0.38, 0.44, 0.39, 0.27],
        "invariant": [0.44, 0.52, 0.39, 0.58, 0.64, 0.71, 0.78, 0.8, 0.76, 0.78],
        "dcmcv": [0.52, 0.76, 0.57, 0.62, 0.61, 0.57, 0.62, 0.58, 0.54, 0.49],
        "boosting": [0.54, 0.61, 0.61, 0.67, 0.79, 0.71, 0.66, 0.72, 0.71, 0.65],
        "dica": [0.27, 0.33, 0.22, 0.29, 0.33, 0.29, 0.3, 0.32, 0.36, 0.31],
        "kpca": [0.24, 0.29, 0.22, 0.27, 0.27, 0.26, 0.26, 0.26, 0.26, 0.28],
        "svm": [0.27, 0.31, 0.25, 0.34, 0.32, 0.31, 0.28, 0.27, 0.28, 0.28],
        "linear": [0.33, 0.28, 0.24, 0.3, 0.31, 0.34, 0.36, 0.32, 0.31, 0.32],
        "constant": [0.1, 0.17, 0.08, 0.15, 0.13, 0.12, 0.16, 0.15, 0.15, 0.16],
    },
}


@pytest.mark.parametrize("table", RECORDED)
def test_time_left_of_real_evaluations_is_near_after_a_tenth_of_the_work(table):
    took = {(m, i): s for m, each in RECORDED[table].items() for i, s in enumerate(each)}
    clock = TimeLeft({key: Expected(key[0], 1.0, METHODS_BY_KEY[key[0]].cost) for key in took})
    order = sorted(took, key=lambda k: (k[1] > 0, -METHODS_BY_KEY[k[0]].cost, k[0], k[1]))
    total, spent = sum(took.values()), 0.0
    for key in order:
        clock.done(key, took[key])
        spent += took[key]
        if spent >= 0.1 * total and spent < 0.95 * total:
            assert clock.left() == pytest.approx(total - spent, rel=0.3)
