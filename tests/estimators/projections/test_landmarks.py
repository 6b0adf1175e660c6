"""Number and choice of landmarks, and redundant landmarks."""

import numpy as np
import pytest

from domainwise import DCM, FastDCM, FastKPCA
from domainwise.algebra.gram.nystrom import NystromMap
from domainwise.algebra.kernels.approximations import choose_landmarks, landmark_count
from domainwise.algebra.kernels.functions import Kernel, make_kernel
from domainwise.base.arguments import LANDMARK_RULES
from domainwise.datasets import make_synthetic


@pytest.fixture
def data():
    return make_synthetic(n_per_domain=30, random_state=0)


@pytest.mark.parametrize(
    ("given", "n", "expected"),
    [
        ("auto", 50, 50),
        ("auto", 400, 100),
        ("auto", 10_000, 500),
        ("auto", 10**7, 2000),
        (7, 50, 7),
        (0.5, 50, 25),
        (1.0, 50, 50),
        (0.001, 50, 1),
    ],
)
def test_the_number_of_landmarks(given, n, expected):
    assert landmark_count(given, n) == expected


@pytest.mark.parametrize("rule", LANDMARK_RULES)
def test_each_rule_gives_distinct_rows_that_depend_only_on_the_seed(data, rule):
    X, domains = data.data, data.sample_domain
    kernel = make_kernel("rbf", X)
    chosen, repeated = (
        choose_landmarks(rule, X, 40, domains, kernel, np.random.default_rng(1)) for _ in range(2)
    )
    np.testing.assert_array_equal(chosen, repeated)
    assert len(np.unique(chosen)) == len(chosen) == 40
    model = FastDCM(n_landmarks=40, landmarks=rule).fit(X, data.target, sample_domain=domains)
    assert np.isfinite(model.transform(X)).all()


def test_stratified_landmarks_come_evenly_from_domains():
    domains = np.repeat([0, 1, 2], [100, 50, 3])
    X = np.random.default_rng(0).standard_normal((153, 2))
    chosen = choose_landmarks("stratified", X, 33, domains, Kernel("rbf"), np.random.default_rng(0))
    assert np.bincount(domains[chosen]).tolist() == [15, 15, 3]


def test_with_domain_descriptors_stratified_landmarks_are_drawn_from_all_rows():
    rng = np.random.default_rng(0)
    X, descriptors = rng.standard_normal((60, 3)), rng.standard_normal((60, 2))
    y = np.arange(60) % 2
    counts = [
        FastDCM(n_landmarks=20, landmarks=rule).fit(X, y, sample_domain=descriptors).landmarks_
        for rule in ("stratified", "uniform")
    ]
    np.testing.assert_array_equal(*counts)


def test_leverage_prefers_isolated_rows():
    rng = np.random.default_rng(0)
    X = np.vstack([0.01 * rng.standard_normal((500, 3)), 5 * np.eye(3)])
    hits = [
        np.isin(
            [500, 501, 502],
            choose_landmarks(
                "leverage", X, 10, None, Kernel("rbf", gamma=1.0), np.random.default_rng(seed)
            ),
        ).mean()
        for seed in range(10)
    ]
    assert np.mean(hits) > 0.5  # with uniform draws, it would be 0.02


def test_features_reproduce_the_nystrom_matrix():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    kernel = Kernel("rbf", gamma=0.3).centred_on(X)
    nystrom = NystromMap.from_landmarks(kernel, X[:20])
    Phi, C = nystrom.features(X), kernel.matrix(X, X[:20])
    expected = C @ np.linalg.solve(kernel.matrix(X[:20]), C.T)
    np.testing.assert_allclose(Phi @ Phi.T, expected, atol=1e-8)


def test_sums_of_kernel_values_equal_sums_of_features():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    y, domain = rng.integers(0, 2, 300), rng.integers(0, 4, 300)
    model = FastDCM(n_landmarks=50).fit(X, y, sample_domain=domain)
    assert model._map.direct
    slow = FastDCM(n_landmarks=50, ridge=1e-9)
    slow._validate_params()
    slow.fit(X, y, sample_domain=domain)
    assert not slow._map.direct
    sums = [m._sums.of_features(m._map) for m in (model, slow)]
    np.testing.assert_allclose(sums[0].second, sums[1].second, atol=1e-9)
    np.testing.assert_allclose(sums[0].mean, sums[1].mean, atol=1e-11)


def test_duplicate_landmarks_are_reported_and_have_no_effect(data):
    X, y, domains = data.data, data.target, data.sample_domain
    distinct = X[:25]
    doubled = np.vstack([distinct, distinct[::-1], distinct[:3]])
    one = FastDCM(gamma=0.1, landmarks=distinct).fit(X, y, sample_domain=domains)
    two = FastDCM(gamma=0.1, landmarks=doubled).fit(X, y, sample_domain=domains)
    assert two.solver_info_["n_landmarks_asked"] == 53
    assert two.solver_info_["n_landmarks_used"] == 25
    np.testing.assert_allclose(two.transform(X), one.transform(X), atol=1e-9)


def test_more_landmarks_than_distinct_rows_equal_the_exact_method():
    rng = np.random.default_rng(0)
    distinct = rng.standard_normal((15, 3))
    pick = rng.integers(0, 15, 90)
    X, y, domain = distinct[pick], (distinct[pick, 0] > 0).astype(int), rng.integers(0, 3, 90)
    fast = FastDCM(gamma=0.5, n_landmarks=90).fit(X, y, sample_domain=domain)
    exact = DCM(gamma=0.5).fit(X, y, sample_domain=domain)
    assert fast.solver_info_["n_landmarks_used"] == 15
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=1e-8)


@pytest.mark.parametrize("gamma", [1e-8, 1e4])
def test_a_rank_deficient_or_diagonal_landmark_kernel_works(data, gamma):
    model = FastDCM(gamma=gamma, n_landmarks=60)
    Z = model.fit(data.data, data.target, sample_domain=data.sample_domain).transform(data.data)
    assert np.isfinite(Z).all()
    if gamma < 1:
        assert model.solver_info_["n_landmarks_used"] < 60


def test_float32_stays_float32_and_close_to_float64(data):
    X, y, domains = data.data, data.target, data.sample_domain
    double = FastDCM(gamma=0.1, landmarks=X[:60]).fit(X, y, sample_domain=domains)
    single = FastDCM(gamma=0.1, landmarks=X[:60]).fit(
        X.astype(np.float32), y, sample_domain=domains
    )
    Z = single.transform(X.astype(np.float32))
    assert Z.dtype == single.landmarks_.dtype == np.float32
    np.testing.assert_allclose(Z, double.transform(X), atol=2e-3)


def test_domains_with_one_row_work(data):
    domains = data.sample_domain.copy()
    domains[:5] = np.arange(100, 105)
    model = FastDCM(n_landmarks=40).fit(data.data, data.target, sample_domain=domains)
    assert len(model.domains_) == 15
    assert np.isfinite(model.transform(data.data)).all()


def test_a_memory_map_gives_the_same_projection(tmp_path, data):
    path = tmp_path / "X.npy"
    np.save(path, data.data)
    X = np.load(path, mmap_mode="r")
    model = FastKPCA(n_components=2, n_landmarks=20, gamma=0.1).fit(X)
    reference = FastKPCA(n_components=2, n_landmarks=20, gamma=0.1).fit(data.data)
    np.testing.assert_array_equal(model.transform(X), reference.transform(data.data))
