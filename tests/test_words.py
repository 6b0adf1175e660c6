"""Words that point somewhere: cited sections and named files exist."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import domainwise
from domainwise.checks.signatures import PLACE

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


def test_the_library_speaks_of_arguments_and_leaves_options_to_the_command_line():
    speaking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("jobs", "paper")
        for path in sorted((ROOT / "src" / "domainwise" / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and "--" in ast.unparse(node)
    ]
    assert not speaking


# The map in CONTRIBUTING.md -----------------------------------------------------------------------

MAP = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_map_names_only_files_that_exist():
    named = set(re.findall(r"`([\w./-]+/[\w./-]+|[\w-]+\.(?:py|md|txt))`", MAP))
    outside = {"../shared/data", "docs/_build/html"}  # the second is made
    assert len(named) > 50
    bases = (ROOT, ROOT / "src" / "domainwise")
    absent = [name for name in named - outside if not any((base / name).exists() for base in bases)]
    assert not absent


def test_the_map_has_the_folders_in_the_order_that_imports_are_held_to():
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    (layers,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "LAYERS"
    ]
    table = MAP[MAP.index("| folder |") :].split("\n\n")[0].splitlines()[2:]
    assert [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table] == layers


def test_the_map_names_only_targets_that_make_knows():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", MAP)) <= targets


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {domainwise.__version__}\n" in citation


def public_methods():
    for name in domainwise.__all__:
        cls = getattr(domainwise, name)
        if isinstance(cls, type):
            yield from ((cls, method) for method in dir(cls) if not method.startswith("_"))


def test_no_place_for_a_shared_text_is_left_in_a_docstring():
    texts = {
        f"{cls.__name__}.{name}": inspect.getdoc(inspect.getattr_static(cls, name)) or ""
        for cls, name in public_methods()
    }
    assert [name for name, text in texts.items() if PLACE.search(text)] == []
    assert "kernel values between new rows and training rows" in texts["DCM.transform"]
    assert "(n_rows, n_features)" in texts["InvariantSVC.predict_proba"]
