"""Forests in model files are stored as a few arrays and equal the fitted forests."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
)

from domainwise import DomainEnsembleClassifier
from domainwise.base.inputs import Labels
from domainwise.datasets import make_synthetic
from domainwise.estimators.ensemble import members
from domainwise.estimators.ensemble.trees import pack_forest, round_leaves, unpack_forest
from domainwise.held_out.search.scores import MIN_PROBABILITY
from domainwise.models.files.persistence import load, save


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
    again = unpack_forest(pack_forest(model))
    new = np.random.default_rng(1).normal(size=(2000, 5))
    # Rows exactly on thresholds, in float32, are the most difficult case.
    thresholds = model.estimators_[0].tree_.threshold.astype(np.float32)
    on = np.repeat(np.resize(thresholds, (len(X), 1)), 5, axis=1)
    for rows in (X, new, on):
        np.testing.assert_array_equal(outputs(again, rows), outputs(model, rows))
    assert again.get_params() == model.get_params()


def test_a_forest_that_was_packed_has_the_same_importances(forest):
    model, _ = forest
    again = unpack_forest(pack_forest(model))
    importances = model.feature_importances_
    assert importances.max() > 2 * importances.min()
    np.testing.assert_allclose(again.feature_importances_, importances, atol=1e-6)
    for tree, original in zip(again.estimators_, model.estimators_, strict=True):
        expected = original.feature_importances_
        np.testing.assert_allclose(tree.feature_importances_, expected, atol=1e-6)


def test_packing_takes_a_fraction_of_the_memory(forest):
    model, _ = forest
    assert len(pickle.dumps(pack_forest(model))) < 0.35 * len(pickle.dumps(model))


def test_rounding_of_leaves_is_much_smaller_than_differences_between_trees(forest):
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
        ("gains", lambda gains: gains[:-1]),
        ("values", lambda values: np.hstack([values, values])),
    ],
)
def test_trees_with_invalid_references_are_refused(forest, name, change):
    state = pack_forest(forest[0])
    state[name] = change(state[name])
    with pytest.raises(
        ValueError, match="a tree refers to nodes, features or values that do not exist"
    ):
        unpack_forest(state)


def test_other_models_are_left_as_they_are():
    model = HistGradientBoostingRegressor()
    assert pack_forest(model) is model
    assert unpack_forest(model) is model


def test_a_saved_ensemble_contains_packed_trees_and_predicts_the_same(tmp_path):
    data = make_synthetic(n_domains=4, n_per_domain=60, random_state=0)
    model = DomainEnsembleClassifier(["extra_trees"], random_state=0)
    model.fit(data.data, data.target, sample_domain=data.sample_domain)
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    expected = model.predict_proba(data.data, data.sample_domain)
    np.testing.assert_array_equal(again.predict_proba(data.data, data.sample_domain), expected)
    nodes = sum(t.tree_.node_count for t in model.members_["extra_trees"].estimators[0].estimators_)
    assert (tmp_path / "model.skops").stat().st_size < 60 * nodes


@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 3.0}])
@pytest.mark.parametrize("n_classes", [0, 2])
def test_candidates_are_compared_on_the_trees_of_scikit_learn(monkeypatch, n_classes, class_weight):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)).astype(np.float32).astype(float)
    y = X[:, 0] + rng.standard_normal(200)
    y = (y > 0).astype(int) if n_classes else y
    kind = members.MEMBER_TYPES["extra_trees"]()
    labels = Labels(y, np.arange(2)) if n_classes else Labels(values=y[:, None])
    options = {"class_weight": class_weight if n_classes else None, "seed": 3}
    data = members.MemberData(
        X, y, target=labels, domain=Labels(np.arange(200) % 4, np.arange(4)), **options
    )
    train, test, candidate = (
        np.arange(150),
        np.arange(150, 200),
        {"min_samples_leaf": 5, "max_features": 1.0},
    )
    monkeypatch.setattr(members, "COMPARED_TREES", 3)
    (values,) = kind.outputs(data, train, test, [candidate], None)
    forest_type = ExtraTreesClassifier if n_classes else ExtraTreesRegressor
    weights = None if options["class_weight"] is None else np.where(y[train] == 1, 3.0, 1.0)
    forest = forest_type(3, random_state=3, **candidate).fit(X[train], y[train], weights)
    if n_classes:
        expected = np.log(np.maximum(forest.predict_proba(X[test]), MIN_PROBABILITY))
    else:
        expected = forest.predict(X[test])[:, None]
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
