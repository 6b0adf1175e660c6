"""Each number in README is in the report or file that its paragraph cites."""

import json
import re
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
#: Numbers that are not results: a version, licences, and levels of intervals.
KNOWN = {"3.11", "3", "90", "95"}


def plain(text):
    """The text with plain minus signs and without code."""
    return re.sub(r"```.*?```", "", text.replace("−", "-"), flags=re.DOTALL)


def numbers(text):
    """All numbers of a text, with their signs and decimals as they are printed."""
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", "", plain(text))
    return re.findall(r"(?<![\w.])[+-]?\d+(?:,\d{3})*(?:\.\d+)?", text)


def section(heading):
    return README.split(f"## {heading}\n")[1].split("\n## ")[0]


def source(name):
    return set(numbers((ROOT / name).read_text("utf-8")))


def test_the_comparison_of_methods_has_the_numbers_of_its_report():
    text = section("When it helps, and when it does not")
    known = source("benchmarks/GROWTH.md")
    assert "[GROWTH.md](benchmarks/GROWTH.md)" in text
    assert len(numbers(text)) > 60
    assert [number for number in numbers(text) if number not in known | KNOWN] == []
    for line in text.splitlines():  # whole rows, so that no number is in the wrong one
        if line.startswith("| ") and "rows" not in line.split("|")[1]:
            cells = " | ".join(plain(line).split(" | ")[1:]).rstrip(" |")
            assert f"| {cells} |" in (ROOT / "benchmarks" / "GROWTH.md").read_text("utf-8")


def test_the_gain_from_labels_is_that_of_its_report():
    report = (ROOT / "benchmarks" / "ADAPT.md").read_text("utf-8")
    text = " ".join(section("In Python").split())
    paragraph = re.search(r"\*\*With a few labels from the new site\*\*.*?ADAPT", text)[0]
    changes = re.findall(r"by \S+ to \S+ % \(mean \S+ %\) on \d+ \w+ tables", paragraph)
    assert len(changes) == 2
    for change in changes:
        assert change in report
    columns = {"Regression": "now", "Classification": "20 labels"}
    for (heading, name), change in zip(columns.items(), changes, strict=True):
        table = re.search(rf"## {heading}:.*?((?:\n\|[^\n]*)+)", report, flags=re.DOTALL)[1]
        header, _, *rows = table.strip().splitlines()
        place = [cell.strip() for cell in header.split("|")].index(name)
        values = [float(row.split("|")[place].split("±")[0]) for row in rows]
        low, high, mean, count = re.findall(r"[+-]?[\d.]+", change)
        assert (round(min(values)), round(max(values))) == (int(low), int(high))
        assert (round(statistics.mean(values), 1), len(values)) == (float(mean), int(count))


def test_times_are_those_of_the_guide():
    speed = re.search(r"- \*\*Speed\*\*.*?(?=\n- )", README, flags=re.DOTALL)[0]
    known = source("docs/guide/scale.md")
    assert [number for number in numbers(speed) if number not in known] == []


def test_all_other_numbers_are_those_of_the_four_hospitals():
    """``docs/hospitals.json``; test_hospitals.py compares the sentences."""
    recorded = json.loads((ROOT / "docs" / "hospitals.json").read_text("utf-8"))
    known = set(numbers(" ".join(recorded["texts"].values()))) | {str(recorded["four"]["rows"])}
    beginning = README.split("**With a few labels")[0]
    assert [number for number in numbers(beginning) if number not in known | KNOWN] == []
