"""Forests of model files are the forests that were fitted, in a few arrays."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)

from domainwise import DomainEnsembleClassifier
from domainwise.datasets import make_synthetic
from domainwise.ensemble.forests import packed, round_leaves, unpacked
from domainwise.model_files.persistence import load, save


@pytest.fixture(scope="module", params=["classes", "numbers"])
def forest(request):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = X[:, 0] ** 2 + X[:, 1]
    if request.param == "numbers":
        return round_leaves(ExtraTreesRegressor(20, random_state=0).fit(X, y)), X
    y = np.digitize(y, [0.0, 1.0])
    return round_leaves(ExtraTreesClassifier(20, max_depth=9, random_state=0).fit(X, y)), X


def outputs(forest, X):
    return forest.predict_proba(X) if hasattr(forest, "predict_proba") else forest.predict(X)


def test_a_forest_that_was_packed_predicts_the_same_bits(forest):
    model, X = forest
    again = unpacked(packed(model))
    new = np.random.default_rng(1).normal(size=(2000, 5))
    # Rows that lie on thresholds, as trees see them, are the hardest ones.
    thresholds = model.estimators_[0].tree_.threshold.astype(np.float32)
    on = np.repeat(np.resize(thresholds, (len(X), 1)), 5, axis=1)
    for rows in (X, new, on):
        np.testing.assert_array_equal(outputs(again, rows), outputs(model, rows))
    assert again.get_params() == model.get_params()


def test_packing_takes_a_fraction_of_the_memory(forest):
    model, _ = forest
    assert len(pickle.dumps(packed(model))) < 0.35 * len(pickle.dumps(model))


def test_rounding_of_leaves_is_far_below_what_trees_differ_by(forest):
    model, X = forest
    plain = type(model)(**model.get_params())
    y = np.digitize(X[:, 0] ** 2 + X[:, 1], [0.0, 1.0])
    plain.fit(X, y)
    before = outputs(plain, X)
    np.testing.assert_allclose(outputs(round_leaves(plain), X), before, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("right", lambda right: right + 1000),
        ("right", lambda right: 0 * right),
        ("right", lambda right: right[:-1]),
        ("feature", lambda feature: np.where(feature >= 0, 5, feature)),
        ("feature", lambda feature: feature[:-1]),
        ("threshold", lambda threshold: threshold[1:]),
        ("sizes", lambda sizes: sizes + 1),
        ("sizes", lambda sizes: np.concatenate([[0], sizes[1:]])),
        ("values", lambda values: values[:-1]),
        ("values", lambda values: np.hstack([values, values])),
    ],
)
def test_trees_that_point_outside_of_themselves_are_refused(forest, name, change):
    state = packed(forest[0])
    state[name] = change(state[name])
    with pytest.raises(
        ValueError, match="a tree refers to nodes, features or values that do not exist"
    ):
        unpacked(state)


def test_other_models_are_left_as_they_are():
    model = HistGradientBoostingRegressor()
    assert packed(model) is model
    assert unpacked(model) is model


def test_a_saved_ensemble_holds_packed_trees_and_predicts_the_same(tmp_path):
    data = make_synthetic(n_domains=4, n_per_domain=60, random_state=0)
    model = DomainEnsembleClassifier(["extra_trees"], random_state=0)
    model.fit(data.data, data.target, sample_domain=data.sample_domain)
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    expected = model.predict_proba(data.data, data.sample_domain)
    np.testing.assert_array_equal(again.predict_proba(data.data, data.sample_domain), expected)
    nodes = sum(t.tree_.node_count for t in model.members_["extra_trees"].estimators[0].estimators_)
    assert (tmp_path / "model.skops").stat().st_size < 60 * nodes
