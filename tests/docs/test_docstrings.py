"""Docstrings of public names say what numpydoc can check."""

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
