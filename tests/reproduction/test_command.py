import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from domainwise import __version__
from domainwise.cli import app
from reproduction.protocols import TABLES, Case, Table

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


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


def test_reproduce_writes_results_tables_and_report(tiny, tmp_path):
    out = tmp_path / "out"
    done = invoke("reproduce", "synthetic", "--no-timing", "--out", out)
    assert done.exit_code == 0, done.output
    assert set(contents(out)) == {"results.jsonl", "REPRODUCTION.md", "report.html"}
    assert "69.96 ± 5.81" in done.output
    assert "report:" in done.output
    before = contents(out)
    again = invoke("report", out)
    assert again.exit_code == 0
    assert contents(out) == before


def test_reproduce_again_does_nothing_twice(tiny, tmp_path):
    invoke("reproduce", "synthetic", "--no-timing", "--no-report", "--out", tmp_path)
    first = (tmp_path / "results.jsonl").read_text()
    done = invoke("reproduce", "synthetic", "--no-timing", "--no-report", "--out", tmp_path)
    assert "all runs are finished" in done.output
    new = (tmp_path / "results.jsonl").read_text().removeprefix(first).splitlines()
    assert [json.loads(line)["kind"] for line in new] == ["session"]


def test_json_output_is_json_and_nothing_else(tiny, tmp_path):
    done = invoke(
        "reproduce", "synthetic", "--no-timing", "--no-report", "--out", tmp_path, "--json"
    )
    answer = json.loads(done.stdout)
    assert answer["header"]["root_seed"] == 0
    dcm = answer["cases"][0]["methods"]["dcm"]["metrics"]["accuracy"]
    assert dcm["n"] == 2
    assert dcm["paper"] == [70.31, 4.91]


def test_a_failed_fit_is_exit_code_1(tiny, tmp_path, monkeypatch):
    from dataclasses import replace

    table = TABLES["synthetic"]
    broken = replace(table, cases=(replace(table.cases[0], epsilon=-1.0),))
    monkeypatch.setitem(TABLES, "synthetic", broken)
    done = invoke("reproduce", "synthetic", "--no-timing", "--no-report", "--out", tmp_path)
    assert done.exit_code == 1
    assert "failed" in done.output


def test_an_interruption_is_exit_code_1_and_says_how_to_go_on(tiny, tmp_path, monkeypatch):
    from reproduction import reproduce

    real = reproduce.run_jobs

    def interrupted(jobs, store, **options):
        real(jobs[:1], store, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "run_jobs", interrupted)
    done = invoke("reproduce", "synthetic", "--no-timing", "--out", tmp_path)
    assert done.exit_code == 1
    assert "run the same command again to continue" in " ".join(done.output.split())
    monkeypatch.setattr(reproduce, "run_jobs", real)
    assert invoke("reproduce", "synthetic", "--no-timing", "--out", tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sinthetic"], "unknown table 'sinthetic'"),
        (["synthetic", "--repeats", "0"], "--repeats must be at least 1; got 0"),
        (["synthetic", "--jobs", "0"], "--jobs must be at least 1"),
        (["synthetic", "--seed", "-1"], "--seed must be between 0 and 2**32 - 1; got -1"),
    ],
)
def test_bad_arguments_are_exit_code_2_and_make_nothing(tmp_path, arguments, message):
    out = tmp_path / "out"
    done = invoke("reproduce", *arguments, "--out", out)
    assert done.exit_code == 2
    assert message in done.output
    assert not out.exists()


def test_missing_data_are_exit_code_2_and_say_where_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = invoke("reproduce", "landmine", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "landmine.csv.gz was not found" in done.output
    assert "It was made from" in done.output
    assert not (tmp_path / "out").exists()


def test_a_foreign_folder_is_exit_code_2_and_left_alone(tiny, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = invoke("reproduce", "synthetic", "--out", tmp_path)
    assert done.exit_code == 2
    assert contents(tmp_path) == {"mine.txt": b"mine"}
    assert "Choose an empty folder (--out)" in " ".join(done.output.split())


def test_a_cut_off_results_file_is_exit_code_2_and_left_alone(tiny, tmp_path):
    invoke("reproduce", "synthetic", "--no-timing", "--no-report", "--out", tmp_path)
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    before = contents(tmp_path)
    for command in (["reproduce", "synthetic", "--out"], ["report"]):
        done = invoke(*command, tmp_path)
        assert done.exit_code == 2
        assert "is cut off" in done.output
        assert contents(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_exit_code_2(tiny, tmp_path):
    tmp_path.chmod(0o500)
    done = invoke("reproduce", "synthetic", "--out", tmp_path / "out")
    tmp_path.chmod(0o700)
    assert done.exit_code == 2


def test_a_folder_that_cannot_be_made_is_exit_code_2(tiny, tmp_path):
    (tmp_path / "file").write_text("x")
    done = invoke("reproduce", "synthetic", "--out", tmp_path / "file" / "out")
    assert done.exit_code == 2
    assert "cannot be used" in done.output


def test_report_of_nothing_is_exit_code_2(tmp_path):
    assert invoke("report", tmp_path / "absent").exit_code == 2
    done = invoke("report", tmp_path)
    assert done.exit_code == 2
    assert "no run was saved there" in done.output


def test_a_missing_extra_is_named(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = invoke("reproduce", "synthetic", "--out", tmp_path / "out")
    assert done.exit_code == 2
    message = 'without --no-report, this command needs jinja2: pip install "domainwise[report]"'
    assert message in " ".join(done.output.split())


def test_datasets_lists_every_set_and_whether_it_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = invoke("datasets")
    assert done.exit_code == 0
    assert "landmine" in done.output
    entries = json.loads(invoke("datasets", "--json").stdout)
    assert len(entries) == 13
    assert [entry["name"] for entry in entries if entry["present"]] == ["heart"]


def run_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "domainwise", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def test_the_program_runs_as_a_process():
    done = run_process("--version")
    assert (done.returncode, done.stdout) == (0, f"domainwise {__version__}\n")
    bad = run_process("reproduce", "nonsense")
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr


def test_without_the_cli_extra_the_program_names_it(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run_process("--version", PYTHONPATH=path)
    assert done.returncode == 2
    assert 'pip install "domainwise[cli]"' in done.stderr


def test_importing_the_package_loads_no_extra():
    """pandas and rich are left out: scikit-learn itself imports them where they are installed."""
    code = (
        "import sys, domainwise;"
        "extras = ('typer', 'matplotlib', 'jinja2');"
        "print([name for name in extras if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
