"""The list of deliberate defects fits the sources; ``make defects`` tries them."""

import importlib.util
from pathlib import Path

import pytest

path = Path(__file__).with_name("run.py")
spec = importlib.util.spec_from_file_location("deliberate_defects", path)
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


@pytest.mark.parametrize("defect", run.DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_changes_one_place_and_leaves_valid_code(defect):
    path, content = defect.place()
    assert content != path.read_text(encoding="utf-8")
    compile(content, str(path), "exec")
    assert all((run.ROOT / "tests" / name).exists() for name in defect.tests)


def test_ten_packages_or_more_have_a_defect():
    places = [defect.place()[0].relative_to(run.SOURCES) for defect in run.DEFECTS]
    assert len({place.parent for place in places}) >= 10
