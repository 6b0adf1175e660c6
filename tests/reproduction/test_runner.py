import json

import pytest

from domainwise.base.files import ResultsError, ResultStore
from domainwise.base.process import run_jobs
from reproduction.run import describe_environment, make_plan
from reproduction.trials import plan_trials


def opened(folder):
    store = ResultStore(folder)
    store.open(root_seed=0, profile="full", new_entries=describe_environment())
    return store


def numbers(store):
    """What must not depend on workers, order or interruptions."""
    return {
        (row["case"], row["setting"], row["repeat"], row["method"]): (
            row["metrics"],
            row["selection"],
        )
        for row in store.rows("result")
    }


def test_numbers_do_not_depend_on_the_number_of_workers(tiny_case, tmp_path):
    results = []
    for n_jobs in (1, 2):
        store = opened(tmp_path / str(n_jobs))
        run_jobs(plan_trials([tiny_case], [], root_seed=0), store, n_jobs=n_jobs)
        results.append(numbers(store))
    assert results[0] == results[1]
    assert len(results[0]) == 3 * 6 + 1 + 2


def test_an_interrupted_run_resumes_with_the_same_numbers(tiny_case, tmp_path):
    complete = opened(tmp_path / "whole")
    run_jobs(plan_trials([tiny_case], [], root_seed=0), complete)

    interrupted = opened(tmp_path / "part")
    done = []

    def interrupt(cost, rows):
        done.append(rows)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(plan_trials([tiny_case], [], root_seed=0), interrupted, progress=interrupt)
    resumed = opened(tmp_path / "part")
    assert len(resumed.rows("result")) == sum(map(len, done))
    remaining = plan_trials([tiny_case], resumed.rows("result"), root_seed=0)
    assert len(remaining) == 2
    run_jobs(remaining, resumed)
    assert numbers(resumed) == numbers(complete)
    assert plan_trials([tiny_case], resumed.rows("result"), root_seed=0) == []


def test_more_repeats_and_methods_reuse_existing_results(tiny_case, tmp_path):
    from dataclasses import replace

    store = opened(tmp_path)
    small = replace(tiny_case, methods=("svm",), tuned_methods=(), repeats=1)
    run_jobs(plan_trials([small], [], root_seed=0), store)
    larger = replace(small, methods=("svm", "coir"), repeats=2)
    remaining = plan_trials([larger], store.rows("result"), root_seed=0)
    assert [(trial.repeat, trial.methods) for trial in remaining] == [
        (0, ("coir",)),
        (1, ("svm", "coir")),
    ]


def test_failed_rows_are_tried_again(tiny_case, tmp_path):
    row = {
        "case": tiny_case.key,
        "fingerprint": tiny_case.fingerprint(),
        "setting": "paper",
        "repeat": 0,
        "method": "svm",
        "status": "error",
    }
    assert any("svm" in t.methods for t in plan_trials([tiny_case], [row], root_seed=0))


@pytest.mark.parametrize("kind", ["result", "timing", "long_run"])
def test_results_of_another_protocol_are_refused(tiny_table, tmp_path, kind):
    row = {
        "kind": kind,
        "case": tiny_table.cases[0].key,
        "fingerprint": "something else",
        "setting": "paper",
        "repeat": 0,
        "method": "svm",
        "status": "ok",
    }
    store = opened(tmp_path)
    store.append([row])
    with pytest.raises(
        ResultsError, match="synthetic/tiny in this folder were computed with another"
    ):
        make_plan([tiny_table], store, quick=False, root_seed=0)


def test_requested_repeats_override_the_papers(tiny_case):
    trials = plan_trials([tiny_case], [], root_seed=0, repeats=5, settings=("paper",))
    assert len(trials) == 5
    assert sum("algorithm1" in trial.methods for trial in trials) == 1


def test_the_header_contains_versions_machine_and_seed(tmp_path):
    store = opened(tmp_path)
    header = json.loads(store.path.read_text().splitlines()[0])
    assert header["kind"] == "header"
    assert header["schema"] == 1
    assert {"domainwise", "python", "versions", "machine", "root_seed", "profile"} <= set(header)
    assert "numpy" in header["versions"]


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    store = opened(tmp_path)
    with (
        store.locked(),
        pytest.raises(ResultsError, match="another run is writing"),
        opened(tmp_path).locked(),
    ):
        pass


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\r", "\x1c"])
def test_names_with_unusual_line_separators_are_read_again(tmp_path, separator):
    row = {"kind": "result", "domain": f"north{separator}south"}
    opened(tmp_path).append([row])
    assert opened(tmp_path).rows("result") == [row]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text + '{"kind": "result", "met', "line 2 is cut off"),
        (lambda text: text + '{"kind": "result"}', "line 2 is cut off"),
        (lambda text: "[1, 2]\n" + text, "line 1 is cut off or is not a result"),
        (lambda text: text.replace('"schema": 1', '"schema": 99'), "another version"),
        (lambda text: text.replace('"domainwise": "', '"domainwise": "9'), "another version"),
        (lambda text: '{"kind": "result"}\n' + text, "does not begin with a domainwise header"),
        (lambda text: "", "does not begin with a domainwise header"),
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, damage, message):
    store = opened(tmp_path)
    text = damage(store.path.read_text())
    store.path.write_text(text)
    with pytest.raises(ResultsError, match=message):
        opened(tmp_path)
    assert store.path.read_text() == text


def test_another_seed_or_size_is_refused(tmp_path):
    opened(tmp_path)
    with pytest.raises(ResultsError, match="computed with root_seed 0, but this run has 1"):
        ResultStore(tmp_path).open(root_seed=1, profile="full")
    with pytest.raises(ResultsError, match="computed with profile 'full'"):
        ResultStore(tmp_path).open(root_seed=0, profile="quick")


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ResultsError, match="is not empty and contains no results.jsonl"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ResultsError, match="is a file, not a folder"):
        opened(tmp_path / "thesis.tex")
    with pytest.raises(ResultsError, match="cannot be used"):
        opened(tmp_path / "thesis.tex" / "below")
