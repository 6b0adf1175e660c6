"""Words that point somewhere: cited sections and named files exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "docs", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md") and path != Path(__file__).resolve()
)
NUMBER = r"\d+(?:\.\d+)?"
#: ``theory 5.2``, ``theory 2 to 5``, ``theory 6.1, 6.3 and 12``; a comment's line may break inside.
CITED = re.compile(rf"\btheory[\s#]+({NUMBER}(?:(?:, | and | or | to ){NUMBER})*)")


def sections(text):
    """Numbers of the headings of docs/theory.md."""
    return set(re.findall(rf"^#+ ({NUMBER}) ", text, flags=re.MULTILINE))


def cited(text):
    """Every section number that a text cites."""
    return {
        number for match in CITED.finditer(text) for number in re.findall(NUMBER, match.group(1))
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(theory 5.2)", {"5.2"}),
        ("as in theory 2 to 5.", {"2", "5"}),
        ("theory 6.1, 6.3 and 12", {"6.1", "6.3", "12"}),
        ("another kernel (theory\n12). It", {"12"}),
        ("in theory, 3 rows", set()),
    ],
)
def test_citations_are_found(text, numbers):
    assert cited(text) == numbers


def test_every_cited_section_of_the_theory_exists():
    there = sections((ROOT / "docs" / "theory.md").read_text(encoding="utf-8"))
    citing = {path: cited(path.read_text(encoding="utf-8")) for path in FILES}
    assert any(citing.values())
    absent = [
        f"{path.relative_to(ROOT)} cites theory {number}"
        for path, numbers in citing.items()
        for number in sorted(numbers - there)
    ]
    assert not absent, "\n".join(absent)


def test_nothing_cites_a_document_that_is_not_in_the_repository():
    citing = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bDESIGN\b", line)
    ]
    assert not citing, "\n".join(citing)
