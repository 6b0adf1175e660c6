"""A model of every saved type gives the same results after it was saved and loaded."""

import sys
import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import sklearn

import domainwise as dw

sys.path.insert(0, str(Path(__file__).parent))
import make_fixtures

pytest.importorskip("skops")
pytest.importorskip("pandas")

MODELS = {name: (model, y) for name, model, y in make_fixtures.arrays()}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr("domainwise.estimators.ensemble.members.TREES", 3)
    monkeypatch.setattr("domainwise.estimators.ensemble.members.COMPARED_TREES", 3)
    monkeypatch.setattr(make_fixtures.MEMBER_TYPES["boosting"], "max_rounds", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def copied(model, tmp_path):
    """Save a model and load it."""
    dw.save(model, tmp_path / "model.skops")
    return dw.load(tmp_path / "model.skops")


def assert_close(answer, expected):
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(answer, expected)


def assert_same(answers, expected):
    assert answers.keys() == expected.keys()
    for key, value in expected.items():
        assert_close(answers[key], value)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_returns_the_results_of_the_saved_one(name, tmp_path):
    model = make_fixtures.fitted(*MODELS[name])
    expected = make_fixtures.answers(model)
    assert expected
    loaded = copied(model, tmp_path)
    assert_same(make_fixtures.answers(loaded), expected)
    for output in ("pandas", "polars"):
        pytest.importorskip(output)
        with sklearn.config_context(transform_output=output):
            answers = make_fixtures.answers(loaded)
        for key in {"predict", "predict_proba"} & expected.keys():
            assert_close(answers[key], expected[key])


@pytest.mark.parametrize("name", [name for name, _ in make_fixtures.in_batches()])
def test_a_loaded_model_accepts_further_batches(name, tmp_path):
    model = dict(make_fixtures.in_batches())[name]
    loaded = copied(model, tmp_path)
    expected = make_fixtures.answers(make_fixtures.next_batch(name, deepcopy(model)))
    assert_same(make_fixtures.answers(make_fixtures.next_batch(name, loaded)), expected)
