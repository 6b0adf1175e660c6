"""Predictions that stand in a column, as CatBoost gives classes, count as those in a row."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import domainwise as dw
from domainwise.selection import DomainConformal, domain_cross_validate


class ColumnLogistic(LogisticRegression):
    def predict(self, X):
        return super().predict(X)[:, None]


class ColumnRidge(Ridge):
    def predict(self, X):
        return super().predict(X)[:, None]


def sites(classes):
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(120, 3)), np.repeat(list("pqrstu"), 20)
    y = X[:, 0] + 0.3 * rng.normal(size=120)
    return X, np.digitize(y, [-0.5, 0.5]) if classes else y, domain


PAIRS = [(ColumnLogistic(), LogisticRegression()), (ColumnRidge(), Ridge())]


@pytest.mark.parametrize(("column", "plain"), PAIRS)
def test_a_column_of_predictions_changes_nothing(column, plain):
    X, y, domain = sites(isinstance(plain, LogisticRegression))
    kind = "Classifier" if isinstance(plain, LogisticRegression) else "Regressor"
    ask = "predict_set" if kind == "Classifier" else "predict_interval"
    ensemble = getattr(dw, f"DomainEnsemble{kind}")

    def answers(model):
        name = "C" if kind == "Classifier" else "alpha"
        evaluation = dw.evaluate(X, y, domain, methods=[("mine", model, {name: [0.1, 1.0]})])
        return [
            domain_cross_validate(model, X, y, domain).scores,
            np.asarray(evaluation.predictions_["prediction"]),
            evaluation.fit("mine").predict(X).ravel(),
            ensemble([("mine", model)], random_state=0).fit(X, y, sample_domain=domain).predict(X),
            getattr(DomainConformal(model).fit(X, y, sample_domain=domain), ask)(X, coverage=0.5),
        ]

    for mine, expected in zip(answers(column), answers(plain), strict=True):
        np.testing.assert_array_equal(mine, expected)
