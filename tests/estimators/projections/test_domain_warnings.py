"""Methods that use domains warn once if there are no domains to learn from."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import domainwise
from domainwise import COIR, DCM, DICA, KPCA, FastDCM, InvariantKernel, InvariantSVC
from domainwise.selection import DCMCV, InvariantSearchCV, domain_cross_validate

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), np.arange(40) % 2
DOMAINS = np.arange(40) // 10
BAD = {
    "missing": (None, "sample_domain is missing"),
    "one": (np.zeros(40), "only one domain"),
    "every row": (np.arange(40), "different in every row"),
}
USING = [DCM(), FastDCM(n_landmarks=20), DICA(), InvariantKernel(), InvariantSVC(),
         InvariantSVC(solver="fast")]  # fmt: skip


def domain_warnings(estimator, domains):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, Y, sample_domain=domains)
    words = ("learns nothing about domains", "no domain to hold out", "different in every row")
    return [str(w.message) for w in caught if any(word in str(w.message) for word in words)]


@pytest.mark.parametrize("estimator", USING, ids=str)
@pytest.mark.parametrize("kind", BAD)
def test_a_method_that_uses_domains_warns_once_if_there_are_none(estimator, kind):
    domains, words = BAD[kind]
    messages = domain_warnings(estimator, domains)
    assert len(messages) == 1
    assert words in messages[0]
    assert domain_warnings(estimator, DOMAINS) == []


@pytest.mark.parametrize(
    "estimator",
    [
        COIR(),
        KPCA(),
        DCM(domain_weight=0),
        InvariantSVC(domain_weight=0),
        InvariantKernel(domain_weight=0),
    ],
    ids=str,
)
def test_a_method_that_does_not_use_domains_does_not_warn(estimator):
    assert domain_warnings(estimator, None) == []


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize(
    "search",
    [
        DCMCV(gammas=[0.1], ridges=[0.1], domain_weights=[1.0]),
        InvariantSearchCV(InvariantSVC(), {"C": [1.0, 10.0]}, n_average=2),
        domainwise.InvariantRidgeClassifierCV(gammas=[0.1], alphas=[1.0]),
    ],
    ids=lambda search: type(search).__name__,
)
def test_a_search_warns_only_once(search, kind):
    assert len(domain_warnings(search, BAD[kind][0])) == 1
    assert domain_warnings(search, DOMAINS) == []


def test_cross_val_score_drops_domains_with_a_warning_and_domain_cross_validate_does_not():
    pipe = make_pipeline(DCM(), SVC())
    with pytest.warns(UserWarning, match="sample_domain is missing. Pass it to fit"):
        cross_val_score(pipe, X, Y, groups=DOMAINS, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        domain_cross_validate(pipe, X, Y, DOMAINS)


def test_batches_from_one_domain_do_not_warn():
    model = FastDCM(n_landmarks=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(4):
            rows = slice(10 * i, 10 * i + 10)
            model.partial_fit(X[rows], Y[rows], sample_domain=DOMAINS[rows])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: DCM().fit(X, Y), "sample_domain is missing"),
        (lambda: DCM().fit_transform(X, Y), "sample_domain is missing"),
        (lambda: make_pipeline(DCM(), SVC()).fit(X, Y), "sample_domain is missing"),
        (lambda: DCM(5).fit(X, Y, DOMAINS), "principal directions"),
        (lambda: DCM(ridge=0).fit(X[:, [0, 0]] * 0 + X[:, :1], Y, DOMAINS), "numerical rank"),
        (lambda: DCM(kernel="precomputed").fit(-X @ X.T, Y, DOMAINS), "not a kernel"),
        (lambda: DCMCV(gammas=[1.0]).fit(X, Y), "Rows are held out instead"),
    ],
)
def test_a_warning_points_to_the_line_of_the_caller(call, words):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with suppress(ValueError):  # the positive part of a matrix that is not a kernel may be zero
            call()
    files = {w.filename for w in caught if words in str(w.message)}
    assert files == {__file__}
