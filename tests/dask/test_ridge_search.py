"""Ridge searches on Dask collections and Parquet files: the same as in memory, whatever fails."""

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.distributed.fit import fit_parquet

pytestmark = pytest.mark.dask

GRID = {"gammas": [0.02, 0.1], "alphas": [0.1, 2.0], "domain_weights": [0.0, 3.0], "n_average": 5}
FEATURES = [f"x{i}" for i in range(10)]


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_arrays_on_dask_equal_arrays_in_memory(rows, client, class_weight):
    p = rows("three")
    model = InvariantRidgeClassifierCV(landmarks=p.X[::9], class_weight=class_weight, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    X, y, domain = p.arrays()
    with client.as_current():
        there = clone(model).fit(X, y, sample_domain=domain)
        predicted, values = there.predict(X).compute(), there.decision_function(X).compute()
    assert there.members_ == here.members_
    np.testing.assert_allclose(
        there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-9
    )
    np.testing.assert_allclose(values, here.decision_function(p.X), atol=1e-8)
    here.curve_ = None  # sums do not calibrate probabilities, from which classes are predicted
    np.testing.assert_array_equal(predicted, here.predict(p.X))


def test_several_numbers_equal_those_in_memory(rows):
    p = rows("outputs")
    model = InvariantRidgeCV(landmarks=p.X[::9], **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    X, y, domain = p.arrays()
    there = clone(model).fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(there.predict(X).compute(), here.predict(p.X), atol=1e-8)


def test_files_are_searched_as_the_rows_in_them(rows, client, tmp_path, monkeypatch):
    import dask.dataframe as dd

    frame = rows("three").frame()
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(tmp_path / f"{i}.parquet", row_group_size=40)
    model = InvariantRidgeClassifierCV(landmarks=frame[FEATURES].to_numpy()[::9], **GRID)
    here = clone(model).fit(frame[FEATURES], frame["y"], sample_domain=frame["site"])
    there = fit_parquet(clone(model), tmp_path, target="y", domain="site", client=client)
    assert there.feature_names_in_.tolist() == FEATURES
    assert there.domains_.tolist() == here.domains_.tolist()
    np.testing.assert_allclose(
        there.decision_function(frame[FEATURES]), here.decision_function(frame[FEATURES]), atol=1e-8
    )
    read, here.curve_ = dd.read_parquet(tmp_path), None  # sums do not calibrate probabilities
    assert there.predict(read).compute().tolist() == here.predict(frame[FEATURES]).tolist()
    monkeypatch.setattr("domainwise.distributed.parquet.PARTITION_BYTES", 1)
    finer = fit_parquet(clone(model), tmp_path, target="y", domain="site")
    assert finer.members_ == there.members_


def test_what_needs_rows_again_is_refused(rows):
    X, y, domain = rows("three").arrays()
    with pytest.raises(ValueError, match="a fit to partitions does not store"):
        InvariantRidgeClassifierCV(cv=3, **GRID).fit(X, y, sample_domain=domain)
    with pytest.raises(ValueError, match=r"The data contain only one domain \(0\)"):
        InvariantRidgeClassifierCV(**GRID).fit(X, y)


def test_a_failing_partition_is_named_and_the_model_left_alone(rows):
    p, bad = rows("three"), rows("three")
    bad.X[len(p) // 2, 3] = np.nan
    model = InvariantRidgeClassifierCV(landmarks=p.X[::9], **GRID).fit(*p.arrays())
    before = model.decision_function(p.X)
    with pytest.raises(ValueError, match="partition 2: Input X contains NaN"):
        model.fit(*bad.arrays(cuts=(0.2, 0.4, 0.7)))
    np.testing.assert_array_equal(model.decision_function(p.X), before)


def split_scores(model):
    results = model.cv_results_
    return np.column_stack([results[f"split{i}_test_score"] for i in range(model.n_splits_)])


@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error", "neg_mean_squared_error"])
@pytest.mark.parametrize("kind", ["regression", "outputs"])
def test_a_score_of_numbers_equals_that_of_rows_in_memory(rows, scoring, kind):
    p = rows(kind)
    model = InvariantRidgeCV(landmarks=p.X[::9], scoring=scoring, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    there = clone(model).fit(*p.arrays())
    np.testing.assert_allclose(split_scores(there), split_scores(here), rtol=1e-8)


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "roc_auc", "neg_log_loss"])
def test_a_score_that_needs_predictions_is_refused(rows, scoring):
    with pytest.raises(ValueError, match="but a fit to partitions does not store rows"):
        InvariantRidgeClassifierCV(scoring=scoring, **GRID).fit(*rows().arrays())
