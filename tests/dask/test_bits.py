"""The bits of a result do not depend on which worker computed what, or when."""

import pickle

import numpy as np
import pytest

from domainwise import FastCOIR, FastDCM, FastDICA, FastKPCA

dask = pytest.importorskip("dask")

from domainwise.algebra.gram.dask.graphs import (  # noqa: E402
    FAN_IN,
    Constant,
    calls,
    run,
    tree,
    unwrap,
)

pytestmark = pytest.mark.dask

FAST = [FastDCM, FastCOIR, FastDICA, FastKPCA]


@pytest.fixture(scope="module")
def threads():
    """Three workers with two threads each, in this process."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=3, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", ["three", "regression"])
@pytest.mark.parametrize("method", FAST)
def test_results_do_not_depend_on_the_schedule_or_the_number_of_workers(
    method, kind, rows, client, threads, assert_same_bits
):
    p = rows(kind)
    X, y, domain = p.arrays(cuts=np.linspace(0.05, 0.95, 19))

    def fit():
        return method(n_landmarks=60).fit(X, y, sample_domain=domain)

    with dask.config.set(scheduler="synchronous"):
        serial = fit()
    with dask.config.set(scheduler="threads", num_workers=4):
        assert_same_bits(serial, fit())
    for other in (client, threads):
        with other.as_current():
            assert_same_bits(serial, fit())
    one_worker = next(iter(client.scheduler_info()["workers"]))
    with client.as_current(), dask.annotate(workers=[one_worker]):
        assert_same_bits(serial, fit())


@pytest.mark.parametrize("n", [1, 2, FAN_IN, FAN_IN + 1, 3 * FAN_IN**2 + 1])
def test_a_tree_merges_neighbours_in_order(n):
    def merge(parts):
        assert 1 < len(parts) <= FAN_IN
        return [item for part in parts for item in part]

    with dask.config.set(scheduler="synchronous"):
        (merged,) = run([tree(calls(lambda i: [i], [(i,) for i in range(n)]), merge)])
    assert merged == list(range(n))


def test_unaligned_arrays_are_copied_for_blas():
    data = np.arange(40.0).tobytes()
    askew = np.frombuffer(b"." + data, dtype=np.float64, offset=1)
    assert not askew.flags.aligned
    for aligned in (unwrap(askew), unwrap([askew])[0], unwrap((1, askew))[1]):
        assert aligned.flags.aligned
        np.testing.assert_array_equal(aligned, askew)
    sent = pickle.loads(pickle.dumps(Constant({"a": np.arange(7), "b": np.eye(3, order="F")})))
    assert all(array.flags.aligned for array in unwrap(sent).values())
