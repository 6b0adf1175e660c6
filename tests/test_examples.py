"""The examples show what they say."""

import ast
import importlib.util
from pathlib import Path

import pytest
from sklearn import config_context

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_summary_of_the_domain_improves_accuracy_by_more_than_a_tenth():
    marginal = example("marginal_transfer")
    with config_context(enable_metadata_routing=True):
        single, _ = marginal.score("SVM, rows only", 0)
        together, one_by_one = marginal.score("SVM, rows and summary", 0)
    assert together > single + 0.1
    assert abs(one_by_one - single) < 0.1


GALLERY = sorted((EXAMPLES / "gallery").glob("*.py"))
#: Names in statements that draw.
DRAWN = {"plt", "figure", "axes", "panels", "image", "bar", "contours"}


def lines_of_code(nodes, lines):
    """Numbers of the lines that draw, and of all lines of code except imports and docstrings."""
    drawn, written = set(), set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue
        body = getattr(node, "body", [])
        last = body[0].lineno - 1 if body else node.end_lineno
        inside = {part for statement in body for part in ast.walk(statement)}
        names = {
            part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part not in inside
        }
        numbers = {
            number
            for number in range(node.lineno, last + 1)
            if lines[number - 1].strip() and not lines[number - 1].lstrip().startswith("#")
        }
        written |= numbers
        drawn |= numbers if names & DRAWN else set()
        for total, part in zip((drawn, written), lines_of_code(body, lines), strict=True):
            total |= part
    return drawn, written


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_at_most_a_third_of_an_example_draws(path):
    text = path.read_text("utf-8")
    drawn, written = lines_of_code(ast.parse(text).body, text.splitlines())
    assert len(drawn) <= len(written) / 3


def test_half_of_the_examples_use_real_data():
    real = [path for path in GALLERY if "load_heart" in path.read_text("utf-8")]
    assert len(real) >= len(GALLERY) / 2
