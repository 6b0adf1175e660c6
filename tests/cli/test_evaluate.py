"""The command evaluate: what it writes, what it prints, what it refuses."""

import json
import re
import sys

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")

import pandas
from typer.testing import CliRunner

from domainwise.cli import app

runner = CliRunner()


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    n = 60
    frame = pandas.DataFrame(
        {
            "site": np.repeat(["ayr", "bath", "cork"], 20),
            "age": rng.normal(size=n),
            "kind": rng.choice(["a", "b"], n),
            "dose": rng.normal(size=n),
        }
    )
    frame["ill"] = np.where(frame["age"] + rng.normal(size=n) > 0, "yes", "no")
    frame.loc[::8, "dose"] = np.nan
    path = tmp_path / "clinic.csv"
    frame.to_csv(path, index=False)
    return path


def run(table, *more, target="ill", domain="site", methods="constant,linear"):
    arguments = ["evaluate", table, "--target", target, "--domain", domain, "--methods", methods]
    return runner.invoke(app, [str(argument) for argument in (*arguments, *more)])


def test_a_table_gives_scores_a_verdict_and_a_report(table, tmp_path):
    out = tmp_path / "out"
    result = run(table, "--out", out)
    assert result.exit_code == 0, result.output
    assert "logistic" in result.output
    assert len(result.stdout.splitlines()) <= 20
    answer = result.output[result.output.index("Recommended") :].split("\n\n")[0].splitlines()
    assert [line.split("  ")[0] for line in answer if line[0] != " "] == [
        "Recommended", "Expect", "Confidence", "Check first", "Next"
    ]  # fmt: skip
    files = ["evaluation.json", "jobs", "report-sites.csv", "report.html"]
    assert sorted(path.name for path in out.iterdir()) == files
    stored = json.loads((out / "evaluation.json").read_text("utf-8"))
    assert stored["facts"]["columns"] == 3
    assert [entry["key"] for entry in stored["methods"]] == ["linear", "constant"]


def test_a_page_says_a_thing_once_and_shows_the_command_to_type(table, tmp_path):
    frame = pandas.read_csv(table)
    frame.loc[frame["site"] == "cork", "ill"] = "no"
    frame = pandas.concat([frame, frame.assign(site=frame["site"] + " 2")])
    frame.to_csv(table, index=False)
    assert run(table, "--out", tmp_path / "out", methods="linear").exit_code == 0
    stored = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))
    single = [note for note in stored["notes"] if "only one class" in note.lower()]
    assert single == [
        "These domains have only one class and are used for training, but not scored: cork, cork 2."
    ]
    assert all(note[0].isupper() for note in stored["notes"])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    command = f"domainwise fit --from {tmp_path / 'out'} -o out.skops"
    assert f'aria-label="Command">{command}</code>' in page


def test_the_example_is_the_table_of_the_readme(tmp_path):
    path = tmp_path / "hospitals.csv"
    for options, exit_code in (((), 0), ((), 2), (("--force",), 0)):
        assert runner.invoke(app, ["example", str(path), *options]).exit_code == exit_code
    frame = pandas.read_csv(path)
    assert frame.shape == (920, 15)
    assert frame.groupby("domain")["label"].count().sum() == 920


def test_notes_are_printed_once_with_the_name_of_the_file_as_it_is(table, tmp_path):
    content = table.read_text("utf-8").replace("cork", "k\u00f6ln")
    (tmp_path / "my.csv").write_text(content, encoding="cp1252")
    result = run(tmp_path / "my.csv", "--out", tmp_path / "out", "--no-report", methods="linear")
    assert result.exit_code == 0
    notes = [line for line in result.output.splitlines() if "my.csv is not UTF-8" in line]
    assert notes == ["note: my.csv is not UTF-8 and was read as cp1252"]
    stored = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))["notes"]
    assert "my.csv is not UTF-8 and was read as cp1252." in stored


def test_json_is_json_and_nothing_else(table, tmp_path):
    result = run(table, "--out", tmp_path / "out", "--json", "--no-report", "--seed", 3)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["facts"]["seed"] == 3
    assert answer["files"] == [str(tmp_path / "out" / "evaluation.json")]


def test_nothing_is_overwritten_without_force(table, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    refused = run(table, "--out", out)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (out / "report.html").read_text() == "mine"
    assert run(table, "--out", out, "--force").exit_code == 0
    assert (out / "report.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_domain_with_a_comma_in_its_name_can_be_left_out(table, tmp_path):
    frame = pandas.read_csv(table).replace({"site": {"ayr": "Ayr, north"}})
    fourth = frame.iloc[-20:].assign(site="derry")
    pandas.concat([frame, fourth]).to_csv(table, index=False)
    out = tmp_path / "out"
    drop = ("--drop-domains", "Ayr, north", "--drop-domains", "cork")
    result = run(table, "--out", out, "--no-report", *drop)
    assert result.exit_code == 0, result.output
    stored = json.loads((out / "evaluation.json").read_text("utf-8"))
    assert stored["facts"]["domains"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(target="il"), "did you mean 'ill'"),
        (dict(domain="sight"), "did you mean 'site'"),
        (dict(methods="svm,foo"), "'foo' is unknown"),
        (
            dict(more=["--metric", "acuracy"]),
            "metric 'acuracy' is not a scikit-learn scorer; did you mean 'accuracy'",
        ),
        (dict(more=["--inner-metric", "foo"]), "--inner-metric 'foo' is not a scikit-learn scorer"),
        (dict(more=["--metric", "rmse"]), "continuous target"),
        (dict(more=["--drop", "site2"]), "site2"),
        (dict(more=["--jobs", "0"]), "--jobs"),
        (dict(more=["--drop-domains", "ayr,bath"]), "one domain"),
    ],
)
def test_bad_input_ends_with_code_2_and_words_and_writes_nothing(table, tmp_path, change, words):
    out = tmp_path / "out"
    more = ["--out", str(out), *change.pop("more", [])]
    result = run(table, *more, **change)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_debug_shows_the_traceback(table, tmp_path):
    result = run(table, "--out", tmp_path / "out", "--debug", target="il")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_the_same_command_goes_on_and_another_is_refused(table, tmp_path):
    out = tmp_path / "out"
    first = run(table, "--out", out, "--json")
    again = run(table, "--out", out, "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads(first.stdout)
    refused = run(table, "--out", out, "--seed", 1)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    frame = pandas.read_csv(table)
    frame["age"] += 1.0
    frame.to_csv(table, index=False)
    refused = run(table, "--out", out)
    assert refused.exit_code == 2
    assert "computed with table" in " ".join(refused.stderr.split())
    assert json.loads((out / "evaluation.json").read_text("utf-8"))["facts"]["seed"] == 0
    assert run(table, "--out", out, "--force", "--no-report").exit_code == 0


def test_the_page_is_made_again_from_the_folder_alone(table, tmp_path):
    out = tmp_path / "out"
    done = run(table, "--out", out, "--metric", "accuracy,roc_auc", methods="constant,linear,kpca")
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if line.startswith("AUC ")]
    page = (out / "report.html").read_bytes()
    assert b"Other metrics, computed from the same predictions" in page
    table.unlink()
    (out / "report.html").unlink()
    again = runner.invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    assert (out / "report.html").read_bytes() == page
    assert "Recommended" in again.output


def test_a_page_that_cannot_be_drawn_costs_no_result(table, tmp_path, monkeypatch):
    from domainwise.evaluation import page

    def broken(*arguments):
        raise RuntimeError("no ink")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(page, "forest_picture", broken)
        result = run(table, "--out", out)
    assert result.exit_code == 1
    assert "no ink" in result.stderr
    assert "domainwise report" in result.stderr
    assert sorted(path.name for path in out.iterdir()) == ["evaluation.json", "jobs"]
    assert runner.invoke(app, ["report", str(out)]).exit_code == 0


def test_a_folder_without_an_evaluation_has_no_report(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        done = runner.invoke(app, ["report", str(folder)])
        assert done.exit_code == 2
        assert "has no evaluation.json" in " ".join(done.output.split())


def test_a_missing_extra_is_named(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = run(table, "--out", tmp_path / "out")
    assert done.exit_code == 2
    message = 'without --no-report, this command needs jinja2: pip install "domainwise[report]"'
    assert message in " ".join(done.output.split())


def test_names_that_look_like_formulas_are_drawn(table, tmp_path):
    frame = pandas.read_csv(table).replace({"site": {"ayr": r"$\nosuch$"}})
    frame.to_csv(table, index=False)
    out = tmp_path / "out"
    result = run(table, "--out", out, methods="constant,linear,kpca")
    assert result.exit_code == 0, result.output
    assert r"$\nosuch$" in (out / "report.html").read_text("utf-8")


def test_without_a_terminal_there_are_a_few_lines_and_notes_are_printed_once(table, tmp_path):
    result = run(table, "--out", tmp_path / "out", "--quick", "--no-report")
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
    assert lines[0].startswith("2 methods, about ")
    assert lines[0].endswith(" on one worker.")  # others would mostly start
    counts = [line.split(",")[0] for line in lines[1:]]
    assert counts == [f"{n} of 6 fits" for n in (2, 3, 5, 6)]
    output = " ".join(result.output.split())
    assert output.count("Quick evaluation:") == 1
    assert output.count("numeric features: age, dose") == 1


def test_in_a_terminal_notes_are_broken_between_words(monkeypatch, capsys):
    from domainwise.cli import common

    monkeypatch.setitem(common.mode, "json", False)  # other tests may have set it
    note = f"numeric features: {', '.join(f'feature_{i}' for i in range(20))}"
    for is_terminal in ("", "1"):
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("FORCE_COLOR", is_terminal)
        common._console.cache_clear()
        common.print_notes(common.stdout(), [note])
        lines = [re.sub(r"\x1b\[\d*m", "", line) for line in capsys.readouterr().out.splitlines()]
        assert " ".join(line.strip() for line in lines) == f"note: {note}"
        assert len(lines) == (4 if is_terminal else 1)
    common._console.cache_clear()


def test_in_a_terminal_there_is_a_bar_on_one_line(monkeypatch, capsys):
    from domainwise.evaluation import plan
    from domainwise.evaluation.problem import make_problem, outer_splits
    from domainwise.models.registry import choose_methods

    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(40, 2)), np.repeat(list("abcd"), 10)
    asked = dict(task="auto", scoring=None, max_rows=None, random_state=0)
    problem = make_problem(X, rng.normal(size=40), domain, **asked)
    (method,) = choose_methods(["constant"])
    jobs = [
        plan.MethodJob(problem, method, s, i) for i, s in enumerate(outer_splits(problem, None))
    ]
    monkeypatch.setattr(plan.sys.stderr, "isatty", lambda: True)
    with plan.job_progress(True, plan.Costs(problem, [method], None, False), 1) as progress:
        progress.begin(jobs)
        start = capsys.readouterr().err
        for job in jobs:
            progress(job.cost, job.run())
    bar = capsys.readouterr().err
    assert start.count("\n") == 1
    assert "\n" not in bar
    assert [part.split(" of ")[0][-1] for part in bar.split("\r")[1:-1]] == list("1234")
    assert bar.endswith("\r\x1b[K")  # the bar is removed


def test_an_interruption_leaves_a_page_of_what_is_done_and_the_command_continues(
    table, tmp_path, monkeypatch
):
    from domainwise.evaluation.plan import JobProgress

    call, jobs = JobProgress.__call__, []

    def interrupted(self, cost, rows):
        call(self, cost, rows)
        jobs.append(rows[0]["method"])
        if len(jobs) == 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(JobProgress, "__call__", interrupted)
        result = run(table, "--out", out, "--jobs", 1)
    assert result.exit_code == 1
    assert "Interrupted after 3 of 6 fits: scores are based on 1 of 3 groups" in result.stderr
    assert "Run the same command again to continue." in (out / "report.html").read_text("utf-8")
    stored = json.loads((out / "evaluation.json").read_text("utf-8"))
    assert stored["domains"] == ["ayr"]
    jobs.clear()
    monkeypatch.setattr(
        JobProgress, "__call__", lambda self, cost, rows: jobs.append(rows[0]["part"])
    )
    assert run(table, "--out", out).exit_code == 0
    assert jobs == ["held-out"] * 3 + ["seen"] * 3
    stored = json.loads((out / "evaluation.json").read_text("utf-8"))
    assert stored["domains"] == ["ayr", "bath", "cork"]


def test_a_full_evaluation_replaces_a_quick_one_without_being_forced(table, tmp_path):
    out = tmp_path / "out"
    quick = run(table, "--out", out, "--quick", "--no-report")
    assert quick.exit_code == 0, quick.output
    facts = json.loads((out / "evaluation.json").read_text("utf-8"))["facts"]
    assert facts["quick"].startswith("Quick evaluation: scores on seen domains are not computed.")
    assert run(table, "--out", out, "--no-report").exit_code == 0
    assert "quick" not in json.loads((out / "evaluation.json").read_text("utf-8"))["facts"]
    refused = run(table, "--out", out, "--quick", "--no-report")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
