"""Boosting with symmetric trees equals an implementation with loops."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1

from domainwise.estimators.ensemble import trees as symmetric
from domainwise.estimators.ensemble.trees import (
    SymmetricBoostingClassifier,
    SymmetricBoostingRegressor,
)


def table(n_classes, n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    X[:, 1] = np.round(X[:, 1])
    signal = X[:, 0] + X[:, 1] * X[:, 2]
    if not n_classes:
        return X, signal
    return X, np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))


def derivatives(values, y, n_classes):
    """Return the gradient and curvature of each row and output, from their definitions."""
    if not n_classes:
        return y[:, None] - values, np.ones_like(values)
    if n_classes == 2:
        p = 1 / (1 + np.exp(-values))
        return y[:, None] - p, p * (1 - p)
    p = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    return (y[:, None] == np.arange(n_classes)) - p, p * (1 - p)


def tree_by_loops(X, y, values, weight, n_classes, depth, penalty, bag):
    """Choose splits by trying all of them, and return them with the leaf values."""
    gradient, curvature = derivatives(values, y, n_classes)
    leaf, splits = np.zeros(len(X), dtype=int), []
    for _ in range(depth):
        gains = {}
        for feature in range(X.shape[1]):
            known = np.unique(X[:, feature])
            for threshold in (known[1:] + known[:-1]) / 2:
                gain = 0.0
                for node in np.unique(leaf):
                    for side in (X[:, feature] > threshold, X[:, feature] <= threshold):
                        rows = (leaf == node) & side
                        pull = (bag * weight)[rows] @ gradient[rows]
                        gain += pull @ pull / ((bag * weight)[rows].sum() + penalty)
                gains[feature, threshold] = gain
        feature, threshold = max(gains, key=gains.get)
        splits.append((feature, threshold))
        leaf = 2 * leaf + (X[:, feature] > threshold)
    leaves = np.zeros((2**depth, values.shape[1]))
    for node in np.unique(leaf):
        rows = leaf == node
        below = weight[rows] @ curvature[rows] + penalty * np.mean(weight[:, None] * curvature)
        leaves[node] = weight[rows] @ gradient[rows] / below
    return splits, leaves, leaf


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_splits_and_leaves_equal_those_computed_with_loops(n_classes):
    X, y = table(n_classes)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    weight /= weight.mean()
    boosting = SymmetricBoostingClassifier if n_classes else SymmetricBoostingRegressor
    model = boosting(3, max_depth=2, max_bins=128, l2_regularization=2.0)
    model.fit(X, y, weight)
    rng = np.random.default_rng(0)
    start = np.zeros(max(1, n_classes if n_classes > 2 else 1))
    start = start if n_classes else np.array([np.average(y, weights=weight)])
    values = np.tile(start, (len(X), 1))
    for i in range(3):
        rng.permutation(3)
        bag = rng.exponential(size=len(X))
        splits, leaves, leaf = tree_by_loops(X, y, values, weight, n_classes, 2, 2.0, bag)
        assert model.features_[i].tolist() == [feature for feature, _ in splits]
        np.testing.assert_allclose(model.thresholds_[i], [cut for _, cut in splits])
        np.testing.assert_allclose(model.leaves_[i], 0.1 * leaves, atol=1e-12)
        values += 0.1 * leaves[leaf]
    np.testing.assert_allclose(next(model.staged(X, {3})), values)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_stages_equal_models_with_fewer_trees(n_classes):
    X, y = table(n_classes)
    boosting = SymmetricBoostingClassifier if n_classes else SymmetricBoostingRegressor
    model = boosting(20, max_depth=3, random_state=3).fit(X, y)
    short = clone(model).set_params(max_iter=7).fit(X, y)
    seven, twenty = model.staged(X, {7, 20})
    np.testing.assert_array_equal(seven, next(short.staged(X, {7})))
    values = model.decision_function(X) if n_classes else model.predict(X)
    np.testing.assert_array_equal(values.reshape(len(X), -1), twenty)
    if n_classes:
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
        assert model.score(X, y) > 0.7


def test_many_rows_and_features_are_searched_in_parts(monkeypatch):
    X, y = make_friedman1(1200, 30, noise=0.5, random_state=0)
    train, test = np.arange(800), np.arange(800, 1200)
    monkeypatch.setattr(symmetric, "MAX_SPLIT_ROWS", 200)
    monkeypatch.setattr(symmetric, "MAX_SPLIT_FEATURES", 12)
    model = SymmetricBoostingRegressor(200, max_depth=4).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.85


def test_features_of_one_value_give_the_mean():
    X, y = np.ones((6, 2)), np.arange(6.0)
    model = SymmetricBoostingRegressor(3).fit(X, y)
    np.testing.assert_allclose(model.predict(X), 2.5)
    np.testing.assert_allclose(model.predict(1e9 * X), 2.5)


def test_a_feature_has_at_most_as_many_bins_as_asked_for():
    column = np.random.default_rng(0).exponential(size=1000)
    borders = symmetric.bin_borders(column, 8)
    counts = np.bincount(np.searchsorted(borders, column))
    assert len(counts) == 8
    assert counts.min() >= 120
    assert counts.max() <= 130
    two = symmetric.bin_borders(np.repeat([0.0, 1.0, 5.0], [998, 1, 1]), 2)
    np.testing.assert_allclose(two, [0.5])
