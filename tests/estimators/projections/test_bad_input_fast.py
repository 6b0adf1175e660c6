"""Errors in Fast estimators say what was passed and what is accepted."""

import numpy as np
import pytest

from domainwise import FastCOIR, FastDCM, FastDICA, FastKPCA

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 4))
Y = (X[:, 0] > 0).astype(int)
DOMAIN = np.repeat(["a", "b", "c"], 20)


@pytest.mark.parametrize("value", [0, -3, 1.5, 0.0, -0.2, "many"])
def test_n_landmarks_out_of_range(value):
    with pytest.raises(ValueError, match="'n_landmarks' parameter of FastDCM"):
        FastDCM(n_landmarks=value).fit(X, Y)


def test_more_landmarks_than_rows():
    with pytest.raises(ValueError, match="n_landmarks=61 is more than the number of rows, 60"):
        FastDCM(n_landmarks=61).fit(X, Y)


def test_more_components_than_independent_landmarks():
    message = "n_components=11 is more than the number of linearly independent landmarks, 10"
    with pytest.raises(ValueError, match=message):
        FastKPCA(n_components=11, n_landmarks=10).fit(X)


@pytest.mark.parametrize("landmarks", [np.zeros((3, 5)), np.zeros(4), np.zeros((0, 4))])
def test_landmarks_with_the_wrong_shape(landmarks):
    with pytest.raises(ValueError, match=r"landmarks must have shape \(n_landmarks, 4\)"):
        FastDCM(gamma=1.0, landmarks=landmarks).fit(X, Y)


def test_landmarks_with_nan():
    with pytest.raises(ValueError, match="landmarks contain NaN"):
        FastDCM(gamma=1.0, landmarks=np.full((2, 4), np.nan)).fit(X, Y)


def test_precomputed_kernels_have_no_rows_to_choose_from():
    with pytest.raises(ValueError, match="precomputed"):
        FastDCM(kernel="precomputed").fit(X @ X.T, Y)


@pytest.mark.parametrize("method", [FastDCM, FastCOIR, FastDICA])
def test_fitting_to_one_class_is_an_error(method):
    with pytest.raises(ValueError, match="one class"):
        method().fit(X, np.ones(60, dtype=int))


def test_coir_needs_a_target():
    with pytest.raises(ValueError, match="requires y"):
        FastCOIR().fit(X)


def test_conditional_needs_classes_and_domain_labels():
    with pytest.raises(ValueError, match="y is continuous"):
        FastDCM(conditional=True).fit(X, X[:, 0], sample_domain=DOMAIN)
    with pytest.raises(ValueError, match="continuous domain descriptors"):
        FastDCM(conditional=True).fit(X, Y, sample_domain=X[:, :2])


def test_a_batch_with_other_features():
    model = FastDCM(n_landmarks=10).partial_fit(X, Y, sample_domain=DOMAIN)
    with pytest.raises(ValueError, match="3 features, but FastDCM is expecting 4"):
        model.partial_fit(X[:, :3], Y, sample_domain=DOMAIN)


@pytest.mark.parametrize(
    ("y", "domain", "message"),
    [
        (X[:, 0], DOMAIN, r"continuous values \(1 column\) in this batch, but numeric labels in"),
        (None, DOMAIN, "y contains no labels in this batch, but numeric labels in earlier batches"),
        (np.where(Y == 1, "yes", "no"), DOMAIN, "y contains string labels in this batch, but num"),
        (Y, X[:, 1], "sample_domain contains continuous values .* but string labels in earlier"),
        (Y, np.arange(60), "sample_domain contains numeric labels in this batch, but string label"),
    ],
)
def test_a_batch_with_another_type_of_labels(y, domain, message):
    model = FastDCM(n_landmarks=10).partial_fit(X, Y, sample_domain=DOMAIN)
    before = model.dual_coef_.copy()
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, sample_domain=domain)
    assert model.n_samples_seen_ == 60
    np.testing.assert_array_equal(model.dual_coef_, before)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((1.0, 0.0), "range"),
        (np.zeros((3, 2)), r"shape \(n_landmarks, 1\)"),
        ([np.nan, 1.0], "NaN"),
        ((0.0, 1e9), "at most 5000 are allowed"),
    ],
)
def test_invalid_target_landmarks(points, message):
    with pytest.raises(ValueError, match=message):
        FastDCM(target_landmarks=points).fit(X, X[:, 0], sample_domain=DOMAIN)


def test_a_failed_first_batch_leaves_the_estimator_unfitted():
    model = FastDCM(n_landmarks=100)
    with pytest.raises(ValueError, match="n_landmarks=100"):
        model.partial_fit(X, Y, sample_domain=DOMAIN)
    model.set_params(n_landmarks=10).partial_fit(X, Y, sample_domain=DOMAIN)
    assert model.n_samples_seen_ == 60
