"""Fast estimators give the same results on Dask collections and on NumPy arrays."""

import numpy as np
import pytest

from domainwise import FastCOIR, FastDCM, FastDICA, FastKPCA, FastMDA, FastMIDA, FastSCA

pytestmark = pytest.mark.dask

FAST = [FastDCM, FastCOIR, FastDICA, FastKPCA]


def assert_equal_models(a, b, X, atol=1e-10):
    assert a.gamma_ == b.gamma_
    assert a.n_informative_ == b.n_informative_
    largest = np.abs(b.eigenvalues_).max()
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=0, atol=1e-10 * largest)
    Z = b.transform(X)
    np.testing.assert_allclose(a.transform(X), Z, rtol=0, atol=atol * np.abs(Z).max())


@pytest.mark.parametrize("kind", ["classes", "three", "regression", "outputs"])
@pytest.mark.parametrize("method", FAST)
def test_a_cluster_gives_the_same_result_as_numpy(method, kind, rows, client):
    p = rows(kind)
    X, y, domain = p.arrays()
    # With the default epsilon, the kernel of a single target has directions that are rounding
    # errors, which depend on the order in which rows are summed, in NumPy as well.
    params = {"epsilon": 0.1} if kind == "regression" and method is not FastKPCA else {}
    here = method(n_landmarks=60, **params).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = method(n_landmarks=60, **params).fit(X, y, sample_domain=domain)
    assert_equal_models(there, here, p.X)
    np.testing.assert_array_equal(there.landmarks_, here.landmarks_)
    assert there.solver_info_["n_partitions"] == 4


@pytest.mark.parametrize("method", [FastSCA, FastMDA, FastMIDA])
def test_methods_that_need_classes_give_the_same_result(method, rows, client):
    p = rows("three")
    X, y, domain = p.arrays()
    here = method(n_landmarks=60).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = method(n_landmarks=60).fit(X, y, sample_domain=domain)
    assert_equal_models(there, here, p.X, atol=1e-8)


@pytest.mark.parametrize("method", [FastDCM, FastDICA])
def test_unsupervised_fits_give_the_same_result(method, rows):
    p = rows("nothing")
    X, _, domain = p.arrays()
    here = method(n_components=3, n_landmarks=60).fit(p.X, sample_domain=p.domain)
    there = method(n_components=3, n_landmarks=60).fit(X, sample_domain=domain)
    assert_equal_models(there, here, p.X)


@pytest.mark.parametrize(
    "params",
    [
        {"conditional": True},
        {"domain_weight": 0.01, "epsilon": 0.1},
        {"kernel": "linear"},
        {"kernel": "laplacian", "gamma": 0.1},
        {"landmarks": "stratified"},
        {"n_landmarks": "auto"},
        {"n_landmarks": 0.25},
    ],
)
def test_arguments_have_the_same_effect(params, rows):
    p = rows("three")
    X, y, domain = p.arrays()
    params = {"n_landmarks": 60, **params}
    here = FastDCM(**params).fit(p.X, p.y, sample_domain=p.domain)
    there = FastDCM(**params).fit(X, y, sample_domain=domain)
    assert_equal_models(there, here, p.X)


def test_domain_descriptors_can_be_continuous(rows):
    import dask.array as da

    p = rows()
    X, y, _ = p.arrays()
    time = np.sin(np.arange(len(p)) / 7)
    here = FastDCM(n_landmarks=60).fit(p.X, p.y, sample_domain=time)
    there = FastDCM(n_landmarks=60).fit(X, y, da.from_array(time, chunks=(X.chunks[0],)))
    assert_equal_models(there, here, p.X)


def test_float32_rows_stay_float32(rows):
    p = rows(dtype=np.float32)
    X, y, domain = p.arrays()
    here = FastDCM(n_landmarks=60).fit(p.X, p.y, sample_domain=p.domain)
    there = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    assert there.landmarks_.dtype == np.float32
    np.testing.assert_allclose(there.transform(p.X), here.transform(p.X), atol=1e-3)


def test_labels_can_be_column_names_or_series(rows, client, assert_same_bits):
    import dask.dataframe as dd

    frame = rows("three").frame()
    features = [f"x{i}" for i in range(10)]
    there = dd.from_pandas(frame, npartitions=4)
    here = FastDCM(n_landmarks=60).fit(frame[features], frame["y"], sample_domain=frame["site"])
    with client.as_current():
        by_name = FastDCM(n_landmarks=60).fit(there, "y", "site")
        by_series = FastDCM(n_landmarks=60).fit(there[features], there["y"], there["site"])
    assert_same_bits(by_name, by_series)
    assert_equal_models(by_name, here, frame[features])
    assert by_name.classes_.tolist() == ["maybe", "no", "yes"]
    assert by_name.domains_.tolist() == sorted(frame["site"].unique())
    assert by_name.feature_names_in_.tolist() == features


def test_several_columns_can_be_targets(rows):
    import dask.dataframe as dd

    frame = rows().frame().drop(columns=["y"])
    features = [f"x{i}" for i in range(2, 10)]
    here = FastDCM(n_landmarks=60).fit(
        frame[features], frame[["x0", "x1"]], sample_domain=frame["site"]
    )
    there = FastDCM(n_landmarks=60).fit(dd.from_pandas(frame, npartitions=3), ["x0", "x1"], "site")
    assert_equal_models(there, here, frame[features])


def test_lengths_can_be_unknown(rows):
    import dask.dataframe as dd

    p = rows("three")
    frame = dd.from_pandas(p.frame(), npartitions=4)
    X = frame[[f"x{i}" for i in range(10)]].to_dask_array()
    assert np.isnan(X.shape[0])
    here = FastDCM(n_landmarks=60).fit(p.X, p.frame()["y"], sample_domain=p.domain)
    there = FastDCM(n_landmarks=60).fit(X, frame["y"].to_dask_array(), frame["site"])
    assert_equal_models(there, here, p.X)


@pytest.mark.parametrize("known", [True, False])
def test_empty_partitions_do_not_change_the_result(known, rows):
    p = rows("three")
    X, y, domain = p.arrays(cuts=(0.0, 0.0, 0.3, 0.3, 1.0))
    assert X.chunks[0].count(0) == 4
    if not known:
        every = y == y
        X, y, domain = X[every], y[every], domain[every]
        assert np.isnan(X.chunks[0]).all()
    here = FastDCM(n_landmarks=60).fit(p.X, p.y, sample_domain=p.domain)
    there = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    assert_equal_models(there, here, p.X)


def test_a_class_or_domain_can_occur_in_one_partition_only(rows):
    import dask.dataframe as dd

    frame = rows("three").frame().sort_values("y", ignore_index=True)
    frame.loc[frame.index[-5:], "site"] = "a site of its own"
    features = [f"x{i}" for i in range(10)]
    here = FastDCM(n_landmarks=60).fit(frame[features], frame["y"], sample_domain=frame["site"])
    there = FastDCM(n_landmarks=60).fit(dd.from_pandas(frame, npartitions=6), "y", "site")
    assert_equal_models(there, here, frame[features])
    assert "a site of its own" in there.domains_


def test_labels_that_are_not_in_the_sampled_rows_are_counted(rows, monkeypatch):
    import dask.dataframe as dd

    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_PARTITIONS", 2)
    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_ROWS", 100)
    monkeypatch.setattr("domainwise.algebra.backends.dask.MIN_SAMPLE_ROWS", 10)
    frame = rows("three").frame().sort_values("y", ignore_index=True)
    features = [f"x{i}" for i in range(10)]
    there = FastDCM(n_landmarks=60).fit(dd.from_pandas(frame, npartitions=9), "y", "site")
    here = FastDCM(gamma=there.gamma_, landmarks=there.landmarks_)
    here.fit(frame[features], frame["y"], sample_domain=frame["site"])
    assert there.classes_.tolist() == ["maybe", "no", "yes"]
    assert there.n_samples_seen_ == len(frame)
    assert_equal_models(there, here, frame[features])


def test_categories_and_nullable_columns_are_labels(rows):
    import dask.dataframe as dd

    frame = rows("three").frame()
    plain = FastDCM(n_landmarks=60).fit(dd.from_pandas(frame, npartitions=3), "y", "site")
    other = frame.astype({"y": "category", "site": "category"}).astype({"x0": "Float64"})
    there = FastDCM(n_landmarks=60).fit(dd.from_pandas(other, npartitions=3), "y", "site")
    assert_equal_models(there, plain, frame[[f"x{i}" for i in range(10)]], atol=0)


def test_a_range_of_target_landmarks_covers_targets_that_were_not_sampled(rows, monkeypatch):
    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_ROWS", 80)
    monkeypatch.setattr("domainwise.algebra.backends.dask.MIN_SAMPLE_ROWS", 80)
    p = rows("regression")
    X, y, domain = p.arrays()
    params = dict(
        gamma=0.1,
        landmarks=p.X[::5],
        target_gamma=0.5,
        target_landmarks=(float(p.y.min()) - 1, float(p.y.max()) + 1),
    )
    here = FastDCM(**params).fit(p.X, p.y, sample_domain=p.domain)
    there = FastDCM(**params).fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(there.transform(p.X), here.transform(p.X), atol=1e-6)


def test_rows_in_memory_can_follow_a_pass_on_dask(rows):
    p, more = rows("three"), rows("three", seed=1)
    X, y, domain = p.arrays()
    there = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    there.partial_fit(more.X, more.y, sample_domain=more.domain)
    here = FastDCM(n_landmarks=60).fit(p.X, p.y, sample_domain=p.domain)
    here.partial_fit(more.X, more.y, sample_domain=more.domain)
    assert_equal_models(there, here, p.X)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("method", FAST)
def test_fourier_features_are_the_same_on_every_worker(method, kernel, rows, client):
    p = rows("three")
    X, y, domain = p.arrays()
    params = dict(kernel=kernel, feature_map="fourier", n_landmarks=71, random_state=4)
    here = method(**params).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = method(**params).fit(X, y, sample_domain=domain)
        np.testing.assert_allclose(there.transform(X).compute(), there.transform(p.X), atol=1e-12)
    assert_equal_models(there, here, p.X)
    np.testing.assert_array_equal(there.frequencies_, here.frequencies_)
