"""What the tests of the site share: its tools, and the folder it is built in."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))


@pytest.fixture(scope="session")
def site():
    """The built site; tests that ask for it are skipped where ``make docs`` has not been run."""
    folder = ROOT / "docs" / "_build" / "html"
    if not (folder / "index.html").is_file():
        pytest.skip("there is no site in docs/_build/html: run make docs")
    return folder
