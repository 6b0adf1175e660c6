"""Docstrings of public names say what numpydoc can check."""

import inspect
import re

import names
import pytest

pytestmark = pytest.mark.docs

#: What is asked for: a docstring (GL08) with sections in order (GL06, GL07), a summary that is a
#: sentence (SS01 to SS04), exactly the arguments of the signature (PR01, PR02), types that are
#: written (PR06, PR10), what is returned (RT01), and for what users call by name an example (EX01),
#: which pytest runs.
CHECKS = {
    *("GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04"),
    *("PR01", "PR02", "PR06", "PR10", "RT01", "EX01"),
}
#: What functions return: described by attributes, and shown in the examples of these functions.
RESULTS = {"Evaluation", "DomainScores", "InvarianceReport"}
RESULTS |= {"DecisionCurves", "Estimate", "PooledScores", "SiteEstimates"}
#: Shown in the example of ``save``.
SHOWN_ELSEWHERE = {"load"}


def targets():
    for group in names.groups():
        for name in group.names:
            yield name
            if isinstance(names.resolve(name), type):
                yield from (f"{name}.{member}" for member in names.own_members(name))


def is_excused(target, code, message):
    _, _, last = target.rpartition(".")
    if code == "EX01":
        is_member = not any(target in group.names for group in names.groups())
        return is_member or last.endswith("Error") or last in RESULTS | SHOWN_ELSEWHERE
    if code == "PR01":  # **unknown exists only to be rejected with a message
        named = set(re.findall(r"'(\W*\w+)'", message))
        return last in RESULTS or named <= names.UNDESCRIBED_PARAMETERS | {"**unknown"}
    return False


@pytest.mark.parametrize("target", list(targets()))
def test_a_docstring_describes_what_the_signature_has(target):
    from numpydoc.validate import validate

    found = [
        f"{code}: {message}"
        for code, message in validate(target)["errors"]
        if code in CHECKS and not is_excused(target, code, message)
    ]
    assert found == []


def add(a, b):
    """Add two numbers.

    Parameters
    ----------
    a : int
        The first.
    """


def test_an_argument_that_is_not_described_would_be_noticed(monkeypatch):
    """Otherwise the test above could pass for the wrong reason."""
    from numpydoc.validate import validate

    monkeypatch.setattr(names, "add", add, raising=False)
    assert "PR01" in {code for code, _ in validate("names.add")["errors"]}


def section(text, name):
    """The text of a section of a docstring; empty if there is none."""
    match = re.search(
        rf"^{name}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}$|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return match[1] if match else ""


CLASSES = [name for group in names.groups() for name in group.names
           if isinstance(names.resolve(name), type)]  # fmt: skip
ESTIMATORS = [name for name in CLASSES if hasattr(names.resolve(name), "fit")
              and names.resolve(name).__name__ not in RESULTS]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_links_the_guide_and_describes_its_parameters_in_their_order(name):
    cls = names.resolve(name)
    assert names.guide_page(name) or name.endswith(("Error", "Warning"))
    lines = re.findall(r"^(\S.*?) :", section(inspect.getdoc(cls), "Parameters"), re.MULTILINE)
    described = [parameter.strip() for line in lines for parameter in line.split(",")]
    order = [name for name in inspect.signature(cls).parameters if name in described]
    assert described == order


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_says_what_it_solves_where_it_is_published_and_shows_a_number(name):
    text = inspect.getdoc(names.resolve(name))
    assert ":math:" in section(text, "Notes") or ".. math::" in section(text, "Notes")
    references = section(text, "References")
    assert re.search(r"\((19|20)\d\d\)", references)
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,}/\S+", references)
    shown = [line for line in section(text, "Examples").splitlines()
             if line and not line.startswith((">>>", "..."))]  # fmt: skip
    assert any(re.search(r"\d", line) for line in shown)
    assert not any(re.fullmatch(r"\(\d+, ?\d*\)", line) for line in shown[:1])  # not only a shape
