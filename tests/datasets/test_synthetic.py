"""The paper's synthetic domains."""

import numpy as np
import pytest
from scipy import stats
from sklearn.svm import SVC

from domainwise.datasets import make_synthetic


def test_bunch_has_the_fields_and_shapes_of_the_loaders():
    bunch = make_synthetic(n_domains=4, n_features=6, random_state=0)
    n_rows = len(bunch.data)
    assert bunch.data.shape == (n_rows, 6)
    assert bunch.data.dtype == np.float64
    assert bunch.target.shape == bunch.sample_domain.shape == (n_rows,)
    assert set(bunch.target) == {-1, 1}
    assert np.unique(bunch.sample_domain).tolist() == [0, 1, 2, 3]
    assert len(bunch.feature_names) == 6
    assert "4 domains" in bunch.DESCR


def test_the_seed_determines_the_data():
    first, again, other = (make_synthetic(random_state=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.data, again.data)
    np.testing.assert_array_equal(first.target, again.target)
    assert first.data[0, 0] != other.data[0, 0]


def test_domain_sizes_are_poisson():
    sizes = np.bincount(make_synthetic(n_domains=2000, n_features=1, random_state=0).sample_domain)
    assert sizes.mean() == pytest.approx(100, abs=1)
    assert sizes.var() == pytest.approx(100, rel=0.15)


def test_every_domain_has_at_least_two_rows():
    sizes = np.bincount(
        make_synthetic(n_domains=50, n_per_domain=0.1, random_state=0).sample_domain
    )
    assert sizes.min() == 2


def test_covariances_have_the_moments_of_the_wishart_distribution():
    eta, p = 0.3, 3
    bunch = make_synthetic(eta, n_domains=4000, n_per_domain=200, n_features=p, random_state=1)
    traces = np.array([np.trace(np.cov(rows.T)) for rows in _by_domain(bunch)])
    drawn = stats.wishart(df=p, scale=eta * np.eye(p)).rvs(40000, random_state=0)
    expected = np.trace(drawn, axis1=1, axis2=2)
    # E[trace] = eta p^2; quantiles tell the degrees of freedom apart.
    assert traces.mean() == pytest.approx(eta * p**2, rel=0.03)
    np.testing.assert_allclose(
        np.quantile(traces, [0.1, 0.5, 0.9]), np.quantile(expected, [0.1, 0.5, 0.9]), rtol=0.05
    )


def test_without_signal_the_classes_depend_on_noise_only():
    # With eta near 0, x = 0: P(y = 1) = 1/2 whatever c, by the symmetry of the first sign.
    rate = np.mean(make_synthetic(1e-12, n_domains=200, random_state=2).target == 1)
    assert rate == pytest.approx(0.5, abs=0.02)


def test_classes_follow_the_same_rule_in_every_domain():
    # A large scale drowns the noise; the sign of log|b2'x + c| and of b1'x then decide, and both
    # are homogeneous up to c: far from the origin y = sgn(b1'x), a linear rule.
    bunch = make_synthetic(1e8, n_domains=6, n_features=2, random_state=0)
    train = bunch.sample_domain < 3
    model = SVC(kernel="linear", C=10).fit(bunch.data[train] / 1e4, bunch.target[train])
    assert model.score(bunch.data[~train] / 1e4, bunch.target[~train]) > 0.97


@pytest.mark.parametrize(
    ("eta", "gamma", "paper"),
    [(0.1, 0.1, 69.96), (0.5, 0.1, 71.51), (0.1, 0.5, 64.87), (0.2, 0.5, 59.63), (0.5, 0.5, 53.44)],
)
def test_svm_accuracy_on_unseen_domains_is_close_to_the_paper(eta, gamma, paper):
    accuracies = []
    for seed in range(12):
        bunch = make_synthetic(eta, random_state=seed)
        held_out = np.random.RandomState(seed).permutation(10)[:3]
        test = np.isin(bunch.sample_domain, held_out)
        model = SVC(C=1, gamma=gamma).fit(bunch.data[~test], bunch.target[~test])
        accuracies.append(100 * model.score(bunch.data[test], bunch.target[test]))
    # One repeat has a standard deviation of 3 to 5 points.
    assert np.mean(accuracies) == pytest.approx(paper, abs=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 0}, "'eta' .* a float in the range \\(0.0, inf\\). Got 0"),
        ({"eta": "big"}, "'eta' .* a float .* Got 'big'"),
        ({"n_domains": 2.5}, "'n_domains' .* an int .* Got 2.5"),
        ({"n_features": 0}, "'n_features' .* an int .* Got 0"),
        ({"n_per_domain": -1}, "'n_per_domain' .* a float .* Got -1"),
        ({"c": float("nan")}, "'c' .* a float .* Got nan"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_synthetic(**arguments)


def _by_domain(bunch):
    boundaries = np.cumsum(np.bincount(bunch.sample_domain))[:-1]
    return np.split(bunch.data, boundaries)
