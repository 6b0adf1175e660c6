"""The command: exit codes, messages, and runs that are interrupted and resumed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from reproduction import run
from reproduction.__main__ import main
from reproduction.protocols import TABLES, Case, Table


def invoke(*arguments):
    return main([str(argument) for argument in arguments])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def tiny(monkeypatch):
    """The synthetic table, in a size that takes a second."""
    case = Case(
        key="synthetic/eta0.1-gamma0.1",
        title="tiny",
        source="synthetic",
        source_params={"eta": 0.1, "n_domains": 5, "n_per_domain": 15, "n_features": 3},
        train_domains=3,
        test_domains=2,
        metrics=("accuracy",),
        gamma=0.2,
        epsilon=1e-3,
        methods=("majority", "svm", "coir", "dcm"),
        tuned_methods=("svm",),
        repeats=2,
        tuned_repeats=1,
        tuning_rows=8,
        tuning_folds=2,
    )
    monkeypatch.setitem(TABLES, "synthetic", Table("synthetic", "Tiny", (case,), "Tiny."))
    monkeypatch.setattr("reproduction.run.synthetic_jobs", lambda *a, **k: [])


def test_a_run_writes_results_tables_and_report(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    assert invoke("synthetic", "--no-timing", "--out", out) == 0
    assert set(contents(out)) == {"results.jsonl", "REPRODUCTION.md", "report.html"}
    printed = capsys.readouterr()
    assert "69.96 ± 5.81" in printed.out
    assert f"wrote {out / 'report.html'}" in printed.err


def test_a_finished_run_computes_nothing_again(tiny, tmp_path, capsys):
    command = ("synthetic", "--no-timing", "--out", tmp_path)
    invoke(*command)
    first = (tmp_path / "results.jsonl").read_text()
    assert invoke(*command) == 0
    assert "all runs are finished" in capsys.readouterr().err
    new = (tmp_path / "results.jsonl").read_text().removeprefix(first).splitlines()
    assert [json.loads(line)["kind"] for line in new] == ["session"]


def test_a_failed_fit_is_exit_code_1(tiny, tmp_path, capsys, monkeypatch):
    table = TABLES["synthetic"]
    broken = replace(table, cases=(replace(table.cases[0], epsilon=-1.0),))
    monkeypatch.setitem(TABLES, "synthetic", broken)
    assert invoke("synthetic", "--no-timing", "--out", tmp_path) == 1
    assert "failed: synthetic/eta0.1-gamma0.1 paper 0 dcm" in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(tiny, tmp_path, capsys, monkeypatch):
    real = run.run_jobs

    def interrupted(jobs, store, **options):
        real(jobs[:1], store, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_jobs", interrupted)
    assert invoke("synthetic", "--no-timing", "--out", tmp_path) == 1
    assert "run the same command again to continue" in capsys.readouterr().err
    monkeypatch.setattr(run, "run_jobs", real)
    assert invoke("synthetic", "--no-timing", "--out", tmp_path) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sinthetic"], "unknown table 'sinthetic'"),
        (["synthetic", "--repeats", "0"], "--repeats must be at least 1; got 0"),
        (["synthetic", "--jobs", "0"], "n_jobs == 0"),
        (["synthetic", "--seed", "-1"], "--seed must be at least 0; got -1"),
    ],
)
def test_bad_arguments_are_exit_code_2_and_make_nothing(tmp_path, capsys, arguments, message):
    out = tmp_path / "out"
    assert invoke(*arguments, "--out", out) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_missing_data_are_exit_code_2_and_say_where_to_get_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert invoke("landmine", "--out", tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert "landmine.csv.gz was not found" in message
    assert "It was made from" in message
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_exit_code_2_and_left_unchanged(tiny, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert invoke("synthetic", "--out", tmp_path) == 2
    assert contents(tmp_path) == {"mine.txt": b"mine"}
    assert "Choose an empty folder" in capsys.readouterr().err


def test_a_cut_off_results_file_is_exit_code_2_and_left_unchanged(tiny, tmp_path, capsys):
    invoke("synthetic", "--no-timing", "--out", tmp_path)
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    before = contents(tmp_path)
    assert invoke("synthetic", "--out", tmp_path) == 2
    assert "is cut off" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_exit_code_2(tiny, tmp_path):
    tmp_path.chmod(0o500)
    code = invoke("synthetic", "--out", tmp_path / "out")
    tmp_path.chmod(0o700)
    assert code == 2


def test_a_folder_that_cannot_be_made_is_exit_code_2(tiny, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert invoke("synthetic", "--out", tmp_path / "file" / "out") == 2
    assert "cannot be used" in capsys.readouterr().err


def test_the_data_sets_are_listed_with_whether_they_are_present():
    done = subprocess.run(
        [sys.executable, "-m", "reproduction", "datasets"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "DOMAINWISE_DATA": "", "XDG_CACHE_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 18
    assert any(line.startswith("landmine  ") and "14,820 rows" in line for line in lines)
    assert all(" missing " in line for line in lines)
