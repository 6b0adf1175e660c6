"""Fixtures shared by the whole suite."""

import os
from pathlib import Path

import pytest

BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data files; a test that asks for it is skipped where there is none."""
    named = os.environ.get("DOMAINWISE_DATA")
    folder = Path(named) if named else BESIDE_THE_REPOSITORY
    if not folder.is_dir():
        pytest.skip(
            f"$DOMAINWISE_DATA is {named!r}, which is not a folder"
            if named
            else "no data files: $DOMAINWISE_DATA is unset and ../shared/data does not exist"
        )
    return folder
