"""Few rows are projected by one BLAS thread, and the caller's threads are left as they were."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from domainwise import DCM, KPCA
from domainwise.estimators import projection
from domainwise.gram.tiles import blas_limit, n_threads


@pytest.mark.parametrize("method", [DCM, KPCA])
@pytest.mark.parametrize(("most", "small"), [(100, True), (99, False)])
def test_the_number_of_rows_decides_about_threads(method, most, small, monkeypatch):
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(100, 3)), np.arange(100) % 4
    y = (X[:, 0] > 0).astype(int)
    seen = set()

    def kernel(A, B):
        seen.add(n_threads())
        return rbf_kernel(A, B)

    monkeypatch.setattr(projection, "SMALL_ROWS", most)
    with blas_limit(2):
        before = n_threads()
        method(kernel=kernel).fit(X, y, sample_domain=domain).transform(X)
        assert seen == {1 if small else before}
        assert n_threads() == before
    seen.clear()
    with blas_limit(1):  # more than the caller allows it never is
        method(kernel=kernel).fit(X, y, sample_domain=domain)
        assert seen == {1}
