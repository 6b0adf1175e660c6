"""What a user's type checker knows of this package, and how much of it is still Any."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
MODULES = ["", ".datasets", ".distributed", ".estimators.ensemble", ".labels", ".metrics"]
MODULES += [".plots", ".selection"]
#: Arguments that are anything, by name. What else says Any is a fault.
ARBITRARY = {
    "kernel_params": "keywords of somebody's own kernel",
    "options": "passed on: of plot",
    "info": "what JSON can hold",
    "methods": "pairs, or threes, of a name, an estimator and its grid",
    "styles": "keywords of matplotlib",
    "client": "of Dask, which has no types",
    "partitions": "also of Dask",
    # Mappings do not vary in their keys: labels of one type would not be labels.
    "curves": "by domain",
    "scores": "by domain",
    "intervals": "by domain",
    "reference": "by domain",
    "errors": "by domain",
    "notes": "by domain",
    # Descriptions that become JSON, or come from it.
    "facts": "numbers and names",
    "set_calibration": "numbers and names",
    "differences": "numbers and names",
}
#: Methods that return anything: plain values for JSON, rows as they came, and any model.
RETURN_ANY = {"to_dict", "load", "transform"}


def test_a_users_code_is_understood_and_its_mistakes_are_found(tmp_path):
    pytest.importorskip("mypy")
    code = HERE / "user_code.py"
    options = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "--config-file="]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path}", str(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
    )
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        place = re.match(r".*user_code\.py:(\d+): (error|note): (.*)", line)
        if place is None:
            continue
        revealed = re.fullmatch(r'Revealed type is "(.*)"', place[3])
        if revealed is not None:
            array = revealed[1].startswith("numpy.ndarray[")
            found[int(place[1])] = "R: " + ("NDArray" if array else revealed[1].split(".")[-1])
        elif place[2] == "error":
            found[int(place[1])] = "E: " + re.search(r"\[([a-z-]+)\]$", place[3])[1]
    wanted = {
        number: match[1]
        for number, line in enumerate(code.read_text(encoding="utf-8").splitlines(), 1)
        if (match := re.search(r"# ([RE]: \S+)$", line))
    }
    assert len(wanted) > 25
    assert found == wanted, done.stdout + done.stderr


def signatures():
    """Every public function, and every public method of a public class, that is ours."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"domainwise{name}")
        for public in getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]):
            each = getattr(module, public)
            if inspect.isfunction(each):
                found[public] = each
            elif inspect.isclass(each):
                found |= {f"{public}.{n}": f for n, f in _methods(each)}
    return {name: f for name, f in found.items() if f.__module__.startswith("domainwise")}


def _methods(cls):
    for name in dir(cls):
        if name.startswith("_") and name != "__init__":
            continue
        each = inspect.getattr_static(cls, name)
        each = getattr(each, "fn", getattr(each, "fget", getattr(each, "__func__", each)))
        if inspect.isfunction(each):
            yield name, inspect.unwrap(each)


def test_signatures_use_any_only_for_arbitrary_objects():
    found, known = signatures(), set()
    for name, function in found.items():
        said = inspect.get_annotations(function)
        missing = [each for each in inspect.signature(function).parameters if each not in said]
        assert set(missing) <= {"self", "cls"}, f"{name}: {missing} have no type"
        for argument in [each for each, kind in said.items() if re.search(r"\bAny\b", str(kind))]:
            known.add(argument if argument != "return" else name.split(".")[-1])
    assert len(found) > 150
    assert known == ARBITRARY.keys() | RETURN_ANY
