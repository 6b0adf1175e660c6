"""Exact estimators on Dask arrays give the same projections as on NumPy arrays."""

import numpy as np
import pytest

from domainwise import COIR, DCM, DICA, KPCA, MDA, MIDA, SCA
from domainwise.gram.iterative import StreamedGram
from domainwise.kernels.functions import make_kernel
from domainwise.labels.factors import Feature, label_rows

da = pytest.importorskip("dask.array")

from domainwise.gram.dask.operator import DaskGram, in_blocks, tournament  # noqa: E402

pytestmark = pytest.mark.dask


@pytest.fixture
def _streamed(monkeypatch):
    """Small problems are also streamed, in memory and on Dask."""
    monkeypatch.setattr("domainwise.estimators.exact_base.DENSE_ROWS", 0)
    monkeypatch.setattr("domainwise.gram.dask.operator.MIN_BLOCKS", 3)


@pytest.mark.usefixtures("_streamed")
@pytest.mark.parametrize("kind", ["three", "regression"])
def test_a_cluster_gives_the_same_result_as_numpy(kind, rows, client):
    p, new = rows(kind), rows(kind, seed=1)
    X, y, domain = p.arrays()
    here = DCM(tol=1e-12).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = DCM(tol=1e-12).fit(X, y, sample_domain=domain)
        embedding = there.embedding_.compute()
        projected = there.transform(new.X)
    assert there.solver_info_["operator"] == "DaskGram"
    assert there.solver_info_["linear_solver"] == "pcg"
    assert there.gamma_ == here.gamma_
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(embedding, here.embedding_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(projected, here.transform(new.X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", [DCM, COIR, DICA, KPCA, SCA, MDA, MIDA])
def test_few_rows_give_the_same_result_as_numpy(method, rows, client):
    p = rows("three")
    X, y, domain = p.arrays()
    here = method().fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = method().fit(X, y, sample_domain=domain)
        np.testing.assert_allclose(there.embedding_.compute(), here.embedding_, atol=1e-10)


@pytest.mark.usefixtures("_streamed")
@pytest.mark.parametrize("method", [COIR, DICA, KPCA, SCA, MDA, MIDA])
def test_the_other_methods_use_block_pairs(method, rows):
    p = rows("three")
    X, y, domain = p.arrays()
    here = method(tol=1e-9, max_iter=400).fit(p.X, p.y, sample_domain=p.domain)
    there = method(tol=1e-9, max_iter=400).fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-7)
    np.testing.assert_allclose(there.embedding_.compute(), here.embedding_, atol=1e-5)


@pytest.mark.usefixtures("_streamed")
def test_a_data_frame_gives_the_same_result_as_an_array(rows):
    import dask.dataframe as dd

    frame = rows("three").frame()
    features = [f"x{i}" for i in range(10)]
    here = DCM(tol=1e-12).fit(frame[features], frame["y"], sample_domain=frame["site"])
    there = DCM(tol=1e-12).fit(dd.from_pandas(frame, npartitions=4), "y", "site")
    assert there.feature_names_in_.tolist() == features
    np.testing.assert_allclose(there.embedding_.compute(), here.embedding_, atol=1e-10)


@pytest.mark.parametrize("name", ["rbf", "linear", "poly", "laplacian", "cosine"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_equal_those_of_the_streamed_operator(name, dtype, monkeypatch):
    monkeypatch.setattr("domainwise.gram.dask.operator.MIN_BLOCKS", 7)
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((230, 5)) + 3).astype(dtype)
    V = rng.standard_normal((230, 3))
    kernel = make_kernel(name, X, gamma="median")
    labels = label_rows(230, Feature(np.arange(230) % 3, 3), None)
    here = StreamedGram(X, kernel, labels)
    there = DaskGram(da.from_array(X, chunks=(100, 2)), kernel, labels)
    assert there.info["n_blocks"] == 7
    single = dtype == np.float32

    def close(a, b, tolerance):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())

    close(there.product(V), here.product(V), 1e-5 if single else 1e-12)
    scale = np.abs(here.uncentred_product(np.eye(230))).max()
    np.testing.assert_allclose(
        there.row_means, here.row_means, rtol=0, atol=scale * (1e-6 if single else 1e-14)
    )
    V -= V.mean(axis=0)
    shift = 0.1 * scale
    close(there.solve(V, shift).X, here.solve(V, shift).X, 1e-3 if single else 1e-5)


@pytest.mark.usefixtures("_streamed")
def test_gamma_follows_the_same_rules(rows):
    p = rows("three")
    X, y, domain = p.arrays()
    for gamma in ("median", "scale", 0.3):
        here = DCM(gamma=gamma).fit(p.X, p.y, sample_domain=p.domain)
        there = DCM(gamma=gamma).fit(X, y, sample_domain=domain)
        assert there.gamma_ == pytest.approx(here.gamma_, rel=1e-14)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_pair_meets_once_and_no_player_twice_in_a_round(n):
    rounds = tournament(n)
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == [(i, j) for i in range(n) for j in range(i + 1, n)]
    for pairs in rounds:
        players = [player for pair in pairs for player in pair]
        assert len(players) == len(set(players))


def test_blocks_are_smaller_if_workers_have_less_memory(monkeypatch):
    X = da.zeros((200_000, 64), chunks=(10_000, 64))
    sizes = []
    for memory in (None, 2**30, 2**26):
        monkeypatch.setattr("domainwise.gram.dask.operator.memory_per_task", lambda m=memory: m)
        sizes.append(in_blocks(X).chunksize[0])
    assert sizes[0] == sizes[1] == 16_384
    assert 256 <= sizes[2] < 5_000


def test_a_model_moved_to_numpy_does_not_need_dask(rows):
    import pickle

    p = rows("three")
    X, y, domain = p.arrays()
    model = DCM().fit(X, y, sample_domain=domain)
    Z = model.transform(p.X)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).transform(p.X), Z, atol=1e-12)
    model.to("numpy")
    assert isinstance(model.X_fit_, np.ndarray)
    assert isinstance(model.embedding_, np.ndarray)
    np.testing.assert_allclose(model.transform(p.X), Z, atol=1e-12)
