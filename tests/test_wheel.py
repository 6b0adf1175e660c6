"""What a user installs holds what the program reads at run time."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def test_the_wheel_contains_all_templates(wheel):
    source = ROOT / "src"
    wanted = {str(path.relative_to(source)) for path in source.glob("**/templates/*")}
    assert len(wanted) >= 6
    assert wanted <= set(wheel.namelist())


def test_the_wheel_contains_all_toml_files(wheel):
    source = ROOT / "src"
    files = [*source.rglob("*.toml"), *source.rglob("*.mplstyle")]
    wanted = {str(path.relative_to(source)) for path in files}
    assert {"domainwise/base/arguments.toml", "domainwise/evaluation/figure.mplstyle"} <= wanted
    assert wanted <= set(wheel.namelist())


def test_the_wheel_contains_one_data_file_with_its_attribution(wheel):
    data = [name for name in wheel.namelist() if name.endswith((".gz", ".csv", ".parquet"))]
    assert data == ["domainwise/datasets/heart_hospitals.csv.gz"]
    about = wheel.read("domainwise/datasets/heart_hospitals.txt").decode()
    assert "Creative Commons Attribution 4.0" in about
    assert "Janosi" in about


def test_the_wheel_has_the_console_script_and_the_type_marker(wheel):
    names = wheel.namelist()
    assert "domainwise/py.typed" in names
    (entry,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "domainwise = domainwise.__main__:main" in wheel.read(entry).decode()


def test_the_wheel_contains_only_the_package_and_not_the_reproduction(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"domainwise"}


def test_the_description_has_no_link_that_needs_a_clone(wheel):
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    description = wheel.read(metadata).decode()
    assert "# domainwise" in description
    assert re.findall(r"\]\((?!https?:)[^)]*\)", description) == []
