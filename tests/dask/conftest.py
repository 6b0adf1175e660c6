"""Clusters of real worker processes, and the problems that are solved on them."""

import os
import warnings

import numpy as np
import pytest

from domainwise.datasets import make_synthetic


def start_cluster(n_workers=2, **options):
    """Return a cluster of single-threaded worker processes, reached over loopback only."""
    import dask
    from distributed import LocalCluster

    # A cluster gives up a worker that is not back in time; a busy machine takes long to start one.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"})
    defaults = dict(threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1")
    return LocalCluster(n_workers=n_workers, **(defaults | options))


@pytest.fixture(scope="session")
def client():
    """Two worker processes; not the default client, so that tests say where they compute."""
    from distributed import Client

    with start_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="session")
def new_cluster():
    """How a test that harms its workers starts its own."""
    return start_cluster


@pytest.fixture(autouse=True)
def _few_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        yield


class Rows:
    """A problem in memory, and the same rows as Dask collections."""

    def __init__(self, kind="classes", n_per_domain=40, seed=0, dtype=np.float64):
        data = make_synthetic(n_per_domain=n_per_domain, random_state=seed)
        X, self.domain = data.data.astype(dtype), data.sample_domain
        self.X, self.y = X, data.target
        if kind == "three":
            self.y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
        elif kind == "regression":
            self.y = X[:, 0] + X[:, 1] ** 2
        elif kind == "outputs":
            self.y = np.column_stack([X[:, 0] + X[:, 1] ** 2, np.sin(X[:, 2])])
        elif kind == "nothing":
            self.y = None

    def __len__(self):
        return len(self.X)

    def frame(self):
        """Return the rows as a pandas data frame with labels as strings."""
        import pandas as pd

        frame = pd.DataFrame(self.X, columns=[f"x{i}" for i in range(self.X.shape[1])])
        frame["y"] = np.array(["no", "yes", "maybe"])[self.y.astype(int) % 3]
        frame["site"] = [f"site {d}" for d in self.domain]
        return frame

    def arrays(self, cuts=(0.2, 0.5, 0.6)):
        """Return X, y and sample_domain as Dask arrays cut at these shares of the rows."""
        import dask.array as da

        ends = [int(cut * len(self)) for cut in cuts]
        chunks = tuple(np.diff([0, *ends, len(self)]).tolist())
        return tuple(
            None if a is None else da.from_array(a, chunks=(chunks, *a.shape[1:]))
            for a in (self.X, self.y, self.domain)
        )


@pytest.fixture(scope="session")
def rows():
    """The class of problems."""
    return Rows


def same_bits(a, b):
    """Assert that two fitted models are the same to the last bit."""
    assert a.gamma_ == b.gamma_
    for name in ("eigenvalues_", "dual_coef_", "_offset"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.fixture(scope="session")
def assert_same_bits():
    return same_bits


@pytest.fixture(scope="session")
def worker_pids():
    """How to ask a client for the process ids of its workers."""
    return lambda client: list(client.run(os.getpid).values())
