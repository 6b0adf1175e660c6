"""The program starts quickly: help and version load none of the packages that compute."""

import subprocess
import sys

import pytest

pytest.importorskip("typer")

from domainwise.cli import app

HEAVY = {"numpy", "scipy", "sklearn", "pandas", "joblib", "matplotlib", "rich", "pydantic"}
CODE = """
import sys
from domainwise.__main__ import main
try:
    main()
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
        ["federate", "--help"],
        ["federate", "plan", "--help"],
        *([name, "--help"] for name in COMMANDS),
    ],
    ids=" ".join,
)
def test_help_and_version_load_nothing_that_computes(arguments):
    assert not loaded(*arguments) & HEAVY
