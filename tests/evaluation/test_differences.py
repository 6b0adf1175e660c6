"""Differences between domains: statistics agree with plain computations."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from domainwise import evaluate
from domainwise.evaluation.faults import MAX_COLUMNS, describe_differences
from domainwise.evaluation.plots.columns import describe_column
from domainwise.evaluation.problem import make_problem

pandas = pytest.importorskip("pandas")

SITES = [f"site {mark}" for mark in "ABCDEF"]
N = 60


def table(seed=0):
    """Six sites; all columns go along with how ill somebody is."""
    rng = np.random.default_rng(seed)
    site = np.repeat(SITES, N)
    ill = rng.normal(size=len(site))
    frame = pandas.DataFrame(
        {
            "temperature": 37 + 0.4 * ill + 0.3 * rng.normal(size=len(site)),
            "weight": 75 + 12 * rng.normal(size=len(site)),
            "balance": ill + 0.5 * rng.normal(size=len(site)),
            "lactate": np.exp(0.5 * ill + 0.3 * rng.normal(size=len(site))),
            "ward": rng.choice(["east", "west"], size=len(site)),
        }
    )
    return frame, np.where(ill + rng.normal(size=len(site)) > 0, "yes", "no"), site


def described(frame, y, site, **options):
    asked = dict(task="auto", scoring=None, max_rows=None, random_state=0) | options
    return describe_differences(make_problem(frame, y, site, **asked))


def test_statistics_of_a_numeric_column_agree_with_a_plain_loop():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [30, 40, 50])
    x = rng.normal(size=120) + 0.6 * codes
    x[rng.random(120) < 0.1] = np.nan
    description = describe_column("x", x, codes, 3)
    there = np.isfinite(x)
    medians = [np.nanmedian(x[codes == d]) for d in range(3)]
    inside = 1.4826 * np.median([abs(x[i] - medians[codes[i]]) for i in np.flatnonzero(there)])
    distances = [abs(medians[d] - np.nanmedian(x[codes != d])) / inside for d in range(3)]
    areas = [roc_auc_score(codes[there] == d, x[there]) for d in range(3)]
    tells = [max(area, 1 - area) for area in areas]
    assert description["missing"] == pytest.approx(
        [np.isnan(x[codes == d]).mean() for d in range(3)]
    )
    assert description["distance"] == pytest.approx(max(distances))
    assert description["distance_at"] == int(np.argmax(distances))
    assert description["tells"] == pytest.approx(max(tells))
    assert description["tells_at"] == int(np.argmax(tells))
    quantiles = np.nanquantile(x[codes == 1], (0.1, 0.25, 0.5, 0.75, 0.9))
    np.testing.assert_allclose(description["quantiles"][1], quantiles)


def test_statistics_of_a_text_column_agree_with_its_shares():
    codes = np.repeat([0, 1], [50, 50])
    x = np.array(["a"] * 40 + ["b"] * 10 + ["a"] * 10 + ["b"] * 40, dtype=object)
    description = describe_column("x", x, codes, 2)
    assert description["distance"] == pytest.approx(0.6)
    # The best order asks for "a" first; ties count half.
    assert description["tells"] == pytest.approx(roc_auc_score(codes == 0, x == "a"))
    assert dict(zip(description["categories"], description["shares"][0], strict=True)) == {
        "a": 0.8,
        "b": 0.2,
    }


def test_a_column_with_two_numbers_is_described_by_shares_of_the_larger_one():
    values = np.r_[np.tile([0.0, 0.0, 0.0, 1.0], 10), np.tile([0.0, 1.0], 20), [np.nan] * 10]
    codes = np.repeat([0, 1, 2], [40, 40, 10])
    entry = describe_column("smoker", values, codes, 3)
    assert (entry["kind"], entry["categories"]) == ("text", ["1", "0"])
    assert entry["shares"] == [[0.25, 0.75], [0.5, 0.5], None]
    assert entry["missing"] == [0.0, 0.0, 1.0]


def test_a_column_that_is_missing_in_one_domain_identifies_it():
    codes = np.repeat([0, 1, 2], 30)
    x = np.random.default_rng(0).normal(size=90)
    x[codes == 2] = np.nan
    description = describe_column("x", x, codes, 3)
    assert (description["tells"], description["tells_at"]) == (1.0, 2)
    assert description["quantiles"][2] is None
    nothing = describe_column("x", np.full(90, np.nan), codes, 3)
    assert (nothing["tells"], nothing["distance"]) == (0.5, 0.0)
    same = describe_column("x", np.ones(90), codes, 3)
    assert (same["tells"], same["distance"]) == (0.5, 0.0)


def test_domains_with_few_values_are_not_identified_by_chance():
    codes = np.repeat([0, 1, 2], [50, 50, 2])
    x = np.random.default_rng(0).normal(size=102)
    x[codes == 2] = 9.0
    assert describe_column("x", x, codes, 3)["tells_at"] != 2


def test_rows_and_classes_of_domains_are_counted():
    frame, y, site = table()
    domains = described(frame, y, site)["domains"]
    for domain in domains:
        mine = y[site == domain["name"]]
        assert domain["rows"] == N
        assert domain["classes"] == [np.sum(mine == "no"), np.sum(mine == "yes")]
    numbers = described(frame, frame["weight"].to_numpy(), site)["domains"]
    expected = np.quantile(frame.loc[site == "site A", "weight"], (0.25, 0.5, 0.75))
    np.testing.assert_allclose(numbers[0]["target"], expected)


def test_only_the_columns_that_identify_domains_best_are_described():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 20)
    X = rng.normal(size=(80, MAX_COLUMNS + 10))
    X[:, -1] += 5 * (codes == 2)
    description = described(X, rng.integers(2, size=80), codes)
    assert description["columns"][0]["name"] == f"x{MAX_COLUMNS + 9}"
    assert (len(description["columns"]), description["others"]) == (MAX_COLUMNS, 10)


def test_the_importance_of_a_column_is_the_loss_when_it_is_shuffled():
    rng = np.random.default_rng(0)
    domain = np.repeat(["a", "b", "c"], 400)
    X = rng.normal(size=(1200, 3))
    y = (X[:, 0] + 0.3 * X[:, 1] + 0.2 * rng.normal(size=1200) > 0).astype(int)
    frame = pandas.DataFrame(X, columns=["much", "little", "none"])
    evaluation = evaluate(frame, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    lost = {name: [] for name in frame}
    for name in np.unique(domain):
        train, rows = domain != name, np.flatnonzero(domain == name)
        model = LogisticRegression().fit(X[train], y[train])
        for j, column in enumerate(frame):
            for _ in range(20):
                other = X[rows].copy()
                other[:, j] = rng.permutation(other[:, j])
                lost[column].append(model.score(X[rows], y[rows]) - model.score(other, y[rows]))
    expected = {name: np.mean(values) for name, values in lost.items()}
    assert evaluation.best.importance == pytest.approx(expected, abs=0.03)
    array = evaluate(X, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    assert list(array.best.importance.values()) == pytest.approx(
        list(evaluation.best.importance.values()), abs=0.03
    )
    assert set(array.best.importance) == {"x0", "x1", "x2"}


def test_a_stored_folder_gives_the_same_page_without_the_rows(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    from domainwise.evaluation.folder import read_evaluation

    frame, y, site = table()
    frame.loc[site == "site C", "temperature"] *= 1000
    options = dict(methods=["constant", "linear"], progress=False, out=tmp_path / "kept")
    evaluation = evaluate(frame, y, site, **options)
    again, _ = read_evaluation(tmp_path / "kept")
    pages = []
    for one in (evaluation, again):
        pages.append(one.report(tmp_path / "page.html").read_text("utf-8"))
        pages.append((tmp_path / "page-sites.csv").read_text("utf-8"))
    assert "the unit may be different" in pages[0]
    assert pages[:2] == pages[2:]
