"""DomainContext equals its formulas, evaluated row by row, in any order of rows."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

from domainwise import DomainContext


def rows(seed=0, n=60, missing=False):
    """Return columns of different scales, one with two values, and domains of unequal size."""
    rng = np.random.default_rng(seed)
    domain = rng.choice(["a", "b", "c", "d"], n, p=[0.6, 0.25, 0.13, 0.02])
    domain[0] = "alone"
    shift = np.array([{"a": 0, "b": 3, "c": -5, "d": 1, "alone": 9}[d] for d in domain])
    X = rng.standard_normal((n, 3)) * [1, 100, 1e-3] + shift[:, None] * [1, 50, 1e-3] + [0, 1e4, 1]
    X = np.column_stack([X, rng.integers(2, size=n)])
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[domain == "c", 0] = np.nan
    return X, domain


def by_loops(sources, X, domain, *, shrinkage=20.0, clip=6.0, numeric=(0, 1, 2)):
    """Compute relative values and summary one value at a time."""
    relative, summary = np.zeros((len(X), len(numeric))), np.zeros((len(X), 2 * len(numeric)))
    for k, j in enumerate(numeric):
        known = sources[~np.isnan(sources[:, j]), j]
        z = (X[:, j] - known.mean()) / known.std()
        for i in range(len(X)):
            mine = [z[o] for o in range(len(X)) if domain[o] == domain[i] and not np.isnan(z[o])]
            a = len(mine) / (len(mine) + shrinkage)
            mean, variance = (np.mean(mine), np.var(mine)) if mine else (0.0, 1.0)
            spread = a * variance + 1 - a
            if not np.isnan(z[i]):
                relative[i, k] = np.clip((z[i] - a * mean) / np.sqrt(spread), -clip, clip)
            summary[i, k], summary[i, k + len(numeric)] = a * mean, np.log(spread) / 2
    return relative, summary


@pytest.mark.parametrize("missing", [False, True])
def test_relative_values_and_summary_equal_those_computed_with_loops(missing):
    sources, _ = rows(0, missing=missing)
    X, domain = rows(1, 40, missing=missing)
    context = DomainContext(summary=True).fit(sources)
    Z = context.transform(X, sample_domain=domain)
    relative, summary = by_loops(sources, X, domain)
    np.testing.assert_allclose(Z[:, 4:7], relative / np.sqrt(2), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(Z[:, 7:], summary, rtol=1e-9, atol=1e-11)
    plain = (X - np.nanmean(sources, axis=0)) / np.nanstd(sources, axis=0)
    np.testing.assert_allclose(Z[:, :4], plain * [*[2**-0.5] * 3, 1], rtol=1e-9, atol=1e-11)


def test_columns_of_two_values_and_constants_have_no_relative_value():
    X, domain = rows()
    X = np.column_stack([X, np.full(len(X), 7.3), np.where(X[:, 0] > 0, -1.5, 22.0)])
    context = DomainContext().fit(X, sample_domain=domain)
    assert context.relative_features_.tolist() == [0, 1, 2]
    assert context.transform(X, sample_domain=domain).shape == (len(X), 6 + 3)


def test_a_domain_of_one_row_is_compared_with_the_sources():
    X, _ = rows()
    context = DomainContext().fit(X)
    one = context.transform(X[:1], sample_domain=["new"])
    z = (X[0] - X.mean(axis=0)) / X.std(axis=0)
    expected = (z - z / 21) / np.sqrt(20 / 21)
    np.testing.assert_allclose(one[0, 4:] * np.sqrt(2), expected[:3])


def test_nothing_depends_on_the_other_rows_without_domains():
    X, _ = rows(missing=True)
    context = DomainContext(summary=True).fit(X)
    together = context.transform(X)
    for i in (0, 5, 17):
        np.testing.assert_array_equal(context.transform(X[i : i + 1]), together[i : i + 1])


def test_distances_between_rows_are_unchanged_without_domains():
    X, _ = rows()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = DomainContext(clip=50.0).fit_transform(X)
    np.testing.assert_allclose(rbf_kernel(Z, gamma=0.3), rbf_kernel(scaled, gamma=0.3))


def test_the_order_of_rows_and_the_names_of_domains_do_not_matter():
    X, domain = rows(missing=True)
    context = DomainContext(summary=True).fit(X)
    Z = context.transform(X, sample_domain=domain)
    order = np.random.default_rng(0).permutation(len(X))
    renamed = np.array([{"a": 5, "b": 2, "c": 9, "d": 1, "alone": 0}[d] for d in domain])
    again = context.transform(X[order], sample_domain=renamed[order])
    np.testing.assert_allclose(again, Z[order], rtol=1e-12, atol=1e-12)


def test_a_shift_and_a_scale_of_a_domain_vanish_where_nothing_is_shrunk():
    X, domain = rows(n=200)
    moved = X.copy()
    moved[domain == "a", :3] = moved[domain == "a", :3] * 4 + 1000
    context = DomainContext(shrinkage=0.0, clip=100.0).fit(X)
    before, after = (context.transform(A, sample_domain=domain)[:, 4:] for A in (X, moved))
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_an_rbf_kernel_on_features_and_summary_is_a_product_of_kernels():
    X, domain = rows()
    context = DomainContext(relative=False, summary=True).fit(X)
    Z = context.transform(X, sample_domain=domain)
    product = rbf_kernel(Z[:, :4], gamma=0.2) * rbf_kernel(Z[:, 4:], gamma=0.2)
    np.testing.assert_allclose(rbf_kernel(Z, gamma=0.2), product)


def test_relative_values_are_clipped():
    X, domain = rows()
    X[5, 0] = 1e6
    Z = DomainContext(clip=2.0).fit(X[10:]).transform(X, sample_domain=domain)
    assert np.abs(Z[:, 4:]).max() == pytest.approx(2 / np.sqrt(2))


def test_partial_fit_equals_one_fit():
    X, domain = rows(missing=True)
    once, parts = DomainContext().fit(X), DomainContext()
    X_two = X[:, 3]
    for part in np.array_split(np.arange(len(X)), 5):
        parts.partial_fit(X[part], sample_domain=domain[part])
    assert set(X_two[~np.isnan(X_two)]) == {0, 1}
    np.testing.assert_allclose(parts.mean_, once.mean_, rtol=1e-12)
    np.testing.assert_allclose(parts.scale_, once.scale_, rtol=1e-10)
    assert parts.relative_features_.tolist() == once.relative_features_.tolist() == [0, 1, 2]
    assert parts.n_samples_seen_ == once.n_samples_seen_ == len(X)


def test_a_large_offset_keeps_its_digits():
    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((50, 2)), np.arange(50) % 4
    near, far = (DomainContext().fit(A).transform(A, sample_domain=domain) for A in (X, X + 1e9))
    np.testing.assert_allclose(far, near, atol=1e-6)


def test_float32_stays_float32():
    X, domain = rows()
    Z = DomainContext().fit_transform(X.astype(np.float32), sample_domain=domain)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, DomainContext().fit_transform(X, sample_domain=domain), atol=1e-2)


def test_output_names_describe_the_columns():
    pandas = pytest.importorskip("pandas")
    X, domain = rows()
    frame = pandas.DataFrame(X, columns=["p", "q", "r", "two"])
    context = DomainContext(summary=True).set_output(transform="pandas")
    out = context.fit_transform(frame, sample_domain=pandas.Series(domain))
    assert list(out.columns)[:6] == ["p", "q", "r", "two", "p_relative", "q_relative"]
    assert list(out.columns)[7:] == [f"{n}_{k}" for k in ("mean", "deviation") for n in "pqr"]


def test_domains_reach_fit_and_transform_through_a_pipeline():
    X, domain = rows(n=80)
    y = (X[:, 0] > 0).astype(int)
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(DomainContext(), LogisticRegression())
        model.fit(X, y, sample_domain=domain)
        with_domains = model.decision_function(X, sample_domain=domain)
        without = model.decision_function(X)
    by_hand = DomainContext().fit(X)
    head = LogisticRegression().fit(by_hand.transform(X, sample_domain=domain), y)
    expected = head.decision_function(by_hand.transform(X, sample_domain=domain))
    np.testing.assert_allclose(with_domains, expected)
    np.testing.assert_allclose(without, head.decision_function(by_hand.transform(X)))


@pytest.mark.parametrize(
    ("sample_domain", "message"),
    [
        (["a"] * 59, "sample_domain has 59 entries, but X has 60 rows"),
        (np.zeros((60, 2)), "one label per row"),
        ([None] * 60, "sample_domain contains missing"),
    ],
)
def test_bad_domains_are_refused(sample_domain, message):
    X, _ = rows()
    with pytest.raises(ValueError, match=message):
        DomainContext().fit(X).transform(X, sample_domain=sample_domain)


def test_bad_values_and_arguments_are_refused():
    X, _ = rows()
    with pytest.raises(ValueError, match="infinity"):
        DomainContext().fit(np.where(X > 1e4, np.inf, X))
    with pytest.raises(ValueError, match="beyond 1e"):
        DomainContext().fit(X * 1e200)
    with pytest.raises(ValueError, match="shrinkage"):
        DomainContext(shrinkage=-1.0).fit(X)
    with pytest.raises(ValueError, match="clip"):
        DomainContext(clip=0.0).fit(X)


def test_a_column_without_values_stays_empty():
    X, domain = rows()
    X[:, 1] = np.nan
    Z = DomainContext().fit_transform(X, sample_domain=domain)
    assert np.isnan(Z[:, 1]).all()
    assert not np.isnan(np.delete(Z, 1, axis=1)).any()


def test_a_saved_context_is_the_same(tmp_path):
    pytest.importorskip("skops")
    from domainwise import load, save

    X, domain = rows(missing=True)
    context = DomainContext().fit(X)
    save(context, tmp_path / "context.skops")
    again = load(tmp_path / "context.skops")
    for model in (context, again):
        model.partial_fit(X[:20] + 1)
    np.testing.assert_array_equal(again.transform(X, domain), context.transform(X, domain))


@pytest.mark.torch
@pytest.mark.parametrize("missing", [False, True])
def test_tensors_and_arrays_give_the_same_values(missing):
    torch = pytest.importorskip("torch")
    X, domain = rows(missing=missing)
    codes = np.unique(domain, return_inverse=True)[1]
    context = DomainContext(summary=True).fit(X)
    tensor = torch.from_numpy(X)
    twin = clone(context).fit(tensor, sample_domain=torch.from_numpy(codes))
    np.testing.assert_allclose(twin.mean_, context.mean_, rtol=1e-12)
    np.testing.assert_allclose(twin.scale_, context.scale_, rtol=1e-12)
    assert twin.relative_features_.tolist() == context.relative_features_.tolist()
    for given, same in ((None, None), (torch.from_numpy(codes), domain), (domain, domain)):
        Z = twin.transform(tensor, sample_domain=given)
        assert isinstance(Z, torch.Tensor)
        expected = context.transform(X, sample_domain=same)
        np.testing.assert_allclose(Z.numpy(), expected, rtol=1e-10, atol=1e-12)
    assert twin.transform(tensor.float(), sample_domain=domain).dtype == torch.float32
    with pytest.raises(ValueError, match="infinity"):
        context.transform(tensor / 0.0)


@pytest.mark.dask
def test_a_dask_array_is_refused_with_the_names_of_estimators_that_accept_it():
    da = pytest.importorskip("dask.array")
    X, _ = rows()
    blocks = da.from_array(X, chunks=(17, 2))
    context = DomainContext().fit(X)
    for use in (context.fit, context.partial_fit, context.transform):
        with pytest.raises(TypeError, match="a Dask Array. On a cluster, use FastDCM or Invar"):
            use(blocks)
