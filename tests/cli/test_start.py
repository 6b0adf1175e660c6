"""The program starts quickly: help and version load none of the packages that compute."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("typer")

from typer.main import get_command
from typer.testing import CliRunner

from domainwise import __version__
from domainwise.cli import REMOVED, app

HEAVY = {"numpy", "scipy", "sklearn", "pandas", "joblib", "matplotlib"}
#: Loaded by older versions of Typer itself.
OF_TYPER = {"rich", "pydantic"}
CODE = """
import sys
from domainwise.__main__ import main
try:
    main()
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
TYPER = """
import sys, typer
app = typer.Typer(rich_markup_mode=None, add_completion=False)
app.command()(lambda: None)
try:
    app(["--help"])
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]


def loaded(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        *([name, "--help"] for name in COMMANDS),
    ],
    ids=" ".join,
)
def test_help_and_version_load_nothing_that_computes(arguments):
    known = subprocess.run(
        [sys.executable, "-c", TYPER], capture_output=True, text=True, check=True
    )
    if OF_TYPER & set(known.stderr.split()):
        pytest.skip("this version of Typer loads Rich for every help")
    assert not loaded(*arguments) & (HEAVY | OF_TYPER)


def test_the_list_of_commands_has_whole_sentences_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    commands = [line for line in lines[lines.index("Commands:") + 1 :] if line.startswith("  ")]
    assert len(commands) > 3
    for line in commands:
        assert line.endswith("."), line
        assert not line.endswith("..."), line


def test_the_usage_shows_required_arguments_without_braces():
    output = CliRunner().invoke(app, ["adapt", "--help"]).output
    assert output.split("\n\n")[0].split()[-2:] == ["MODEL", "LABELLED"]


def test_every_option_says_what_it_does_and_what_its_value_is():
    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert parameter.help.endswith("."), (name, parameter.name)
                assert parameter.is_flag or parameter.metavar, (name, parameter.name)


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
    bad = run_process("info", "nonsense.skops")
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


def test_a_removed_command_says_in_one_line_what_replaces_it():
    result = CliRunner().invoke(app, ["federate", "plan", "t.csv", "-o", "plan.json"])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "federate was removed: call merge(other) after partial_fit" in result.output
    for name in REMOVED.keys() - get_command(app).commands.keys():
        result = CliRunner().invoke(app, [name, "--help"])
        assert (result.exit_code, REMOVED[name] in result.output) == (2, True)


def test_ctrl_c_before_the_command_runs_prints_no_traceback():
    code = (
        "import domainwise.cli\n"
        "def interrupt(): raise KeyboardInterrupt\n"
        "domainwise.cli.app = interrupt\n"
        "from domainwise.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "interrupted before the command started\n"
