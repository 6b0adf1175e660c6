"""InvariantKernel equals the dense formula, and separates domains less with larger weights."""

import warnings

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from domainwise import InvariantKernel

EPSILON = 1e-3
GAMMA = 0.3


def centring(n):
    return np.eye(n) - 1 / n


def domain_smoother(d, epsilon=EPSILON):
    H = centring(len(d))
    K = H @ (d[:, None] == d[None, :]).astype(float) @ H
    return K @ np.linalg.inv(K + len(d) * epsilon * np.eye(len(d)))


def conditional_smoother(y, d, epsilon=EPSILON):
    # Indicators of (class, domain) minus their mean over the class, computed group by group.
    n = len(d)
    columns = []
    for c, g in {(c, g) for c, g in zip(y, d, strict=True)}:
        inside = (y == c).astype(float)
        columns.append(((y == c) & (d == g)) - ((y == c) & (d == g)).sum() / inside.sum() * inside)
    Z = np.array(columns).T
    K = Z @ Z.T
    return K @ np.linalg.inv(K + n * epsilon * np.eye(n))


def problem(seed=0, n=60, p=3, n_domains=4, n_classes=2):
    rng = np.random.default_rng(seed)
    d = np.r_[np.arange(n_domains), rng.integers(0, n_domains, n - n_domains)]
    y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]
    X = rng.normal(size=(n, p)) + 0.8 * rng.normal(size=(n_domains, p))[d]
    return X + 0.7 * y[:, None] * rng.normal(size=p), y, d


def dense_formula(K, P, w):
    """(K^-1 + w P)^-1 on the range of the centred kernel."""
    H = centring(len(K))
    return np.linalg.pinv(np.linalg.pinv(H @ K @ H, rcond=1e-12) + w * P, rcond=1e-12)


@pytest.mark.parametrize("w", [0.0, 0.03, 1.0, 40.0])
@pytest.mark.parametrize("conditional", [False, True])
def test_it_is_the_inverse_of_the_penalized_norm(w, conditional):
    X, y, d = problem()
    K = laplacian_kernel(X, gamma=1.0)
    P = conditional_smoother(y, d) if conditional else domain_smoother(d)
    kernel = InvariantKernel(
        kernel="laplacian", gamma=1.0, domain_weight=w, conditional=conditional
    )
    K_w = kernel.fit_transform(X, y, sample_domain=d)
    np.testing.assert_allclose(K_w, dense_formula(K, P, w), atol=1e-9)
    np.testing.assert_allclose(kernel.transform(X), K_w, atol=1e-12)


def test_new_rows_follow_the_formula_of_the_kernel_function():
    X, _, d = problem()
    new = np.random.default_rng(9).normal(size=(7, 3))
    K, k = rbf_kernel(X, gamma=GAMMA), rbf_kernel(new, X, gamma=GAMMA)
    k_c = k - k.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
    K_c = centring(60) @ K @ centring(60)
    P = domain_smoother(d)
    # k_w(x, X) = k(x, X) (I + w P K)^-1, by the Woodbury identity, without a factor of P.
    expected = k_c @ np.linalg.inv(np.eye(60) + 2.0 * P @ K_c)
    kernel = InvariantKernel(gamma=GAMMA, domain_weight=2.0).fit(X, sample_domain=d)
    np.testing.assert_allclose(kernel.transform(new), expected, atol=1e-12)


def kernel_id(arguments):
    """A name that is the same in every process, unlike the repr of a function."""
    kernel = arguments.get("kernel", arguments.get("gamma"))
    return "callable" if callable(kernel) else str(kernel)


KERNELS = [
    dict(gamma=0.3),
    dict(gamma=1e-6),
    dict(kernel="linear"),
    dict(kernel="poly", degree=2),
    dict(kernel="laplacian"),
    dict(kernel="cosine"),
    dict(kernel=lambda A, B: (A @ B.T) ** 2),
]


@pytest.mark.parametrize("arguments", KERNELS, ids=kernel_id)
@pytest.mark.parametrize("w", [0.5, 1e6, np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_gram_matrix_is_symmetric_to_the_last_bit_and_semi_definite(arguments, w, dtype):
    X, y, d = problem(n=90)
    X = np.vstack([X, X[:10]]).astype(dtype)  # duplicated rows make K singular
    y, d = np.r_[y, y[:10]], np.r_[d, d[:10]]
    # A large weight can remove a kernel of low rank completely, up to rounding errors.
    uncorrected = InvariantKernel(domain_weight=0, **arguments).fit_transform(X.astype(np.float64))
    largest = np.linalg.eigvalsh(uncorrected)[-1]
    for conditional in (False, True):
        kernel = InvariantKernel(domain_weight=w, conditional=conditional, **arguments)
        K = kernel.fit_transform(X, y, sample_domain=d)
        assert K.dtype == dtype
        np.testing.assert_array_equal(K, K.T)
        eigenvalues = np.linalg.eigvalsh(K.astype(np.float64))
        assert eigenvalues[0] >= -len(X) * np.finfo(dtype).eps * largest


@pytest.mark.parametrize("n_domains", [1, 2, 7, 40])
def test_symmetry_does_not_depend_on_the_number_of_domains(n_domains):
    X, _, d = problem(n=301, n_domains=n_domains)
    K = InvariantKernel().fit_transform(X, sample_domain=d)
    np.testing.assert_array_equal(K, K.T)


def test_weight_zero_is_the_plain_centred_kernel():
    X, _, d = problem()
    H = centring(60)
    K = InvariantKernel(gamma=GAMMA, domain_weight=0).fit_transform(X, sample_domain=d)
    np.testing.assert_allclose(K, H @ rbf_kernel(X, gamma=GAMMA) @ H, atol=1e-13)


@pytest.mark.parametrize("domains", [None, np.zeros(60), np.array(["a"] * 60)])
def test_one_domain_or_none_is_the_plain_centred_kernel(domains):
    X, y, d = problem()
    uncorrected = InvariantKernel(domain_weight=0).fit(X, sample_domain=d)
    for conditional in (False, True):
        one = InvariantKernel(domain_weight=5.0, conditional=conditional)
        one.fit(X, y, sample_domain=domains)
        np.testing.assert_allclose(one.transform(X), uncorrected.transform(X), atol=1e-13)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("conditional", [False, True])
def test_domain_differences_of_a_ridge_regression_never_grow_with_the_weight(seed, conditional):
    rng = np.random.default_rng(seed)
    X, y, d = problem(seed, n=50, n_domains=int(rng.integers(2, 6)), n_classes=3)
    target = rng.normal(size=50) + d
    P = conditional_smoother(y, d) if conditional else domain_smoother(d)
    differences = []
    for w in [0, 0.01, 0.1, 1, 10, 100, np.inf]:
        kernel = InvariantKernel(domain_weight=w, conditional=conditional)
        K = kernel.fit_transform(X, y, sample_domain=d)
        f = KernelRidge(alpha=0.1, kernel="precomputed").fit(K, target).predict(K)
        differences.append(f @ P @ f)
    assert np.all(np.diff(differences) <= 1e-10 * differences[0])
    assert differences[0] > 1e-3
    assert abs(differences[-1]) <= 1e-9 * differences[0]


def test_an_infinite_weight_is_the_limit_of_large_ones():
    X, _, d = problem()
    new = np.random.default_rng(3).normal(size=(5, 3))
    limit = InvariantKernel(domain_weight=np.inf).fit(X, sample_domain=d).transform(new)
    large = InvariantKernel(domain_weight=1e9).fit(X, sample_domain=d).transform(new)
    np.testing.assert_allclose(large, limit, atol=1e-8)


def test_a_huge_weight_does_not_amplify_rounding_errors():
    # A linear kernel in two dimensions has rank 2, so most domain directions have length 0.
    X, _, d = problem(p=2, n_domains=9)
    kernel = InvariantKernel(kernel="linear", domain_weight=1e30).fit(X, sample_domain=d)
    limit = InvariantKernel(kernel="linear", domain_weight=np.inf).fit(X, sample_domain=d)
    np.testing.assert_allclose(kernel.transform(X), limit.transform(X), atol=1e-10)


def test_rows_one_by_one_equal_all_rows_at_once():
    X, _, d = problem()
    new = np.random.default_rng(1).normal(size=(9, 3))
    kernel = InvariantKernel().fit(X, sample_domain=d)
    many = kernel.transform(new)
    one = np.vstack([kernel.transform(row[None]) for row in new])
    np.testing.assert_allclose(one, many, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("conditional", [False, True])
def test_order_of_rows_and_names_of_domains_do_not_matter(conditional):
    X, y, d = problem()
    new = np.random.default_rng(1).normal(size=(9, 3))
    order = np.random.default_rng(2).permutation(60)
    kernel = InvariantKernel(gamma=GAMMA, conditional=conditional).fit(X, y, sample_domain=d)
    names = np.array(["south", "north", "west", "east"])[d]
    refitted = InvariantKernel(gamma=GAMMA, conditional=conditional)
    refitted.fit(X[order], np.array(["no", "yes"])[y][order], sample_domain=names[order])
    np.testing.assert_allclose(refitted.transform(new), kernel.transform(new)[:, order], atol=1e-12)


def test_float32_stays_close_to_float64():
    X, _, d = problem()
    new = np.random.default_rng(1).normal(size=(9, 3))
    kernel = InvariantKernel(gamma=GAMMA, domain_weight=3.0)
    expected = kernel.fit(X, sample_domain=d).transform(new)
    single = kernel.fit(X.astype(np.float32), sample_domain=d).transform(new.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=2e-6)


def test_a_streamed_fit_equals_a_dense_one(monkeypatch):
    X, _, d = problem()
    dense = InvariantKernel().fit(X, sample_domain=d).transform(X)
    monkeypatch.setattr("domainwise.estimators.invariant.kernel.DENSE_ROWS", 10)
    np.testing.assert_allclose(
        InvariantKernel().fit(X, sample_domain=d).transform(X), dense, atol=1e-12
    )


def test_a_precomputed_kernel_gives_the_same_values():
    X, y, d = problem()
    new = np.random.default_rng(1).normal(size=(9, 3))
    rows = InvariantKernel(gamma=GAMMA, conditional=True).fit(X, y, sample_domain=d)
    precomputed = InvariantKernel(kernel="precomputed", conditional=True)
    K = precomputed.fit_transform(rbf_kernel(X, gamma=GAMMA), y, sample_domain=d)
    np.testing.assert_allclose(K, rows.transform(X), atol=1e-12)
    np.testing.assert_allclose(
        precomputed.transform(rbf_kernel(new, X, gamma=GAMMA)), rows.transform(new), atol=1e-12
    )


def test_a_domain_with_one_row_and_a_class_absent_from_a_domain():
    X, y, d = problem(n=60, n_domains=4)
    d[d == 3] = 2
    d[0] = 3
    y[d == 1] = 0
    for conditional, P in [(False, domain_smoother(d)), (True, conditional_smoother(y, d))]:
        kernel = InvariantKernel(kernel="laplacian", gamma=1.0, conditional=conditional)
        K = kernel.fit_transform(X, y, sample_domain=d)
        expected = dense_formula(laplacian_kernel(X, gamma=1.0), P, 1.0)
        np.testing.assert_allclose(K, expected, atol=1e-9)


def test_functions_of_continuous_descriptors_are_penalized():
    X, _, _ = problem()
    time = np.linspace(0, 1, 60) + 0.001
    H = centring(60)
    K_d = H @ rbf_kernel(time[:, None], gamma=8.0) @ H
    P = K_d @ np.linalg.inv(K_d + 60 * EPSILON * np.eye(60))
    kernel = InvariantKernel(kernel="laplacian", gamma=1.0, domain_gamma=8.0, domain_weight=2.0)
    K = kernel.fit_transform(X, sample_domain=time)
    np.testing.assert_allclose(K, dense_formula(laplacian_kernel(X, gamma=1.0), P, 2.0), atol=1e-6)
    assert kernel.domains_ is None


def test_conditional_compares_descriptors_within_each_class():
    X, y, _ = problem()
    site = np.random.default_rng(0).normal(size=(60, 2))
    kernel = InvariantKernel(domain_kernel="linear", conditional=True, domain_weight=np.inf)
    K = kernel.fit_transform(X, y, sample_domain=site)
    f = K @ np.random.default_rng(1).normal(size=60)
    for c in (0, 1):
        inside = site[y == c] - site[y == c].mean(axis=0)
        assert np.abs(inside.T @ f[y == c]).max() < 1e-9


def test_conditional_does_not_penalize_different_class_shares():
    # Domains differ only in their class shares.
    rng = np.random.default_rng(0)
    d = np.repeat([0, 1], 400)
    y = (rng.random(800) < np.where(d == 0, 0.8, 0.2)).astype(int)
    X = rng.normal(size=(800, 2)) + 2 * y[:, None]
    class_direction = (y - y.mean()) / np.linalg.norm(y - y.mean())

    def length(**arguments):
        K = InvariantKernel(kernel="linear", **arguments).fit_transform(X, y, sample_domain=d)
        return class_direction @ K @ class_direction

    uncorrected = length(domain_weight=0)
    assert length(domain_weight=0.1, conditional=True) > 0.8 * uncorrected
    assert length(domain_weight=0.1, conditional=False) < 0.2 * uncorrected


def test_it_works_in_a_pipeline_before_a_machine_with_a_precomputed_kernel():
    import sklearn

    X, y, d = problem()
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(InvariantKernel(domain_weight=0.1), SVC(kernel="precomputed"))
        pipeline.fit(X, y, sample_domain=d)
    assert pipeline.score(X, y) > 0.6
    assert pipeline[0].get_feature_names_out()[-1] == "invariantkernel59"


def test_refitting_discards_classes_and_rows_of_an_earlier_fit():
    X, y, d = problem()
    kernel = InvariantKernel(conditional=True).fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(kernel.classes_, [0, 1])
    np.testing.assert_array_equal(kernel.domains_, [0, 1, 2, 3])
    kernel.set_params(conditional=False, kernel="precomputed").fit(X @ X.T, sample_domain=d)
    assert not hasattr(kernel, "classes_")
    assert not hasattr(kernel, "X_fit_")


def test_the_target_is_not_used_unless_conditional():
    X, _, d = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InvariantKernel().fit(X, np.full(60, np.nan), sample_domain=d)


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        (dict(conditional=True), dict(), "requires y to be passed"),
        (dict(conditional=True), dict(y=np.linspace(0, 1, 60)), "but y is continuous"),
        (dict(), dict(sample_domain=np.zeros(59)), "sample_domain has 59 entries, but X has 60"),
        (dict(domain_weight=-1), dict(), "domain_weight"),
        (dict(domain_weight=np.nan), dict(), "domain_weight"),
        (dict(domain_epsilon=-1.0), dict(), "domain_epsilon"),
        (dict(gamma=0), dict(), "gamma"),
        (dict(kernel="sigmoid"), dict(), "kernel"),
        (dict(kernel="precomputed"), dict(), "requires a square matrix"),
        (dict(kernel_params={"a": 1}), dict(), "needs a callable kernel"),
    ],
)
def test_errors_name_the_invalid_argument(arguments, labels, message):
    X, _, _ = problem()
    with pytest.raises(ValueError, match=message):
        InvariantKernel(**arguments).fit(X, **labels)


def test_a_gram_matrix_that_exceeds_memory_is_an_error(monkeypatch):
    X, _, d = problem()
    monkeypatch.setattr("domainwise.algebra.gram.dense.available_memory", lambda *_: 1000)
    with pytest.raises(MemoryError, match="use InvariantFeatures"):
        InvariantKernel().fit_transform(X, sample_domain=d)
