"""Pages of the guide show what their code prints, and a picture."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
TEXT = {path.stem: path.read_text(encoding="utf-8") for path in GUIDE.glob("*.md")}
#: Pages that are lists: nothing is computed on them.
LISTS = {"index", "glossary"}


@pytest.mark.parametrize("page", sorted(TEXT.keys() - LISTS))
def test_a_page_shows_what_its_code_prints_and_a_picture(page, site):
    built = (site / "guide" / f"{page}.html").read_text(encoding="utf-8")
    assert '<img alt="' in built
    if re.search("^```(python|console)$", TEXT[page], flags=re.MULTILINE):
        assert built.count('class="output docutils container"') >= 1


@pytest.mark.parametrize("page", sorted(TEXT.keys() - {"index"}))
def test_a_page_ends_with_where_to_go(page):
    *_, heading, links = re.split("^## (.*)\n", TEXT[page], flags=re.MULTILINE)
    assert heading == "Where to go next"
    assert len(re.findall(r"^- \[", links, flags=re.MULTILINE)) >= 2


def test_every_page_is_described_in_the_list_of_pages():
    listed = {*re.findall(r"^- .*?\((\w+)\.md\)", TEXT["index"], flags=re.MULTILINE)}
    assert listed == TEXT.keys() - {"index"}


def test_most_pages_are_computed():
    assert sum("```python" in text for text in TEXT.values()) >= 10


def test_the_changelog_has_each_section_once():
    text = (GUIDE.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in re.split("^## ", text, flags=re.MULTILINE)[1:]:
        sections = re.findall("^### (.*)", version, flags=re.MULTILINE)
        allowed = ["Changed", "Deprecated", "Removed", "Added", "Fixed", "Security"]
        assert sections == [name for name in allowed if name in sections]
