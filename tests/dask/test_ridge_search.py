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


def by_decision_values(model, X, y):
    """A scorer of nobody's library: it sees values, and rows count as often as they come."""
    values = model.decision_function(X)
    values = values if values.ndim == 1 else values.max(axis=1)
    return float(np.median(values) + 0.1 * (model.predict(X) == y).mean())


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro", by_decision_values])
def test_a_score_of_classes_takes_one_more_pass(rows, client, scoring):
    p = rows("three")
    model = InvariantRidgeClassifierCV(landmarks=p.X[::9], scoring=scoring, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    with client.as_current():
        there = clone(model).fit(*p.arrays())
    np.testing.assert_allclose(split_scores(there), split_scores(here), atol=1e-10)
    assert there.members_ == here.members_
    np.testing.assert_allclose(there.decision_function(p.X), here.decision_function(p.X), atol=1e-8)


@pytest.mark.parametrize("scoring", ["roc_auc", "accuracy", "matthews_corrcoef"])
def test_so_does_one_of_two_classes(rows, scoring):
    p = rows()
    model = InvariantRidgeClassifierCV(landmarks=p.X[::9], scoring=scoring, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    there = clone(model).fit(*p.arrays(cuts=(0.3, 0.3, 0.7)))  # one partition is empty
    np.testing.assert_allclose(split_scores(there), split_scores(here), atol=1e-10)


@pytest.mark.parametrize(
    "scoring",
    [
        "r2",
        "neg_root_mean_squared_error",
        "neg_mean_absolute_error",
        "neg_mean_squared_error",
        "neg_median_absolute_error",
    ],
)
@pytest.mark.parametrize("kind", ["regression", "outputs"])
def test_a_score_of_numbers_equals_that_of_rows_in_memory(rows, scoring, kind):
    p = rows(kind)
    model = InvariantRidgeCV(landmarks=p.X[::9], scoring=scoring, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    there = clone(model).fit(*p.arrays())
    np.testing.assert_allclose(split_scores(there), split_scores(here), rtol=1e-8)


ODD = {
    "one row in a domain": lambda y, d: (y, np.where(np.arange(len(d)) == 3, 77, d)),
    "a class in one fold only": lambda y, d: (np.where((y == 0) & (d != 2), 1, y), d),
    "a fold that is all of a class": lambda y, d: (np.where(d == 2, 5, y), d),
}


@pytest.mark.filterwarnings("ignore:the score is not defined", "ignore:Only one class")
@pytest.mark.parametrize("scoring", ["balanced_accuracy", "roc_auc"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_domains_and_classes_are_scored_as_in_memory(rows, odd, scoring):
    p = rows("three" if scoring == "balanced_accuracy" else "classes")
    p.y, p.domain = ODD[odd](p.y, p.domain)
    if scoring == "roc_auc":
        p.y = (p.y > 0).astype(int)
    model = InvariantRidgeClassifierCV(landmarks=p.X[::9], scoring=scoring, **GRID)
    here = clone(model).fit(p.X, p.y, sample_domain=p.domain)
    there = clone(model).fit(*p.arrays())
    np.testing.assert_allclose(split_scores(there), split_scores(here), atol=1e-10)


def test_scores_equal_dense_kernel_ridge(rows):
    """Two classes and the invariant kernel of all rows, by matrices of all rows."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score
    from sklearn.metrics.pairwise import rbf_kernel

    p, gamma, alpha, weight = rows(), 0.05, 0.5, 4.0
    point = {"kernels": ["rbf"], "gammas": [gamma], "alphas": [alpha], "domain_weights": [weight]}
    options = {"conditionals": (False,), "landmarks": p.X, "n_average": 1, **point}
    K, t = rbf_kernel(p.X, gamma=gamma), np.where(p.y == p.y.max(), 1.0, -1.0)
    functions = {"balanced_accuracy": balanced_accuracy_score, "roc_auc": roc_auc_score}
    found = {
        name: split_scores(InvariantRidgeClassifierCV(scoring=name, **options).fit(*p.arrays()))
        for name in functions
    }
    share = np.mean([(t[p.domain == d] > 0).mean() for d in np.unique(p.domain)])
    for i, left_out in enumerate(np.unique(p.domain)):
        train, test = p.domain != left_out, p.domain == left_out
        n = train.sum()
        G = (p.domain[train][:, None] == np.unique(p.domain[train])).astype(float)
        G -= G.mean(axis=0)
        P = G @ np.linalg.solve(G.T @ G + n * 1e-3 * np.eye(G.shape[1]), G.T)
        inside = K[np.ix_(train, train)]
        change = weight * P @ np.linalg.inv(np.eye(n) + weight * inside @ P)
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = inside - inside @ change @ inside + alpha * np.eye(n)
        system[n, n] = 0.0
        solution = np.linalg.solve(system, np.append(t[train], 0.0))
        across = K[np.ix_(test, train)]
        values = (across - across @ change @ inside) @ solution[:n] + solution[n]
        assert found["roc_auc"][0, i] == pytest.approx(roc_auc_score(p.y[test], values))
        expected = balanced_accuracy_score(t[test] > 0, (1 + values) / 2 >= share)
        assert found["balanced_accuracy"][0, i] == pytest.approx(expected)


def test_values_of_all_rows_that_do_not_fit_are_refused(rows, monkeypatch):
    monkeypatch.setattr("domainwise.algebra.gram.dask.graphs.memory_per_task", lambda: 1000.0)
    X, y, domain = rows().arrays()
    grid = GRID | {"landmarks": rows().X[::9]}
    with pytest.raises(MemoryError, match="'roc_auc' needs the predictions of all candidates"):
        InvariantRidgeClassifierCV(scoring="roc_auc", **grid).fit(X, y, sample_domain=domain)
    InvariantRidgeClassifierCV(scoring="balanced_accuracy", **grid).fit(X, y, sample_domain=domain)


def test_a_score_of_probabilities_is_refused(rows):
    with pytest.raises(ValueError, match="needs probabilities"):
        InvariantRidgeClassifierCV(scoring="neg_log_loss", **GRID).fit(*rows().arrays())
