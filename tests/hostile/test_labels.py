"""Every estimator takes labels and domains of any type, or refuses them in words."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import domainwise as dw
from domainwise.selection import DCMCV, InvariantSearchCV

sys.path.insert(0, str(Path(__file__).parent))
from strategies import labels

N_ROWS = 12
X = np.random.default_rng(0).normal(size=(N_ROWS, 3))
DOMAINS = np.arange(N_ROWS) % 3
CLASSES = np.arange(N_ROWS) // 2 % 2

ESTIMATORS = [
    dw.DCM(),
    dw.COIR(),
    dw.DICA(),
    dw.SCA(n_components=2),
    dw.FastDCM(n_landmarks=5),
    dw.FastKPCA(n_landmarks=5, n_components=2),
    dw.InvariantSVC(),
    dw.InvariantRidgeClassifierCV(gammas=[0.1], alphas=[1.0]),
    DCMCV(gammas=[0.1], ridges=[1e-2], domain_weights=[0.0]),
    InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}),
]
# TypeError where scikit-learn itself refuses so (mixed types that cannot be sorted).
REFUSALS = (ValueError, TypeError)


def fit(estimator, y, domains):
    """Fit, or return the words of the refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.fit(X, y, sample_domain=domains)
        except REFUSALS as error:
            return str(error) or "no words"
    return None


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_labels_and_domains_of_any_type_are_taken_or_refused(estimator, data):
    y = data.draw(labels(N_ROWS))
    domains = data.draw(labels(N_ROWS))
    assert fit(estimator, y, DOMAINS) != "no words"
    refusal = fit(estimator, CLASSES, domains)
    assert refusal != "no words"
    if refusal is None and getattr(estimator, "domains_", None) is not None:
        # No two domains have become one, and none has become two.
        assert len(estimator.domains_) == len(set(domains))
