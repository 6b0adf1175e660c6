"""The folds of model selection run on a Dask client, with joblib's Dask backend."""

import joblib
import numpy as np
import pytest

from domainwise import DCM, DCMCV, FastDCMCV, evaluate
from domainwise.selection import domain_cross_validate

pytestmark = pytest.mark.dask


@pytest.mark.parametrize("search", [DCMCV, FastDCMCV])
def test_searches_on_workers_and_in_one_process_are_equal(search, rows, client):
    p = rows("three", n_per_domain=15)
    params = dict(gammas=[0.05, 0.2], ridges=[1e-3, 1e-1], domain_weights=[0.0, 0.01])
    here = search(**params).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current(), joblib.parallel_config(backend="dask"):
        there = search(**params, n_jobs=-1).fit(p.X, p.y, sample_domain=p.domain)
    assert there.best_params_ == here.best_params_
    assert there.best_score_ == pytest.approx(here.best_score_, abs=1e-12)
    np.testing.assert_allclose(there.transform(p.X), here.transform(p.X), atol=1e-8)


def test_domains_are_held_out_on_workers(rows, client):
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline

    p = rows("three", n_per_domain=15)
    model = make_pipeline(DCM(), LinearDiscriminantAnalysis())
    here = domain_cross_validate(model, p.X, p.y, p.domain)
    with client.as_current(), joblib.parallel_config(backend="dask"):
        there = domain_cross_validate(model, p.X, p.y, p.domain, n_jobs=-1)
    np.testing.assert_allclose(there.scores, here.scores)


def test_an_evaluation_runs_its_folds_on_workers(rows, client):
    p = rows("three", n_per_domain=15)
    four = p.domain < 4
    given = (p.X[four], p.y[four], p.domain[four])
    options = dict(methods=["constant", "linear", "coir"], progress=False)
    here = evaluate(*given, **options)
    with client.as_current(), joblib.parallel_config(backend="dask"):
        there = evaluate(*given, **options, n_jobs=-1)
    columns = ["method", "mean", "worst"]
    assert there.table()[columns].equals(here.table()[columns])
