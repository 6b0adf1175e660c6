"""BLAS uses one thread for few rows, and the caller's number of threads is restored."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

from domainwise import DCM, KPCA, InvariantKernel, InvariantSVC
from domainwise.base.process import n_threads
from domainwise.estimators.projections import projection
from domainwise.selection import InvariantSearchCV


def noted(seen, function):
    """Return a function that also records the number of threads."""

    def noting(*given):
        seen.add(n_threads())
        return function(*given)

    return noting


def with_kernel(method):
    return lambda seen: method(kernel=noted(seen, rbf_kernel))


def scored(seen):
    return noted(seen, lambda model, X, y: accuracy_score(y, model.predict(X)))


ESTIMATORS = {
    **{each.__name__: with_kernel(each) for each in (DCM, KPCA, InvariantKernel, InvariantSVC)},
    "InvariantSearchCV": lambda seen: InvariantSearchCV(
        InvariantSVC(), {"C": [1.0, 10.0]}, scoring=scored(seen)
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("most", "small"), [(100, True), (99, False)])
def test_the_number_of_threads_depends_on_the_number_of_rows(name, most, small, monkeypatch):
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(100, 3)), np.arange(100) % 4
    y = (X[:, 0] > 0).astype(int)
    thread_counts = set()
    monkeypatch.setattr(projection, "SMALL_ROWS", most)
    with threadpool_limits(2):
        before = n_threads()
        model = ESTIMATORS[name](thread_counts).fit(X, y, sample_domain=domain)
        getattr(model, "predict" if hasattr(model, "predict") else "transform")(X)
        assert thread_counts == {1 if small else before}
        assert n_threads() == before
    thread_counts.clear()
    with threadpool_limits(1):  # the caller's limit is not exceeded
        ESTIMATORS[name](thread_counts).fit(X, y, sample_domain=domain)
        assert thread_counts == {1}


def frames():
    X = np.random.default_rng(0).normal(size=(100, 3))
    polars, pandas, arrow = (pytest.importorskip(n) for n in ("polars", "pandas", "pyarrow"))
    table = pandas.DataFrame(X, columns=list("abc"))
    return [X, X.tolist(), table, polars.from_pandas(table), arrow.Table.from_pandas(table)]


@pytest.mark.parametrize(("most", "small"), [(100, True), (99, False)])
def test_rows_are_counted_in_every_kind_of_table(most, small, monkeypatch):
    monkeypatch.setattr(projection, "SMALL_ROWS", most)
    with threadpool_limits(2):
        before = n_threads()
        for X in frames():
            with projection.one_thread_if_small(X):
                assert n_threads() == (1 if small else before)


@pytest.mark.parametrize("X", [None, 3, np.zeros(()), "text"])
def test_inputs_without_rows_are_left_to_other_checks(X):
    with projection.one_thread_if_small(X):
        assert n_threads() >= 1
