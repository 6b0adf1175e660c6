"""Scales, weights and labels near the limits of floats and integers."""

import numpy as np
import pandas as pd
import pytest

from domainwise import (
    COIR,
    DCM,
    DICA,
    FastDCM,
    FastDICA,
    FastKPCA,
    InvariantKernel,
    InvariantRidgeClassifierCV,
    InvariantSVC,
)
from domainwise.held_out.scoring.statistics import compare
from domainwise.metrics import g_mean_score


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    domain = np.arange(120) % 4
    y = rng.integers(0, 2, 120)
    return rng.standard_normal((120, 4)) + y[:, None] + 0.5 * domain[:, None], y, domain


@pytest.mark.parametrize("kind", [object, "float of objects"])
def test_large_integers_remain_distinct_labels(problem, kind):
    X, y, domain = problem
    if kind is object:
        large = np.array([2**60 + int(d) for d in domain], dtype=object)
    else:
        large = np.array([float(d) for d in domain], dtype=object)
    model = DCM().fit(X, y, sample_domain=large)
    assert len(model.domains_) == 4
    np.testing.assert_array_equal(
        model.embedding_, DCM().fit(X, y, sample_domain=domain).embedding_
    )


def test_integers_beyond_64_bits_are_errors(problem):
    X, y, domain = problem
    huge = np.array([2**70 + int(d) for d in domain], dtype=object)
    with pytest.raises(ValueError, match="more than 64 bits"):
        DCM().fit(X, y, sample_domain=huge)


def test_a_column_of_names_is_a_domain(problem):
    X, y, domain = problem
    frame = pd.DataFrame({"site": np.array(list("abcd"))[domain]})
    assert DCM().fit(X, y, sample_domain=frame).domains_.tolist() == list("abcd")


@pytest.mark.parametrize("model", [InvariantSVC(), InvariantRidgeClassifierCV()])
def test_missing_classes_are_named(problem, model):
    X, y, domain = problem
    classes = np.array(["no", "yes"], dtype=object)[y]
    classes[3] = None
    with pytest.raises(ValueError, match="y contains missing values"):
        model.fit(X, classes, sample_domain=domain)


def test_directions_outside_the_kernel_are_not_components(problem):
    # With four distinct rows and eight domains, labels have more directions than the kernel.
    rng = np.random.default_rng(0)
    domain = np.arange(60) % 8
    y = domain % 2
    X = (rng.standard_normal((60, 2)) + 0.3 * domain[:, None] * rng.standard_normal(2))[
        np.arange(60) % 4
    ]
    order = rng.permutation(60)
    with pytest.warns(UserWarning, match="cannot be separated from the domain"):
        model = DCM(domain_weight=10.0).fit(X, y, sample_domain=domain)
    with pytest.warns(UserWarning, match="cannot be separated from the domain"):
        other = DCM(domain_weight=10.0).fit(X[order], y[order], sample_domain=domain[order])
    assert model.eigenvalues_[0] < 0.5
    np.testing.assert_allclose(model.transform(X), other.transform(X), atol=1e-8)


@pytest.mark.parametrize("weight", [1.0, 1e3, 1e6])
def test_descriptors_are_approximated_as_precisely_as_the_weight_requires(
    problem, weight, monkeypatch
):
    X, y, _ = problem
    when = np.random.default_rng(1).standard_normal((len(X), 2))
    embedding = DCM(domain_weight=weight).fit(X, y, sample_domain=when).embedding_
    kernel = InvariantKernel(domain_weight=weight).fit_transform(X, sample_domain=when)
    monkeypatch.setattr("domainwise.algebra.labels.CHOLESKY_TOLERANCE", 1e-15)
    exact = DCM(domain_weight=weight).fit(X, y, sample_domain=when).embedding_
    np.testing.assert_allclose(embedding, exact, atol=2e-5)
    expected = InvariantKernel(domain_weight=weight).fit_transform(X, sample_domain=when)
    np.testing.assert_allclose(kernel, expected, atol=1e-7)


@pytest.mark.parametrize(
    "model", [COIR(kernel="poly", ridge=1e-6), DCM(kernel="poly", ridge=1e-5), DCM(kernel="poly")]
)
def test_polynomial_kernels_of_float32_rows_project_training_rows_as_in_fit(problem, model):
    X, y, domain = problem
    X = (1.5 * X).astype(np.float32)
    Z = model.fit(X, y, sample_domain=domain).transform(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, model.embedding_, atol=1e-4)


def test_fast_dica_with_float32_rows_equals_float64(problem):
    X, y, domain = problem
    X = X.astype(np.float32)
    projected = FastDICA().fit(X, y, sample_domain=domain).transform(2 * X)
    expected = FastDICA().fit(X.astype(float), y, sample_domain=domain).transform(2.0 * X)
    assert projected.dtype == np.float32
    np.testing.assert_allclose(projected, expected, atol=1e-4)


@pytest.mark.parametrize(("ridge", "atol"), [(1e-3, 0.03), (1e-5, 1e-3), (1e-8, 1e-3)])
def test_fast_dcm_with_float32_rows_is_close_to_float64(problem, ridge, atol):
    X, y, domain = problem
    X = X.astype(np.float32)
    model = FastDCM(ridge=ridge)
    projected = model.fit(X, y, sample_domain=domain).transform(X)
    expected = model.fit(X.astype(float), y, sample_domain=domain).transform(X)
    assert projected.dtype == np.float32
    np.testing.assert_allclose(projected, expected, atol=atol)


@pytest.mark.parametrize(("scale", "dtype"), [(2e19, "f4"), (1e-30, "f4"), (1e200, "f8")])
def test_the_cosine_kernel_ignores_the_length_of_rows(problem, scale, dtype):
    X, y, domain = problem
    expected = COIR(kernel="cosine").fit(X, y, sample_domain=domain).embedding_
    X = X.copy()
    X[:5] *= scale
    embedding = COIR(kernel="cosine").fit(X.astype(dtype), y, sample_domain=domain).embedding_
    np.testing.assert_allclose(embedding, expected, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e-9, 1e-12])
def test_dica_projects_training_rows_as_in_fit_if_lam_exceeds_the_kernel(problem, scale):
    X, y, domain = problem
    model = DICA(kernel="linear").fit(scale * X, y, sample_domain=domain)
    np.testing.assert_allclose(model.transform(scale * X), model.embedding_, atol=1e-10)
    small = DICA(kernel="linear").fit(1e-8 * scale * X, y, sample_domain=domain)
    np.testing.assert_allclose(small.embedding_, model.embedding_, atol=1e-4)


def test_distant_rows_have_the_same_projection_alone_and_together(problem):
    X, y, domain = problem
    X = X.copy()
    X[:60, 0] += 2e6
    model = DCM(gamma=0.5).fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(model.transform(X[:1]), model.transform(X)[:1], atol=1e-10)


@pytest.mark.parametrize(
    "kernel", [{"kernel": "poly", "coef0": -1}, {"kernel": lambda A, B: np.tanh(A @ B.T - 1)}]
)
@pytest.mark.filterwarnings("ignore:the target cannot be separated")
def test_indefinite_kernels_cause_a_warning(problem, kernel):
    X, y, domain = problem
    with pytest.warns(UserWarning, match="not positive semi-definite"):
        DCM(**kernel).fit(X, y, sample_domain=domain)


def test_a_root_of_negative_products_is_an_error(problem):
    X, y, domain = problem
    with pytest.raises(ValueError, match=r"degree=2\.5 must be an integer"):
        DCM(kernel="poly", degree=2.5).fit(X, y, sample_domain=domain)


@pytest.mark.parametrize(("scale", "kernel"), [(1e155, "rbf"), (1e80, "linear"), (1e160, "linear")])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_overflow_is_an_error_in_fast_estimators(problem, scale, kernel):
    X, y, domain = problem
    with pytest.raises(ValueError, match="overflows float64|distances overflow or underflow"):
        FastDCM(kernel=kernel).fit(scale * X, y, sample_domain=domain)


def test_powers_that_overflow_are_errors(problem):
    X, y, domain = problem
    with pytest.raises(ValueError, match="the polynomial kernel overflows"):
        DCM(kernel="poly", gamma=0.1).fit(1e200 * X, y, sample_domain=domain)


def test_identical_rows_are_an_error():
    with pytest.raises(ValueError, match="the projection is constant"):
        FastKPCA(gamma=1.0).fit(np.ones((20, 2)))


def test_an_invalid_batch_does_not_change_the_model(problem):
    X, y, domain = problem
    model = FastDCM(n_landmarks=1, gamma=0.1)
    target = X[:, 0]
    model.partial_fit(X[:1], target[:1], domain[:1])
    with pytest.raises(ValueError, match="in earlier batches"):
        model.partial_fit(X[1:50], y[1:50] > 0, domain[1:50])
    model.partial_fit(X[1:], target[1:], domain[1:])
    assert model.n_samples_seen_ == len(X)


def test_equal_differences_are_ties_despite_rounding():
    first, second = [13, 21, 17, 22, 21, 13, 14], [11, 20, 18, 20, 19, 11, 13]
    comparison = compare(dict(enumerate(first)), dict(enumerate(second)))
    shares = compare(
        {i: v / 25 for i, v in enumerate(first)}, {i: v / 25 for i, v in enumerate(second)}
    )
    assert shares.p_value == comparison.p_value == 0.0625


def test_the_geometric_mean_of_many_recalls_does_not_underflow():
    truth = np.repeat(np.arange(2000), 2)
    predicted = truth.copy()
    predicted[::2] = (predicted[::2] + 1) % 2000
    assert g_mean_score(truth, predicted) == pytest.approx(0.5)
    assert g_mean_score([0, 0, 1], [1, 1, 1]) == 0.0
