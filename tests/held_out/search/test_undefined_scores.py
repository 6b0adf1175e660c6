"""If a score is not defined on some domains, the others decide, with a warning."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from domainwise import InvariantRidgeClassifierCV, InvariantSVC
from domainwise.datasets import make_synthetic
from domainwise.selection import DCMCV, FastDCMCV, InvariantSearchCV, domain_cross_validate

pytestmark = pytest.mark.filterwarnings("ignore:Only one class is present")

SEARCHES = {
    "DCMCV": lambda **options: DCMCV(gammas=[0.1], **options),
    "DCMCV, 1se": lambda **options: DCMCV(gammas=[0.1], rule="1se", **options),
    "FastDCMCV": lambda **options: FastDCMCV(gammas=[0.1], **options),
    "ridge": lambda **options: InvariantRidgeClassifierCV(kernels=["rbf"], **options),
    "SVC": lambda **options: InvariantSearchCV(
        InvariantSVC(gamma=0.1), {"C": [1e-3, 1.0], "domain_weight": [0, 1]}, **options
    ),
}


@pytest.fixture
def problem():
    data = make_synthetic(n_domains=5, n_per_domain=30, random_state=0)
    X, y, domain = data.data, data.target.copy(), data.sample_domain
    y[domain == 2] = y[0]
    return X, y, domain


@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_are_compared_on_the_other_domains(name, problem):
    X, y, domain = problem
    with pytest.warns(UserWarning, match="not defined on 1 of 5 splits"):
        search = SEARCHES[name](scoring="roc_auc").fit(X, y, sample_domain=domain)
    results = search.cv_results_
    splits = np.array([results[f"split{i}_test_score"] for i in range(5)])
    assert np.isnan(splits[2]).all()
    mean = splits[[0, 1, 3, 4]].mean(axis=0)
    np.testing.assert_allclose(results["mean_test_score"], mean, rtol=1e-12)
    assert results["rank_test_score"].min() == 1
    assert search.best_score_ == results["mean_test_score"][search.best_index_]
    if "1se" not in name:
        assert search.best_score_ == pytest.approx(mean.max())


@pytest.mark.parametrize("name", SEARCHES)
def test_a_score_that_is_never_defined_is_refused(name, problem):
    X, _, domain = problem
    y = (domain % 2).astype(int)
    with pytest.raises(ValueError, match="not defined on any split"):
        SEARCHES[name](scoring="roc_auc").fit(X, y, sample_domain=domain)


@pytest.mark.parametrize("name", ["ridge", "SVC"])
def test_scores_that_need_probabilities_are_refused_with_a_message(name, problem):
    X, y, domain = problem
    with pytest.raises(ValueError, match="needs probabilities"):
        SEARCHES[name](scoring="neg_log_loss").fit(X, y, sample_domain=domain)


def test_summaries_omit_undefined_domains(problem):
    X, y, domain = problem
    with pytest.warns(UserWarning, match="not defined on these domains: 2. "):
        result = domain_cross_validate(LogisticRegression(), X, y, domain, scoring="roc_auc")
    defined = result.scores[[0, 1, 3, 4]]
    assert np.isnan(result.scores[2])
    assert result.mean == pytest.approx(defined.mean())
    assert result.worst == defined.min()
    assert result.std == pytest.approx(defined.std(ddof=1))
    assert result.worst_domain != 2


@pytest.mark.parametrize("n_more", [-1, 2])
def test_domains_of_another_length_are_refused(problem, n_more):
    X, y, domain = problem
    domain = np.resize(domain, len(domain) + n_more)
    with pytest.raises(ValueError, match=f"{len(domain)} entries, but X has {len(X)} rows"):
        domain_cross_validate(LogisticRegression(), X, y, domain)


def test_fast_search_refuses_conditional_descriptors_before_it_starts(problem):
    X, y, _ = problem
    when = np.linspace(0, 1, len(X))[:, None]
    with pytest.raises(ValueError, match="needs all rows in memory. Use DCMCV"):
        FastDCMCV(conditionals=(False, True)).fit(X, y, sample_domain=when)
