"""Batches of any size: their parts, the weight of context, and detection of outliers."""

import warnings

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression, Ridge

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.base.messages import ContextWarning
from domainwise.estimators.ensemble import batches
from domainwise.estimators.ensemble.batches import (
    N_CONTEXTS,
    OUTLIER_RATE,
    Batch,
    Moments,
    SourceRange,
    SourceSamples,
    Trust,
    part_count,
    random_order,
    row_keys,
)

CLASSES = [("logistic", LogisticRegression())]
NUMBERS = [("ridge", Ridge())]


def table(n_domains=6, n_per_domain=20, seed=0):
    """Return domains with different means; classes are above and below the mean of a domain."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n_per_domain)
    inside = rng.normal(size=(len(domain), 3))
    X = inside + rng.normal(0, 2, (n_domains, 3))[domain]
    return X, (inside.sum(axis=1) > 0).astype(int), inside.sum(axis=1), domain


def fitted(classes=True, **options):
    X, y, numbers, domain = table(**options)
    if classes:
        return DomainEnsembleClassifier(CLASSES).fit(X, y, sample_domain=domain)
    return DomainEnsembleRegressor(NUMBERS).fit(X, numbers, sample_domain=domain)


def outputs(model, X, domain=None):
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X, sample_domain=domain)
    return model.predict(X, sample_domain=domain)


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("n", [2, 7, 25, 29, 30, 31, 75])
def test_the_order_of_rows_does_not_change_predictions_at_all(classes, n):
    model = fitted(classes)
    X = table(1, n, seed=3)[0]
    X = np.concatenate([X, X[: n // 3]])  # some rows occur twice
    domain = np.arange(len(X)) % 2
    expected = outputs(model, X, domain)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        np.testing.assert_array_equal(outputs(model, X[order], domain[order]), expected[order])


@pytest.mark.parametrize("classes", [True, False])
def test_a_single_row_is_predicted_as_without_its_domain(classes):
    model = fitted(classes)
    X = table(1, 10, seed=4)[0]
    for row in X:
        np.testing.assert_array_equal(outputs(model, row[None], ["new"]), outputs(model, row[None]))
    alone = outputs(model, X, np.arange(len(X)))
    np.testing.assert_allclose(alone, outputs(model, X), rtol=1e-13)


def test_rows_with_the_same_content_get_the_same_prediction():
    model = fitted()
    X = np.repeat(table(1, 20, seed=5)[0], 4, axis=0)
    predicted = outputs(model, X, np.zeros(len(X)))
    for i in range(0, len(X), 4):
        assert (predicted[i : i + 4] == predicted[i]).all()


class Counting(LogisticRegression):
    """Counts the rows that it predicts."""

    rows = 0

    def decision_function(self, X):
        Counting.rows += len(X)
        return super().decision_function(X)


@pytest.mark.parametrize("n", [1, 10, 20, 29, 30, 100, 1000])
def test_context_costs_at_most_seven_predictions_row_by_row(n):
    X, y, _, domain = table()
    model = DomainEnsembleClassifier([("one", Counting())]).fit(X, y, sample_domain=domain)
    new = table(1, n, seed=6)[0]
    Counting.rows = 0
    model.predict_proba(new)
    alone, Counting.rows = Counting.rows, 0
    model.predict_proba(new, sample_domain=np.zeros(n))
    assert alone == n
    times = 1 if n == 1 else 2 if n < 30 else 1 + N_CONTEXTS
    assert Counting.rows == times * n <= 7 * alone


@pytest.mark.parametrize(("n", "parts"), [(1, 1), (29, 1), (30, 2), (49, 2), (50, 3), (400, 20)])
def test_batches_are_divided_into_parts_as_large_as_source_domains(n, parts):
    assert part_count(n, 20) == parts
    Z = np.random.default_rng(0).normal(size=(n, 2))
    keys = row_keys(Z, 0)
    batch = Batch.from_rows(Z, keys, 20)
    assert batch.n_contexts == (1 if parts == 1 else N_CONTEXTS)
    for part in batch.parts:
        assert abs(len(part.keys) - n / parts) < 1
    division = [k for part in batch.parts[:parts] for k in part.keys]
    assert len(set(division)) == len(division)


def test_statistics_around_a_row_are_those_of_the_part_that_it_joins():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(50, 3))
    Z[rng.random(Z.shape) < 0.2] = np.nan
    keys = row_keys(Z, 7)
    batch = Batch.from_rows(Z, keys, 10)
    inside = 0
    for number, part in enumerate(batch.parts):
        around = batch.context_moments(number, Z, keys)
        members = np.array([np.flatnonzero(keys == key)[0] for key in part.keys])
        for i in range(len(Z)):
            rows = members if i in members else np.append(members[:-1], i)
            inside += i in members
            for j in range(3):
                values = Z[rows, j][~np.isnan(Z[rows, j])]
                assert around.count[i, j] == len(values)
                mean = values.mean() if len(values) else 0.0
                np.testing.assert_allclose(around.mean[i, j], mean, atol=1e-12)
                np.testing.assert_allclose(
                    around.squares[i, j], ((values - mean) ** 2).sum(), atol=1e-12
                )
    assert inside == 10 * N_CONTEXTS


def test_large_batches_are_predicted_as_the_mean_over_parts():
    model = fitted(classes=False)
    X = table(1, 64, seed=8)[0]
    keys = row_keys(X, model._seed)
    model._source_range = None
    whole = outputs(model, X, np.zeros(64))
    model._trust, trust = None, model._trust  # no parts, and full weight of context
    expected = np.zeros(64)
    for number in range(N_CONTEXTS):
        division, place = divmod(number, 3)
        part = np.array_split(random_order(keys, division), 3)[place]
        for i in range(64):
            rows = part if i in part else np.append(part[:-1], i)
            together = outputs(model, X[rows], np.zeros(len(rows)))
            expected[i] += together[list(rows).index(i)] / N_CONTEXTS
    assert trust.size == 20
    np.testing.assert_allclose(whole, expected, rtol=1e-9)


def test_keys_depend_only_on_the_content_of_rows():
    X = np.random.default_rng(0).normal(size=(500, 4))
    keys = row_keys(X, 0)
    assert len(np.unique(keys)) == 500
    np.testing.assert_array_equal(row_keys(X[::-1], 0)[::-1], keys)
    assert not np.isin(row_keys(X, 1), keys).any()
    zeros = np.array([[0.0, np.nan], [-0.0, -np.nan]])
    assert row_keys(zeros, 0)[0] == row_keys(zeros, 0)[1]
    share = np.bincount(random_order(np.zeros(1000, dtype=np.uint64)) // 500, minlength=2)
    assert share.sum() == 1000  # copies are drawn like other rows
    assert abs(np.corrcoef(np.argsort(random_order(keys)), X[:, 0])[0, 1]) < 0.15


def test_trust_grows_from_0_to_1():
    for half in (0.5, 20.0, 1000.0):
        trust = Trust(60, half)
        shares = trust(np.arange(1, 200))
        assert shares[0] == 0.0
        assert (shares[59:] == 1.0).all()
        assert (np.diff(shares[:60]) > 0).all()
        t = (np.arange(60)) / (np.arange(60) + half)
        np.testing.assert_allclose(shares[:60], t / t[-1])
    assert Trust(1)(np.array([1, 2, 50])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("noise", [0.05, 4.0])
def test_trust_is_chosen_by_the_squared_error_on_small_batches(noise):
    rng = np.random.default_rng(2)
    n_rows = np.repeat([2, 4, 8, 16, 32], 200)
    y = rng.normal(size=(1000, 1))
    plain = y + rng.normal(0, 1, y.shape)
    context = y + rng.normal(0, 0.3, y.shape) + noise * rng.normal(size=y.shape) / n_rows[:, None]
    weights = np.full(1000, 1e-3)
    trust = Trust.learn(50, n_rows, plain, context, y, weights)

    def error(half):
        share = Trust(50, half)(n_rows)[:, None]
        return np.mean((share * context + (1 - share) * plain - y) ** 2)

    halves = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0)
    assert trust.half == min(halves, key=error)
    assert (trust.half <= 1.0) == (noise < 1)


def test_small_batches_contain_rows_from_one_held_out_domain():
    X, _, _, domain = table(8, 40)
    learnt = np.arange(0, len(X), 2)
    thinned = SourceSamples(X, domain, learnt, np.arange(len(learnt)), np.arange(8), 40)
    halves = list(thinned.halves(0))
    assert sorted(np.concatenate([held for held, _ in halves]).tolist()) == list(range(8))
    for held, thin in halves:
        assert {batch.n_rows for batch in thin} == {2, 4, 8, 16, 32}
        for batch in thin:
            of = domain[learnt[batch.rows]]
            assert len(set(of.tolist())) == 1
            assert of[0] in held
            assert batch.moments.count.max() == batch.n_rows
            assert len(batch.rows) == min(batch.n_rows, 16)


def test_a_member_with_noisy_context_gets_little_trust_in_small_batches():
    """If domain means differ a lot, the mean of two rows is misleading."""
    model = fitted(n_domains=10, n_per_domain=60)
    assert model.context_batch_size_ == 60
    assert model._trust.size == 60
    X, y, _, _ = table(8, 60, seed=9)
    by_size = {}
    for n in (1, 2, 4, 60):
        batch = np.arange(len(X)) // n
        by_size[n] = np.mean(model.predict(X, sample_domain=batch) == y)
    plain = np.mean(model.predict(X) == y)
    assert by_size[1] == plain
    assert by_size[60] > plain + 0.1
    assert min(by_size.values()) > plain - 0.03


def by_loops(sources, batch, features, noise=2.0):
    """Return the largest distance of a batch from the source domains, computed with loops.

    One row contributes ``noise`` to the variance of the logarithm of a variance.
    """
    farthest = 0.0
    for j in features:
        columns = [rows[:, j] for rows in sources]
        inside = np.mean([column.var() for column in columns])
        kinds = [(np.mean, inside)]
        if len(batch) >= 8:
            kinds.append((lambda column: np.log(max(column.var(), 1e-3)), noise))
        for statistic, row in kinds:
            known = np.array([statistic(column) for column in columns])
            chance = np.mean([row / len(column) for column in columns])
            between = max(0.0, known.var(ddof=1) - chance)
            spread = np.sqrt((between + row / len(batch)) * (1 + 1 / len(known)))
            farthest = max(farthest, abs(statistic(batch[:, j]) - known.mean()) / spread)
    return farthest


@pytest.fixture
def known_noise(monkeypatch):
    def noise(Z, rows):
        inside = np.array([Z[mine].var(axis=0) for mine in rows])
        return np.array([inside, np.full_like(inside, 2.0)])

    monkeypatch.setattr(batches, "_noise_variances", noise)


@pytest.mark.parametrize("n", [4, 20])
def test_distances_equal_those_computed_with_loops(n, known_noise):
    X, _, _, codes = table(7, 30)
    known = SourceRange.of_sources(X, codes, 7, np.array([0, 2]), 0)
    batch = np.random.default_rng(0).normal(size=(n, 3)) + np.array([90.0, 900.0, 3.0])
    outlier = known.outlier(Moments.of_rows(batch, np.zeros(n, dtype=int), 1))
    assert (outlier.statistic, outlier.feature) == ("mean", 0)
    sources = [X[codes == d] for d in range(7)]
    assert outlier.z_score == pytest.approx(by_loops(sources, batch, [0, 2]))


def test_the_limit_is_an_upper_quantile_of_the_distances_of_source_domains(known_noise):
    X, _, _, codes = table(9, 12)
    known = SourceRange.of_sources(X, codes, 9, np.arange(3), 0)
    sources = [X[codes == d] for d in range(9)]
    farthest = [by_loops(sources[:d] + sources[d + 1 :], sources[d], range(3)) for d in range(9)]
    logs = np.log(farthest)
    reach = student.ppf(1 - OUTLIER_RATE, 8) * logs.std(ddof=1) * np.sqrt(1 + 1 / 9)
    assert known.sizes.tolist() == [2, 4, 8, 12]
    assert known.limits[-1] == pytest.approx(np.exp(logs.mean() + reach))


def test_noise_of_a_log_variance_is_that_of_random_halves():
    rng = np.random.default_rng(3)
    rows = np.split(np.arange(400 * 200), 400)
    noise = batches._noise_variances(rng.normal(size=(400 * 200, 2)), rows)
    np.testing.assert_allclose(noise[0].mean(axis=0), 1.0, rtol=0.05)
    np.testing.assert_allclose(noise[1].mean(axis=0), 2.0, rtol=0.2)  # 2 for normal rows


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("n", [5, 20, 80])
def test_a_shifted_batch_is_predicted_row_by_row_with_a_warning(classes, n):
    model = fitted(classes, n_domains=12)
    X = table(1, n, seed=11)[0] * [1, 100, 1]
    with pytest.warns(ContextWarning, match=r"north \(the .* of column 1 is .* Pass all rows"):
        found = outputs(model, X, ["north"] * n)
    np.testing.assert_allclose(found, outputs(model, X), rtol=1e-12)
    assert model.domains_without_context(X, ["north"] * n) == ["north"]


def test_batches_like_the_sources_raise_no_alarm():
    model = fitted(classes=False, n_domains=12)
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(60):
        n = int(rng.choice([2, 5, 20, 40]))
        X = rng.normal(size=(n, 3)) + rng.normal(0, 2, 3)
        alarms += len(model.domains_without_context(X, np.zeros(n)))
    assert alarms <= 3


def test_a_batch_larger_than_source_domains_is_judged_as_one_of_their_size():
    model = fitted(classes=False, n_domains=12)
    rng = np.random.default_rng(6)
    sites = [rng.normal(size=(2000, 3)) + rng.normal(0, 2, 3) for _ in range(20)]
    alarms = [model.domains_without_context(X, np.zeros(len(X))) for X in sites]
    assert sum(map(len, alarms)) <= 1


def test_few_source_domains_have_no_range():
    assert fitted(classes=False, n_domains=3)._source_range is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", ContextWarning)
        fitted(classes=False, n_domains=3).predict(table(1, 9)[0] * 1000, sample_domain=[0] * 9)
