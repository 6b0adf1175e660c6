"""The examples show what they say."""

import importlib.util
from pathlib import Path

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
