"""Settings of the process are restored after blocks of code that overlap."""

import csv
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from domainwise import InvariantRidgeCV
from domainwise.base import process


def overlap(first, second):
    """Run the blocks so that the first one also ends first; yield while only the second runs."""
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    yield
    second.__exit__(None, None, None)


@pytest.mark.parametrize("block", [process.single_blas_thread, process.one_thread])
def test_blas_uses_one_thread_until_the_last_block_ends(block):
    with threadpool_limits(2, user_api="blas"):
        for _ in overlap(process.single_blas_thread(), block()):
            assert process.n_threads() == 1
        assert process.n_threads() == 2
        with block(), block():
            assert process.n_threads() == 1
        assert process.n_threads() == 2


def test_fields_of_csv_files_may_be_as_long_as_the_longest_that_is_being_read():
    limit = csv.field_size_limit()
    for _ in overlap(process.csv_field_size(limit + 2), process.csv_field_size(limit + 1)):
        assert csv.field_size_limit() == limit + 2
    assert csv.field_size_limit() == limit


def test_filters_and_recorders_of_warnings_are_restored():
    filters, show = list(warnings.filters), warnings.showwarning
    first, second = process.filtered_warnings(record=True), process.filtered_warnings(record=True)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        log = first.__enter__()
        other_log = pool.submit(second.__enter__).result()
        warnings.simplefilter("always")
        warnings.warn("mine", stacklevel=1)
        pool.submit(warnings.warn, "of the other thread").result()
        assert [str(w.message) for w in log] == ["mine"]
        assert [str(w.message) for w in other_log] == ["of the other thread"]
        first.__exit__(None, None, None)
        stack.callback(second.__exit__, None, None, None)
    assert warnings.filters == filters
    assert warnings.showwarning is show


def test_figures_that_threads_draw_at_the_same_time_leave_the_users_style():
    mpl = pytest.importorskip("matplotlib")
    before, started, finish = dict(mpl.rcParams), threading.Event(), threading.Event()

    def draw():
        with process.figure_style("ggplot"):
            started.set()
            finish.wait(10)

    with ThreadPoolExecutor(1) as pool:
        with process.figure_style("ggplot"):
            drawing = pool.submit(draw)
            started.wait(0.2)
            assert mpl.rcParams["axes.facecolor"] == "#E5E5E5"
        finish.set()
        drawing.result()
    assert dict(mpl.rcParams) == before


def test_threads_that_fit_and_predict_leave_settings_unchanged():
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(60, 3)), np.arange(60) % 3
    y, barrier = X[:, 0] + 0.1 * rng.normal(size=60), threading.Barrier(4)

    def predict(_):
        barrier.wait()
        return InvariantRidgeCV().fit(X, y, sample_domain=domain).predict(X)

    with threadpool_limits(2, user_api="blas"):
        before = process.n_threads(), list(warnings.filters), warnings.showwarning
        serial = InvariantRidgeCV().fit(X, y, sample_domain=domain).predict(X)
        with ThreadPoolExecutor(4) as pool:
            for values in pool.map(predict, range(8)):
                np.testing.assert_allclose(values, serial, rtol=1e-9)
        assert (process.n_threads(), list(warnings.filters), warnings.showwarning) == before
