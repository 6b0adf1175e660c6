"""Classes and probabilities come from a single prediction of the ensemble."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline

from domainwise import DomainEnsembleClassifier
from domainwise.datasets import make_synthetic
from domainwise.held_out.scoring.predictions import Predictions, fit_with_domains
from domainwise.models.tuning import MethodSearch


class Asked(DomainEnsembleClassifier):
    """Counts its predictions."""

    def _predict(self, X, sample_domain):
        self.times_ = getattr(self, "times_", 0) + 1
        return super()._predict(X, sample_domain)


class Cautious(Asked):
    """Predicts the last class only if it is certain, so not always the most probable class."""

    def predict(self, X, sample_domain=None):
        certain = self.predict_proba(X, sample_domain)[:, -1] > 0.9
        return self.classes_[np.where(certain, -1, 0)]


@pytest.mark.parametrize(("kind", "times"), [(Asked, 1), (Cautious, 2)])
@pytest.mark.parametrize("in_context", [False, True])
def test_classes_and_probabilities_come_from_one_prediction(kind, times, in_context):
    data = make_synthetic(n_domains=4, n_per_domain=30, random_state=0)
    X, y, domain = data.data, np.array(["ill", "well", "none"])[data.target], data.sample_domain
    members = [("bayes", GaussianNB()), ("logistic", LogisticRegression(C=0.1))]
    model = Pipeline(
        [("model", MethodSearch(kind(members, context=in_context, decision="argmax")))]
    )
    fit_with_domains(model, X, y, domain)
    # A problem may have its classes in another order, and classes that training rows lack.
    told = Predictions(model, X, np.array(["well", "rare", "none", "ill"]))
    asked = (X,)
    if in_context:
        told.sample_domain, asked = domain, (X, domain)
    labels, probabilities = told.labels, told.probabilities
    ensemble = model[-1].estimator_
    assert ensemble.times_ == times
    np.testing.assert_array_equal(labels, ensemble.predict(*asked))
    expected = dict(zip(ensemble.classes_, ensemble.predict_proba(*asked).T, strict=True))
    for name, column in zip(told.classes, probabilities.T, strict=True):
        np.testing.assert_array_equal(column, expected.get(name, np.zeros(len(X))))
