"""Errors say what was passed and what is accepted, before anything is computed."""

import numpy as np
import pytest

import domainwise
from domainwise import COIR, DCM, DICA, KPCA, MDA, MIDA, SCA, FastCOIR, FastDCM
from domainwise.selection import DCMCV, FastDCMCV

da = pytest.importorskip("dask.array")
db = pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.dask


@pytest.fixture
def given(rows):
    """Everything in memory and as Dask arrays."""
    p = rows("three")
    return p, *p.arrays()


def test_arrays_in_memory_cannot_be_combined_with_dask(given):
    p, X, y, domain = given
    with pytest.raises(TypeError, match="X is a Dask Array but y is a numpy ndarray. Pass y as"):
        FastDCM().fit(X, p.y, sample_domain=domain)
    with pytest.raises(TypeError, match="but sample_domain is a numpy ndarray"):
        FastDCM().fit(X, y, sample_domain=p.domain)
    with pytest.raises(TypeError, match="y is a Dask collection but X is not"):
        FastDCM().fit(p.X, y)
    with pytest.raises(TypeError, match="sample_domain is a Dask collection but X is not"):
        FastDCM().fit(p.X, p.y, sample_domain=domain)


def test_chunks_must_match(given):
    _, X, y, domain = given
    with pytest.raises(ValueError, match="y has 2 partitions but X has 4. Rechunk"):
        FastDCM().fit(X, y.rechunk(300), sample_domain=domain)
    other = domain.rechunk((tuple(reversed(X.chunks[0])),))
    with pytest.raises(ValueError, match=r"sample_domain has chunks of .* but X has chunks of"):
        FastDCM().fit(X, y, sample_domain=other)


def test_divisions_must_match(rows):
    frame = rows("three").frame()
    X = dd.from_pandas(frame, npartitions=3)
    y = X["y"].repartition(divisions=[0, 10, 20, len(frame) - 1])
    with pytest.raises(ValueError, match=r"y has divisions .* but X has"):
        FastDCM().fit(X.drop(columns="y"), y, "site")


def test_different_lengths_within_a_partition_are_reported_by_the_pass(given):
    _, X, y, domain = given
    y = y[y >= 0]
    fewer = X[X[:, 0] < 1.0]
    with pytest.raises(ValueError, match=r"partition \d: y has \d+ entries, but X has \d+ rows"):
        FastDCM().fit(fewer, y, sample_domain=domain)


def test_the_number_of_features_must_be_known(given):
    _, X, y, domain = given
    unknown = da.Array(X.dask, X.name, (X.chunks[0], (np.nan,)), dtype=X.dtype)
    with pytest.raises(ValueError, match="number of features of X is unknown"):
        FastDCM().fit(unknown, y, sample_domain=domain)


def test_column_names_need_a_data_frame_with_these_columns(given, rows):
    _, X, y, _ = given
    with pytest.raises(TypeError, match="X is a Dask Array but sample_domain is a builtins str"):
        FastDCM().fit(X, y, sample_domain="site")
    frame = dd.from_pandas(rows("three").frame(), npartitions=3)
    with pytest.raises(ValueError, match="X has no column 'region'"):
        FastDCM().fit(frame, "y", "region")


def test_rows_must_be_numeric_and_two_dimensional(given, rows):
    _, X, y, _ = given
    with pytest.raises(ValueError, match="Expected a 2D Dask array"):
        FastDCM().fit(X[:, 0], y)
    with pytest.raises(ValueError, match="X must be numeric"):
        FastDCM().fit(X.astype(str), y)
    frame = dd.from_pandas(rows("three").frame(), npartitions=3)
    with pytest.raises(ValueError, match="these columns of X are not: site"):
        FastDCM().fit(frame, "y")
    with pytest.raises(TypeError, match="X is a Dask Series. Pass a data frame"):
        FastDCM().fit(frame["x0"], frame["y"])
    with pytest.raises(TypeError, match="X is a Dask Bag"):
        FastDCM().fit(db.from_sequence([1, 2]), y)


def test_errors_say_which_rows_contain_missing_values(rows):
    p = rows("three")
    p.X[5, 2] = np.inf
    with pytest.raises(ValueError, match=r"partition 0: Input X contains NaN or"):
        FastDCM(gamma=0.1).fit(*p.arrays())


def test_labels_of_another_kind_in_a_later_partition(rows, monkeypatch):
    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_PARTITIONS", 1)
    monkeypatch.setattr("domainwise.algebra.backends.dask.MIN_SAMPLE_ROWS", 10)
    p = rows("three")
    p.y = p.y.astype(float)
    p.y[-1] = 0.5
    X, y, domain = p.arrays()
    message = 'partition 3: y contains continuous .* target_kernel="rbf"'
    with pytest.raises(ValueError, match=message):
        FastDCM(n_landmarks=30).fit(X, y, sample_domain=domain)
    assert FastDCM(n_landmarks=30, target_kernel="rbf").fit(X, y, domain).n_samples_seen_ == len(p)


def test_one_class_in_all_partitions(given):
    _, X, y, domain = given
    with pytest.raises(ValueError, match="only one class .* in all 4 partitions"):
        FastDCM().fit(X, y * 0, sample_domain=domain)


def test_no_rows_at_all(given):
    _, X, y, domain = given
    none = X[:, 0] > 1e9
    with pytest.raises(ValueError, match=r"Found 0 sample\(s\)"):
        FastDCM().fit(X[none], y[none], sample_domain=domain[none])


def test_more_landmarks_than_rows_or_sampled_rows(given, monkeypatch):
    p, X, y, domain = given
    message = f"n_landmarks=5000 is more than the number of rows, {len(p)}"
    with pytest.raises(ValueError, match=message):
        FastDCM(n_landmarks=5000).fit(X, y, sample_domain=domain)
    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_ROWS", 40)
    monkeypatch.setattr("domainwise.algebra.backends.dask.MIN_SAMPLE_ROWS", 40)
    message = r"n_landmarks=0.5 requests \d+ landmarks for \d+ rows, but .* a sample of \d+ rows"
    with pytest.raises(ValueError, match=message):
        FastDCM(n_landmarks=0.5).fit(X, y, sample_domain=domain)


@pytest.mark.parametrize("method", [DCM, COIR, DICA, KPCA, SCA, MDA, MIDA])
def test_an_exact_estimator_names_its_fast_variant(method, given, rows):
    _, X, y, domain = given
    name = method.__name__
    message = f"{name} needs all rows in memory; got a Dask Array. Use Fast{name}, which computes"
    with pytest.raises(TypeError, match=message):
        method().fit(X, y, sample_domain=domain)
    with pytest.raises(TypeError, match=f"a Dask DataFrame. Use Fast{name}"):
        method().fit(dd.from_pandas(rows("three").frame(), npartitions=3), "y", "site")
    assert hasattr(domainwise, f"Fast{name}")


def test_methods_that_need_all_rows_in_memory_raise_an_error(given):
    _, X, y, _ = given
    with pytest.raises(TypeError, match="partial_fit does not accept Dask collections"):
        FastDCM().partial_fit(X, y)
    with pytest.raises(ValueError, match="precomputed"):
        FastDCM(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        FastCOIR().fit(X)


def test_a_projection_checks_names_and_number_of_features(given, rows):
    _, X, y, domain = given
    model = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    with pytest.raises(ValueError, match="X has 9 features, but FastDCM is expecting 10"):
        model.transform(X[:, :9])
    frame = dd.from_pandas(rows("three").frame(), npartitions=3)
    named = FastDCM(n_landmarks=60).fit(frame, "y", "site")
    with pytest.raises(ValueError, match="feature names should match"):
        named.transform(frame[["x0", "x1"]])


@pytest.mark.parametrize("search", [DCMCV, FastDCMCV])
def test_errors_of_searches_name_the_type_of_x(search, given):
    _, X, y, domain = given
    remedy = "or use InvariantRidgeClassifierCV or InvariantRidgeCV"
    with pytest.raises(TypeError, match=f"{search.__name__} takes NumPy arrays .* {remedy}"):
        search().fit(X, y, sample_domain=domain)


def test_missing_values_are_refused_when_gamma_is_computed(given):
    p, _, y, domain = given
    p.X[3, 2] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        FastDCM().fit(p.arrays()[0], y, sample_domain=domain)
