"""Neither the order of rows nor the names of domains may change a result."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from domainwise import (
    DCM,
    DCMCV,
    FastDCM,
    FastKPCA,
    InvariantFeatures,
    InvariantSVC,
    InvariantSVR,
    SiteAdapter,
)
from domainwise.selection import (
    DomainConformal,
    FastDCMCV,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
    InvariantSearchCV,
    LeaveDomainsOut,
)

RNG = np.random.default_rng(0)
N_DOMAINS = 13  # more than the ten groups in which domains are held out
D = np.repeat(np.arange(N_DOMAINS), 16)
X = RNG.normal(size=(len(D), 4)) + RNG.normal(size=(N_DOMAINS, 4))[D]
T = X[:, 0] + 0.3 * RNG.normal(size=len(D))
Y = np.where(np.median(T) < T, "ill", "well")
SHUFFLED = RNG.permutation(len(D))
NAMES = np.array([f"site {i}" for i in RNG.permutation(N_DOMAINS)])

SPLITTER = LeaveDomainsOut(max_splits=4)

MODELS = {
    "DCM": DCM(),
    "FastDCM": FastDCM(n_landmarks=30, random_state=0),
    "FastDCM, stratified": FastDCM(n_landmarks=30, landmarks="stratified", random_state=0),
    "FastDCM, k-means++": FastDCM(n_landmarks=30, landmarks="kmeans++", random_state=0),
    "FastDCM, leverage": FastDCM(n_landmarks=30, landmarks="leverage", random_state=0),
    "FastKPCA": FastKPCA(3, n_landmarks=30, random_state=0),
    "InvariantFeatures": InvariantFeatures(n_landmarks=30, random_state=0),
    "InvariantSVC": InvariantSVC(probability=True),
    "InvariantSVC, fast": InvariantSVC(solver="fast", random_state=0),
    "InvariantSVR": InvariantSVR(),
    "InvariantSearchCV": InvariantSearchCV(InvariantSVC(), {"C": [0.1, 1.0]}, cv=SPLITTER),
    "InvariantRidgeClassifierCV": InvariantRidgeClassifierCV(n_landmarks=40, random_state=0),
    "InvariantRidgeCV": InvariantRidgeCV(n_landmarks=40, random_state=0),
    "DCMCV": DCMCV(domain_weights=(0.0, 0.01), ridges=(1e-3,), gammas=(0.1, 0.3)),
    "FastDCMCV": FastDCMCV(n_landmarks=30, gammas=(0.1, 0.3), random_state=0),
    "DomainConformal": DomainConformal(LogisticRegression(tol=1e-10), calibration="split"),
    "SiteAdapter": SiteAdapter(LogisticRegression(tol=1e-10)),
}  # fmt: skip


def outputs(model, rows, domains):
    target = T if type(model).__name__ in ("InvariantSVR", "InvariantRidgeCV") else Y
    fitted = model.fit(X[rows], target[rows], sample_domain=domains[rows])
    names = ("transform", "predict_proba", "decision_function", "predict")
    method = next(name for name in names if hasattr(fitted, name))
    values = getattr(fitted, method)(X[:20])
    sets = fitted.predict_set(X[:20]) if isinstance(model, DomainConformal) else 0.0
    return values, sets


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("change", ["order of rows", "names of domains"])
def test_result_depends_neither_on_the_order_of_rows_nor_on_names(name, change):
    rows = SHUFFLED if change == "order of rows" else np.arange(len(D))
    domains = NAMES[D] if change == "names of domains" else D
    expected = outputs(MODELS[name], np.arange(len(D)), D)
    for changed, original in zip(outputs(MODELS[name], rows, domains), expected, strict=True):
        # The solver of fast SVMs stops at tol=1e-3, which rounding errors can change.
        atol = 3e-3 if "fast" in name else 1e-7
        assert_allclose(np.abs(changed), np.abs(original), atol=atol)


def test_merged_test_sets_depend_on_content_and_not_on_names():
    cv = SPLITTER
    original = {tuple(test) for _, test in cv.split(X, T, D)}
    renamed = {tuple(test) for _, test in cv.split(X, T, NAMES[D])}
    assert original == renamed
    assert len(original) == 4
    splits = cv.split(X[SHUFFLED], T[SHUFFLED], D[SHUFFLED])
    shuffled = {tuple(sorted(SHUFFLED[test])) for _, test in splits}
    assert shuffled == original


def test_features_with_missing_values_and_text_are_accepted_by_the_splitter():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.where(RNG.random(len(D)) < 0.1, np.nan, X[:, 0]), "b": Y})
    cv = SPLITTER
    original = {tuple(test) for _, test in cv.split(frame, Y, D)}
    assert original == {tuple(test) for _, test in cv.split(frame, Y, NAMES[D])}
