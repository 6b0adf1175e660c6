"""If workers die or files are damaged, results are identical or an error says where."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import FastDCM, InvariantRidgeClassifierCV

pytest.importorskip("distributed")

from domainwise.distributed.fit import fit_parquet
from domainwise.distributed.parquet import read_piece

pytestmark = pytest.mark.dask

#: Seconds after which a fit is assumed to hang; on a busy machine, restarting workers takes long.
PATIENCE = 400


@pytest.fixture(scope="module")
def doomed(new_cluster):
    """Return the client of a cluster whose workers the tests kill."""
    from distributed import Client

    with new_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def slowed(collection, seconds):
    """Return a Dask array whose blocks are computed slowly."""

    def wait(block):
        time.sleep(seconds)
        return block

    return collection.map_blocks(wait, dtype=collection.dtype, meta=np.empty((0, 0)))


def fit_while(client, slow_fit, harm, *tasks):
    """Fit in a thread, and call ``harm`` when some tasks are finished.

    ``slow_fit`` gets the number of seconds per block. If the fit ends too early, it is repeated
    with slower blocks.
    """
    for seconds in (0.1, 0.5, 2.5):
        fitted, under_way = fit_harmed(client, lambda s=seconds: slow_fit(s), harm, tasks)
        if under_way:
            return fitted
    raise AssertionError("the fit ended before workers could be killed")


def fit_harmed(client, fit, harm, tasks):
    """Return the fitted model, and whether the fit was running when ``harm`` was called."""
    tasks = tasks or ("partial_sums", "diagonal_product", "add_pair")
    fitted, failure = [], []

    def fit_there():
        try:
            with client.as_current():
                fitted.append(fit())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=fit_there)
    thread.start()

    def n_done(dask_scheduler):
        # Workers have results in memory: the pass is running.
        from dask.utils import key_split

        done = [ts for ts in dask_scheduler.tasks.values() if ts.state == "memory"]
        return sum(key_split(ts.key) in tasks for ts in done)

    deadline = time.monotonic() + PATIENCE
    while not client.run_on_scheduler(n_done) and thread.is_alive():
        assert time.monotonic() < deadline, "no task was done"
        time.sleep(0.02)
    under_way = thread.is_alive()
    if under_way:
        harm()
    thread.join(timeout=PATIENCE)
    assert not thread.is_alive(), "the fit did not come back"
    if failure:
        raise failure[0]
    return fitted[0], under_way


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how_many", [1, 2])
def test_a_fit_survives_the_death_of_workers_with_the_same_bits(
    how_many, rows, doomed, worker_pids, assert_same_bits
):
    p = rows("three")
    X, y, domain = p.arrays(cuts=np.linspace(0.05, 0.95, 19))
    undisturbed = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    doomed.wait_for_workers(2, timeout=PATIENCE)
    pids = worker_pids(doomed)[:how_many]
    model = FastDCM(n_landmarks=60)
    harmed = fit_while(doomed, lambda s: model.fit(slowed(X, s), y, domain), lambda: kill(pids))
    assert_same_bits(undisturbed, harmed)
    assert_gone(pids)


@pytest.mark.parametrize("how_many", [1, 2])
def test_a_fit_of_files_survives_as_well(
    how_many, rows, doomed, worker_pids, assert_same_bits, monkeypatch, tmp_path
):
    rows("three").frame().to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    monkeypatch.setattr("domainwise.distributed.parquet.PARTITION_BYTES", 1)

    def fit():
        return fit_parquet(FastDCM(n_landmarks=60), tmp_path, target="y", domain="site")

    undisturbed = fit()
    doomed.wait_for_workers(2, timeout=PATIENCE)
    pids = worker_pids(doomed)[:how_many]

    def slow_fit(seconds):
        def slow_read(piece, columns):
            time.sleep(seconds)
            return read_piece(piece, columns)

        monkeypatch.setattr("domainwise.distributed.parquet.read_piece", slow_read)
        return fit()

    harmed = fit_while(doomed, slow_fit, lambda: kill(pids))
    assert undisturbed.solver_info_["n_partitions"] == 21
    assert_same_bits(undisturbed, harmed)
    assert_gone(pids)


@pytest.mark.parametrize("how_many", [1, 2])
def test_a_ridge_search_survives_as_well(how_many, rows, doomed, worker_pids):
    X, y, domain = rows("three").arrays(cuts=np.linspace(0.05, 0.95, 19))
    grid = {"gammas": [0.1], "alphas": [0.1, 2.0]}
    model = InvariantRidgeClassifierCV(n_landmarks=60, **grid)
    undisturbed = clone(model).fit(X, y, sample_domain=domain)
    doomed.wait_for_workers(2, timeout=PATIENCE)
    pids = worker_pids(doomed)[:how_many]

    def slow_fit(seconds):
        return clone(model).fit(slowed(X, seconds), y, domain)

    harmed = fit_while(doomed, slow_fit, lambda: kill(pids), "partial_sums")
    assert_gone(pids)
    for name, scores in undisturbed.cv_results_.items():
        np.testing.assert_array_equal(harmed.cv_results_[name], scores)
    for one, other in zip(undisturbed.expansions_, harmed.expansions_, strict=True):
        np.testing.assert_array_equal(one.dual, other.dual)
        np.testing.assert_array_equal(one.intercept, other.intercept)


def test_a_failing_partition_is_named_and_the_model_left_alone(rows, client):
    p = rows("three")
    bad = rows("three")
    bad.X[len(p) // 2, 3] = np.nan
    model = FastDCM(n_landmarks=60).fit(*p.arrays())
    before = model.transform(p.X)
    with client.as_current(), pytest.raises(ValueError, match="partition 2: Input X contains NaN"):
        model.fit(*bad.arrays(cuts=(0.2, 0.4, 0.7)))
    np.testing.assert_array_equal(model.transform(p.X), before)


def assert_gone(pids):
    """Wait until the processes have ended."""
    deadline = time.monotonic() + PATIENCE
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker that was killed is alive"
        time.sleep(0.02)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
