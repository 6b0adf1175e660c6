"""Results folders: evaluations continue after a kill, check the folder, and can be read again."""

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
from domainwise.base.files import ResultsError
from domainwise.evaluation.folder import read_evaluation

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

METHODS = ["constant", "linear", "kpca"]


def table(seed=0, n=20):
    rng = np.random.default_rng(seed)
    domain = np.repeat(["ayr", r"$\nosuch$", "cork"], n)
    X = rng.normal(size=(3 * n, 2)) + rng.normal(size=(3, 2))[np.repeat([0, 1, 2], n)]
    return X, np.where(X[:, 0] + rng.normal(size=3 * n) > 0, "yes", "no"), domain


def run(out=None, **change):
    arguments = dict(methods=METHODS, scoring="accuracy", progress=False, out=out) | change
    X, y, domain = arguments.pop("table", table())
    return evaluate(X, y, domain, **arguments)


def numbers(evaluation):
    """All content that must not depend on interruptions."""
    content = evaluation.to_dict()
    for method in content["methods"]:
        del method["seconds"]
    return content


def forked(work):
    """Call a function in a child process, and return the process id."""
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


def test_ten_kills_at_random_times_change_no_number(tmp_path, undisturbed):
    rng = np.random.default_rng(0)
    killed = 0
    for number in range(10):
        out = tmp_path / str(
            number // 5
        )  # five kills per folder, so that some runs come close to the end
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


def test_only_missing_jobs_are_run_again(tmp_path, undisturbed):
    run(tmp_path)
    results = tmp_path / "jobs" / "results.jsonl"
    lines = results.read_text("utf-8").splitlines(keepends=True)
    jobs = [place for place, line in enumerate(lines) if '"kind": "job"' in line]
    # The second job is finished, except that its line is cut off in the middle.
    results.write_text("".join(lines[: jobs[1]]) + lines[jobs[1]][:40], "utf-8")
    done = []
    evaluation = run(tmp_path, progress=lambda cost, rows: done.extend(rows))
    assert sum(row["part"] == "held-out" for row in done) == 3 * len(METHODS) - 1
    assert {row["method"] for row in done if row["part"] == "seen"} == {
        result.key for result in evaluation.described
    }
    assert numbers(evaluation) == undisturbed
    done.clear()
    assert numbers(run(tmp_path, progress=lambda cost, rows: done.extend(rows))) == undisturbed
    assert not done


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": table(seed=1)}, "computed with table"),
        ({"methods": ["constant"]}, "computed with methods"),
        ({"random_state": 1}, "computed with"),
        ({"scoring": get_scorer("accuracy")}, "name of a scorer with scoring="),
        (
            {"methods": [*METHODS[:2], ("kpca2", LogisticRegression(C=2.0))]},
            "computed with methods",
        ),
    ],
)
def test_another_table_or_other_arguments_are_refused_unless_forced(tmp_path, change, words):
    run(tmp_path, methods=METHODS[:2])
    before = (tmp_path / "jobs" / "results.jsonl").read_bytes()
    with pytest.raises(ValueError, match=words):
        run(tmp_path, **({"methods": METHODS[:2]} | change))
    assert (tmp_path / "jobs" / "results.jsonl").read_bytes() == before
    evaluation = run(tmp_path, methods=["constant"], table=table(seed=1), force=True)
    assert [result.key for result in evaluation.results] == ["constant"]


def test_a_second_process_cannot_use_the_same_folder(tmp_path):
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
        os.kill(child, signal.SIGKILL)  # the system releases the lock
        os.waitpid(child, 0)
    assert run(tmp_path).results


def test_another_metric_needs_no_fits_and_reports_the_metric_used_in_the_search(tmp_path):
    both = run(tmp_path, scoring=["accuracy", "balanced_accuracy"])
    done = []
    later = run(tmp_path, scoring="balanced_accuracy", progress=lambda *job: done.append(job))
    assert not done
    assert later.scores == both.others[0].scores
    assert later.scores != both.scores
    assert any("predicted for accuracy" in note for note in later.notes)
    assert not any("predicted for" in note for note in both.notes)
    assert later.to_dict()["recipe"] == both.to_dict()["recipe"]


def test_scores_are_those_of_the_predictions_in_parquet_files(tmp_path):
    evaluation = run(tmp_path, scoring=["accuracy", "roc_auc"])
    predictions = pandas.concat(map(pandas.read_parquet, (tmp_path / "jobs").glob("*.parquet")))
    outside = predictions[predictions["kind"] == "held-out"]
    for (method, domain), rows in outside.groupby(["method", "domain"]):
        right = np.mean(rows["prediction"] == rows["target"])
        assert evaluation.scores[method][domain] == pytest.approx(right, abs=1e-12)
    assert len(outside) == 60 * len(METHODS)


def test_changed_prediction_files_are_refused_by_name(tmp_path):
    run(tmp_path)
    files = sorted((tmp_path / "jobs").glob("*linear.parquet"))
    first, second = files[0].read_bytes(), files[1].read_bytes()
    frame = pandas.read_parquet(files[0])
    frame["prediction"] = frame["prediction"].replace({"yes": "no"})
    frame.to_parquet(files[0], index=False)
    edited = files[0].read_bytes()
    for content in (edited, first[:-7], second):
        files[0].write_bytes(content)
        for use in (lambda: read_evaluation(tmp_path), lambda: run(tmp_path)):
            with pytest.raises(ValueError, match=f"{files[0].name} was changed after it was writt"):
                use()
    run(tmp_path, force=True)
    assert files[0].read_bytes() == first


def test_force_removes_only_files_that_jobs_wrote(tmp_path):
    run(tmp_path)
    own = [tmp_path / "jobs" / name for name in ("mine.parquet", ".mine.parquet", "notes.txt")]
    for path in own:
        path.write_text("mine")
    run(tmp_path, methods=["constant"], force=True)
    assert [path.read_text() for path in own] == ["mine"] * 3
    assert not list((tmp_path / "jobs").glob("*linear*"))
    (tmp_path / "jobs" / "results.jsonl").write_text("my results\n")
    with pytest.raises(
        ResultsError, match="is not a domainwise results file and was left unchanged"
    ):
        run(tmp_path, force=True)
    assert (tmp_path / "jobs" / "results.jsonl").read_text() == "my results\n"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"methods": []}, "best is not the first method"),
        ({"domains": ["ayr"]}, "linear is not scored on the listed domains"),
        ({"measure": None}, "measure: expected a mapping, got NoneType"),
        ({"notes": [1]}, r"notes\[0\]: expected str, got int"),
    ],
)
def test_an_invalid_result_file_is_refused_with_a_reason(tmp_path, change, words):
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
        evaluation = run()
        evaluation.fit("kpca").predict(table()[0])
    assert (
        evaluation.to_dict()["methods"][0]["per_domain"] == undisturbed["methods"][0]["per_domain"]
    )


def test_an_evaluation_can_be_read_again(tmp_path):
    evaluation = run(tmp_path, scoring=["accuracy", "roc_auc"])
    again, stored = read_evaluation(tmp_path)
    assert str(again) == str(evaluation)
    assert again.scores == evaluation.scores
    assert again.others[0].scores == evaluation.others[0].scores
    assert again.label_gain == evaluation.label_gain
    assert again.others[0].label_gain == []  # not that of the main score
    assert stored["best"] == evaluation.best_
