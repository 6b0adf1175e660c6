"""Projecting Dask collections: lazy, partition by partition, and into Parquet without gathering."""

import numpy as np
import pytest

from domainwise import DCM, FastDCM

pytestmark = pytest.mark.dask

FEATURES = [f"x{i}" for i in range(10)]


@pytest.fixture(params=["fast", "exact in memory"])
def model(request, rows):
    """Models of two kinds, fitted to a data frame, and the frame."""
    import dask.dataframe as dd

    frame = rows("three").frame()
    if request.param == "fast":
        return FastDCM(n_landmarks=60).fit(dd.from_pandas(frame, npartitions=3), "y", "site")
    return DCM().fit(frame[FEATURES], frame["y"], sample_domain=frame["site"])


@pytest.fixture
def new(rows):
    frame = rows("three", seed=1).frame()
    frame.index = np.arange(len(frame)) * 10
    frame.index.name = "key"
    return frame


def test_a_data_frame_keeps_its_index_and_divisions(model, new, client):
    import dask.dataframe as dd

    there = dd.from_pandas(new, npartitions=4)
    Z = model.transform(there)
    assert Z.divisions == there.divisions
    assert Z.columns.tolist() == model.get_feature_names_out().tolist()
    with client.as_current():
        found = Z.compute()
    assert found.index.equals(new.index)
    np.testing.assert_allclose(found.to_numpy(), model.transform(new[FEATURES]), atol=1e-12)


def test_nothing_is_computed_before_it_is_requested(model, new):
    import dask.dataframe as dd

    computed = []

    def note(part):
        computed.append(len(part))
        return part

    there = dd.from_pandas(new, npartitions=4).map_partitions(note, meta=new.iloc[:0])
    Z = model.transform(there)
    assert computed == []
    Z.partitions[1].compute(scheduler="synchronous")
    assert len(computed) <= 2  # one partition, read for its rows and for its index


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_keeps_its_chunks_and_precision(dtype, rows):
    import dask.array as da

    p = rows("three")
    model = FastDCM(n_landmarks=60).fit(p.X, p.y, sample_domain=p.domain)
    X = da.from_array(p.X.astype(dtype), chunks=((100, 0, len(p) - 100), 5))
    Z = model.transform(X)
    assert Z.chunks == (X.chunks[0], (2,))
    assert Z.dtype == dtype
    np.testing.assert_allclose(Z.compute(), model.transform(p.X.astype(dtype)), atol=1e-12)


def test_lengths_can_be_unknown(model, new):
    import dask.dataframe as dd

    X = dd.from_pandas(new, npartitions=4)[FEATURES].to_dask_array()
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        Z = model.transform(X)
    assert np.isnan(Z.shape[0])
    np.testing.assert_allclose(Z.compute(), model.transform(new[FEATURES]), atol=1e-12)


def test_empty_partitions_are_projected_to_empty_partitions(model, new):
    import dask.dataframe as dd

    there = dd.from_pandas(new, npartitions=4)
    some = there[there["x0"] > 1e9]
    Z = model.transform(some).compute()
    assert Z.shape == (0, model.transform(new[FEATURES]).shape[1])


def test_parquet_is_written_by_the_workers(model, new, client, tmp_path):
    import dask.dataframe as dd
    import pandas as pd

    there = dd.from_pandas(new, npartitions=4)
    with client.as_current():
        model.transform(there).to_parquet(tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    assert len(files) == 4
    written = pd.concat([pd.read_parquet(file) for file in files])
    assert written.index.equals(new.index)
    np.testing.assert_allclose(written.to_numpy(), model.transform(new[FEATURES]), atol=1e-12)


def test_fit_transform_returns_a_collection(rows):
    import dask.dataframe as dd

    frame = rows("three").frame()
    there = dd.from_pandas(frame, npartitions=4)
    fast = FastDCM(n_landmarks=60)
    Z = fast.fit_transform(there, "y", sample_domain="site")
    assert Z.divisions == there.divisions
    np.testing.assert_allclose(Z.compute(), fast.transform(frame[FEATURES]), atol=1e-12)


def test_a_model_is_sent_once_and_not_with_every_task(rows):
    import dask.dataframe as dd

    frame = rows("three").frame()
    there = dd.from_pandas(frame, npartitions=8)
    model = FastDCM(n_landmarks=60).fit(there, "y", "site")
    graph = dict(model.transform(there).__dask_graph__())
    assert sum("model" in str(key) for key in graph) == 1


def test_outputs_that_would_load_all_rows_into_memory_are_refused(model, new):
    import dask.dataframe as dd

    model.set_output(transform="pandas")
    with pytest.raises(ValueError, match="would load a Dask DataFrame"):
        model.transform(dd.from_pandas(new, npartitions=4))
