"""Reference managers can read CITATION.cff."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

CITATION = Path(__file__).resolve().parents[2] / "CITATION.cff"


def test_the_citation_file_is_yaml_with_the_keys_that_its_format_requires():
    import yaml  # installed with myst-parser

    citation = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert {"type", "title", "authors"} <= citation["preferred-citation"].keys()
    people = citation["authors"] + citation["preferred-citation"]["authors"]
    assert all({"name", "family-names"} & person.keys() for person in people)
    text = [citation[key] for key in ("title", "abstract", "message", "version", "license")]
    assert all(isinstance(value, str) for value in text)
