"""Fits to data that do not fit into the memory of a worker."""

import numpy as np
import pytest

from domainwise import FastDCM
from reproduction.run import peak_mib

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.dask

LIMIT = 512 * 2**20


def test_data_larger_than_the_memory_of_a_worker_is_fitted(new_cluster):
    from distributed import Client

    def block(block_info=None):
        low, high = block_info[None]["array-location"][0]
        rng = np.random.default_rng(low)
        return rng.random((high - low, 100), dtype=np.float32)

    n = 2_000_000
    chunks = (tuple([20_000] * 100), (100,))
    X = da.map_blocks(block, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    assert X.nbytes > LIMIT
    y = (X[:, 0] > 0.5).astype(int)
    domain = da.arange(n, chunks=(chunks[0],)) // 200_000
    with (
        new_cluster(memory_limit=LIMIT) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        model = FastDCM(n_landmarks=20).fit(X, y, sample_domain=domain)
        # Not `ru_maxrss`: a process inherits it from the process that started it, here a test
        # worker, which may have used more memory than any Dask worker.
        peaks = list(client.run(peak_mib).values())
    print(f"{X.nbytes / 2**20:.0f} MiB; peak of the workers: {[round(p) for p in peaks]} MiB")
    assert model.n_samples_seen_ == n
    assert len(model.domains_) == 10
    assert len(peaks) == 2
    # The peaks include interpreter and libraries (about 250 MiB). Dask checks memory only a few
    # times a second, so a worker can exceed its limit for a moment.
    assert max(peaks) < X.nbytes / 2**20 - 128
