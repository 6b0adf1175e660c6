"""A few of the changes that ``make fuzz`` makes by the thousand."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("skops.io")
pytest.importorskip("pandas")
pytest.importorskip("resource")


@pytest.mark.parametrize(
    "name, count",
    [(f"fuzz_{kind}.py", 60) for kind in ("models", "tables", "folders")],
)
def test_changed_files_are_refused_or_work(name, count):
    script = Path(__file__).with_name(name)
    done = subprocess.run(
        [sys.executable, script, "--count", str(count)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_overlapping_fits_equal_serial_ones_and_leave_the_process_unchanged():
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, script, "--count", "12"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
