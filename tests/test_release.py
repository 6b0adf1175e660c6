"""What is released: versions agree, bounds are tested, the sdist stands on its own."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import domainwise

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = re.compile(r"^([a-z0-9-]+)==([0-9.]+)", re.MULTILINE)


def bounds():
    """Lower bounds by name, of extras too but for the tools that make the site."""
    extras = PROJECT["optional-dependencies"].items()
    required = [*PROJECT["dependencies"]]
    required += [line for name, extra in extras if name != "docs" for line in extra]
    found = {}
    for line in required:
        name, _, bound = line.partition(">=")
        name = name.partition("[")[0]
        assert bound or name == "domainwise", f"{line} has no lower bound"
        if bound:
            assert found.setdefault(name, bound) == bound, f"{name} has two bounds"
    return found


def padded(version):
    return tuple([*map(int, version.split(".")), 0, 0][:3])


def test_all_files_have_the_same_version():
    assert PROJECT["dynamic"] == ["version", "readme"]
    assert "version" not in PROJECT
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == domainwise.__version__


def test_the_lowest_tested_versions_are_the_lowest_allowed_ones():
    lowest = dict(PINNED.findall((ROOT / "lowest.txt").read_text(encoding="utf-8")))
    allowed = {name: bound for name, bound in bounds().items() if name != "torch"}
    assert {name: padded(bound) for name, bound in allowed.items()} == {
        name: padded(version) for name, version in lowest.items()
    }


def test_the_pinned_versions_are_allowed():
    pinned = dict(PINNED.findall((ROOT / "constraints.txt").read_text(encoding="utf-8")))
    for name, bound in bounds().items():
        if name != "torch":
            assert padded(pinned[name]) >= padded(bound), name


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Files of the sdist."""
    pytest.importorskip("hatchling", reason="hatchling builds the sdist")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_sdist_contains_tests_docs_examples_and_their_files(names):
    wanted = {"Makefile", "constraints.txt", "lowest.txt", "CITATION.cff", "LICENSE", ".ci/run"}
    for folder in ("tests", "docs", "examples", "reproduction", "src"):
        wanted |= {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".md", ".toml", ".j2")
        }
    made = tuple(f"docs/{name}/" for name in ("_build", "benchmarks", "gallery", "reference"))
    wanted = {name for name in wanted if not name.startswith(made)}  # by make docs, if at all
    assert wanted <= names


def test_the_sdist_contains_only_data_that_may_be_redistributed(names):
    endings = (".csv", ".gz", ".parquet", ".feather", ".xlsx", ".npy", ".npz", ".mat", ".skops")
    data = [name for name in names if name.endswith(endings)]
    assert data == ["src/domainwise/datasets/heart_hospitals.csv.gz"]


def test_a_sample_of_tests_has_as_many_different_tests_as_possible():
    file = "tests/test_layers.py"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", file]

    def names(*options):
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if line.startswith(file)]

    whole, some = names(), names("--every", "40")
    assert len(some) == -(-len(whole) // 40)
    assert set(some) < set(whole)
    assert len({name.partition("[")[0] for name in some}) == len(some)
