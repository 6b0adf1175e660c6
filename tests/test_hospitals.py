"""README, landing page, guide and demo show the same numbers, those that a script recorded."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORDED = json.loads((ROOT / "docs" / "hospitals.json").read_text("utf-8"))
pytest.importorskip("pandas")


def load_script():
    spec = importlib.util.spec_from_file_location("hospitals", ROOT / "examples" / "hospitals.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOSPITALS = load_script()
PAIRS = [(page, key) for page, keys in HOSPITALS.PAGES.items() for key in keys]


def words(text):
    return " ".join(re.sub(r"^# ", "", text, flags=re.MULTILINE).split())


@pytest.mark.parametrize(("page", "key"), PAIRS)
def test_a_page_contains_the_recorded_text(page, key):
    assert RECORDED["texts"][key] in words((ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize("page", HOSPITALS.PAGES)
def test_a_page_shows_no_other_range_of_the_balanced_accuracy(page):
    ranges = re.findall(
        r"balanced accuracy between \d\S+ and \S+", words((ROOT / page).read_text("utf-8"))
    )
    assert ranges
    assert all(text in RECORDED["texts"]["expect"] for text in ranges)


def test_the_texts_follow_from_the_recorded_numbers():
    assert HOSPITALS.write_texts(RECORDED) == RECORDED["texts"]
    metric, *limits = re.match(
        r"(.*) between (\S+) and (\S+) at", RECORDED["texts"]["expect"]
    ).groups()
    assert metric == RECORDED["four"]["metric"]
    for text, limit in zip(limits, RECORDED["four"]["range"], strict=True):
        assert text == f"{limit:.{len(text.partition('.')[2])}f}"


def test_the_recorded_numbers_are_those_of_this_version(tmp_path):
    """If this fails: ``python examples/hospitals.py FOLDER --record`` and look at the pages."""
    from domainwise import evaluate
    from domainwise.datasets import load_heart

    four = RECORDED["four"]
    frame = load_heart(as_frame=True).frame
    evaluation = evaluate(frame, "label", "domain", methods=four["key"], progress=False)
    result = evaluation.recommended
    assert evaluation.measure.label == four["metric"]
    assert result.label == four["method"]
    assert result.known == pytest.approx(four["sites"], abs=0.002)
    assert evaluation.next_site == pytest.approx(four["range"], abs=0.002)


def test_old_texts_are_found_where_lines_end_elsewhere(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("We expect 0.5\nto 0.6 there, and 0.7.\n")
    monkeypatch.setattr(HOSPITALS, "ROOT", tmp_path)
    monkeypatch.setattr(HOSPITALS, "PAGES", {"page.md": ("expect",)})
    HOSPITALS.replace_texts({"expect": "0.5 to 0.6 there"}, {"expect": "0.4 to 0.5 there"})
    assert page.read_text() == "We expect 0.4 to 0.5 there, and 0.7.\n"
