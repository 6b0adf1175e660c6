"""Displays draw the results of plain computations, and names in them are text."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from domainwise import KPCA, ShiftWatch
from domainwise.evaluation.plots.sites import reliability
from domainwise.held_out.scoring.statistics import row_interval
from domainwise.metrics import calibration_slope, observed_expected, pool_scores
from domainwise.plots import (
    CalibrationDisplay,
    DecisionCurveDisplay,
    DomainMapDisplay,
    DomainScoresDisplay,
    ForestDisplay,
    ShiftDisplay,
)

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("agg")

NAMES = ["$5 to $6", r"$\nosuch$", "<b>&amp;", "\x1b[2Jx"]


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    domain = np.repeat(["A", "B", "C", "D"], [40, 50, 60, 1])
    X = (
        rng.normal(size=(151, 3))
        + 0.3 * rng.normal(size=(4, 3))[np.repeat(range(4), [40, 50, 60, 1])]
    )
    y = np.where(X[:, 0] + rng.normal(size=151) > 0, "yes", "no")
    return X, y, domain


def test_matplotlib_is_imported_only_by_drawing():
    code = "import sys, domainwise.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Shift


def test_features_are_standardized_with_medians_over_domains(rows):
    X, _, domain = rows
    X[5, 1] = np.nan
    display = ShiftDisplay.from_features(X, domain, new=["C"])
    old = [X[domain == name] for name in "ABD"]
    for j in range(3):
        quartiles = np.array(
            [np.nanquantile(rows_of_domain[:, j], [0.25, 0.5, 0.75]) for rows_of_domain in old]
        )
        scale = np.median(quartiles[:2, 2] - quartiles[:2, 0]) / 1.349  # one row has no spread
        middle = np.median(quartiles[:, 1])
        expected = (np.quantile(X[domain == "C"][:, j], [0.25, 0.5, 0.75]) - middle) / scale
        np.testing.assert_allclose(display.ends[:, 2, j], expected)
    drawn = {tuple(line.get_xdata()) for line in display.ax_.lines}
    order = np.argsort(-np.abs(display.ends[1, 2]), kind="stable")
    assert tuple(display.ends[1, 2, order]) in drawn
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == [f"x{i}" for i in order]


def test_a_domain_in_another_unit_is_far_from_zero_and_hardly_changes_the_others(rows):
    X, _, domain = rows
    before = ShiftDisplay.from_features(X, domain).ends
    X[domain == "B", 2] = 320 + 100 * X[domain == "B", 2]
    display = ShiftDisplay.from_features(X, domain)
    assert abs(display.ends[1, 1, 2]) > 8
    assert display.ax_.get_xscale() == "symlog"
    other_domains = [0, 2, 3]
    np.testing.assert_allclose(
        display.ends[:, other_domains, 2], before[:, other_domains, 2], atol=1.0
    )


def test_columns_without_values_or_variation_are_drawn(rows):
    X, _, domain = rows
    X[:, 0], X[:, 1] = np.nan, 7.0
    display = ShiftDisplay.from_features(X, domain)
    assert np.isnan(display.ends[:, :, 0]).all()
    assert (display.ends[:, :, 1] == 0).all()
    display.figure_.canvas.draw()


def test_columns_that_are_not_numeric_are_omitted(rows):
    pandas = pytest.importorskip("pandas")
    X, y, domain = rows
    frame = pandas.DataFrame(X, columns=["$a$", "b", "c"]).assign(text=y)
    assert ShiftDisplay.from_features(frame, domain).features == ["$a$", "b", "c"]
    integers = pandas.DataFrame({"a": pandas.array([1, None, *range(149)], dtype="Int64")})
    assert np.isfinite(ShiftDisplay.from_features(integers, domain).ends[1]).all()


def test_means_and_deviations_of_new_rows_are_drawn_with_those_of_the_sources(rows):
    X, y, domain = rows
    model = make_pipeline(ShiftWatch(), LogisticRegression()).fit(X, y)
    watch = ShiftWatch().fit(X, sample_domain=domain)
    new = X[:30] + np.array([0.0, 2.0, 0.0])
    for estimator, n in ((watch, 3), (model, 1)):  # the fourth domain has few rows
        display = ShiftDisplay.from_estimator(estimator, new)
        assert len(display.domains) == n + 1
        z = (new - X.mean(axis=0)) / X.std(axis=0)
        expected = [z.mean(axis=0) - z.std(axis=0), z.mean(axis=0), z.mean(axis=0) + z.std(axis=0)]
        np.testing.assert_allclose(display.ends[:, -1], expected, rtol=1e-6)
    assert ShiftDisplay.from_estimator(watch, new, ["x"] * 30).new == ["x"]
    assert ShiftDisplay.from_estimator(watch, new, ["A"] * 30).new == ["A (new)"]


def test_predictions_are_drawn_like_columns_with_their_names(rows):
    X, _, domain = rows
    predictions = {"one": X[:, 0], "two": np.exp(X[:, 1])}
    display = ShiftDisplay.from_predictions(predictions, domain, new=["C"])
    same = ShiftDisplay.from_features(np.column_stack([*predictions.values()]), domain, new=["C"])
    np.testing.assert_array_equal(display.ends, same.ends)
    assert (display.features, display.new) == (["one", "two"], ["C"])
    assert ShiftDisplay.from_predictions(X[:, 0], domain).features == ["prediction"]


@pytest.mark.parametrize("n_domains", [1, 2])
def test_few_domains_are_drawn(rows, n_domains):
    X, y, domain = rows
    mine = np.isin(domain, ["A", "B"][:n_domains])
    X, y, domain = X[mine], y[mine], domain[mine]
    model = LogisticRegression().fit(X, y)
    ShiftDisplay.from_features(X, domain).figure_.canvas.draw()
    DomainMapDisplay.from_predictions(X, domain, y=y).figure_.canvas.draw()
    scores = DomainScoresDisplay.from_estimator(model, X, y, domain)
    scores.figure_.canvas.draw()
    curves = CalibrationDisplay.from_estimator(model, X, y, domain)
    curves.figure_.canvas.draw()
    assert len(scores.order_) == len(curves.curves) == n_domains


def test_only_the_features_that_differ_most_are_drawn():
    X = np.random.default_rng(1).normal(size=(60, 30))
    X[:30, 17] += 5
    display = ShiftDisplay.from_features(X, np.repeat([0, 1], 30), max_features=4)
    assert len(display.ax_.get_yticks()) == 4
    assert display.ax_.get_yticklabels()[0].get_text() == "x17"
    assert "the 4 features (of 30) that" in display.ax_.get_title()


# Scores


def test_scores_and_intervals_are_computed_for_each_domain(rows):
    X, y, domain = rows
    model = LogisticRegression().fit(X, y)
    display = DomainScoresDisplay.from_estimator(model, X, y, domain, scoring="balanced_accuracy")
    told, rng = model.predict(X), np.random.default_rng(7)
    for name in "ABC":
        mine = np.flatnonzero(domain == name)
        score = balanced_accuracy_score(y[mine], told[mine])
        assert display.scores["LogisticRegression"][name] == pytest.approx(score)
        draws = [rng.choice(mine, len(mine)) for _ in range(1000)]
        ends = np.quantile([balanced_accuracy_score(y[r], told[r]) for r in draws], [0.025, 0.975])
        np.testing.assert_allclose(display.intervals["LogisticRegression"][name], ends, atol=0.04)
    known = display.scores["LogisticRegression"]
    assert display.order_ == sorted(known, key=known.get)


def test_a_domain_without_a_score_is_drawn_last_and_marked(rows):
    X, y, domain = rows
    model = LogisticRegression().fit(X, y)
    display = DomainScoresDisplay.from_predictions(
        y == "yes", model.decision_function(X), domain, metric=roc_auc_score
    )
    assert np.isnan(display.scores["predictions"]["D"])
    assert display.order_[-1] == "D"
    assert display.ax_.get_yticklabels()[-1].get_text() == "D (no score)"
    auc = roc_auc_score(y[:40] == "yes", model.decision_function(X)[:40])
    assert display.scores["predictions"]["A"] == pytest.approx(auc)


def test_the_largest_error_is_drawn_on_top(rows):
    X, _, domain = rows
    y = X[:, 0] + np.where(domain == "B", 3.0, 0.1) * X[:, 1]
    told = {"ridge": LinearRegression().fit(X, y).predict(X), "zero": np.zeros(len(y))}
    display = DomainScoresDisplay.from_predictions(y, told, domain)
    assert display.order_[0] == "B"
    assert not display.greater_is_better
    error = np.sqrt(np.mean((y - told["ridge"])[domain == "A"] ** 2))
    assert display.scores["ridge"]["A"] == pytest.approx(error)
    by_model = DomainScoresDisplay.from_estimator(
        {"ridge": LinearRegression().fit(X, y)}, X, y, domain
    )
    assert by_model.scores["ridge"] == pytest.approx(display.scores["ridge"])


def test_a_class_that_only_the_model_knows_is_accepted(rows):
    X, y, domain = rows
    model = LogisticRegression().fit(X, y)
    some = (y == "no") | (domain == "A")
    display = DomainScoresDisplay.from_estimator(
        model, X[some], y[some], domain[some], scoring="accuracy"
    )
    assert set(display.scores["LogisticRegression"]) >= {"A", "B", "C"}


def test_an_interval_is_undefined_if_most_samples_have_no_score():
    def score(rows):
        raise ValueError("never")

    assert np.isnan(row_interval(score, np.arange(5))).all()
    assert np.isnan(row_interval(lambda rows: 1.0, np.arange(5))).all()  # nobody is that sure


# Calibration


def test_the_calibration_error_is_the_mean_difference_over_bins():
    rng = np.random.default_rng(3)
    p = rng.uniform(size=600)
    hit = rng.uniform(size=600) < p**2
    found = reliability(p, hit, n_bins=10)
    order, total = np.argsort(p), 0.0
    for k, part in enumerate(np.array_split(order, 10)):
        total += len(part) / 600 * abs(p[part].mean() - hit[part].mean())
        assert found.predicted[k] == pytest.approx(p[part].mean(), abs=2e-3)
        assert found.observed[k] == pytest.approx(hit[part].mean(), abs=2e-2)
    assert found.error == pytest.approx(total, abs=3e-3)
    assert found.rows.sum() == 600


def test_equal_probabilities_share_a_bin_and_few_rows_form_one_bin():
    found = reliability(np.full(90, 0.3), np.arange(90) % 2)
    np.testing.assert_allclose([found.predicted, found.observed], [[0.3], [0.5]])
    assert len(reliability(np.linspace(0, 1, 20), np.ones(20)).rows) == 1


def test_calibration_is_for_the_positive_class_or_the_predicted_class(rows):
    X, y, domain = rows
    model = LogisticRegression().fit(X, y)
    display = CalibrationDisplay.from_estimator(model, X, y, domain)
    p = model.predict_proba(X)
    expected = reliability(p[:50, 1][domain[:50] == "A"], y[:40] == "yes").error
    assert display.curves["A"].error == pytest.approx(expected)
    assert display.about == "yes"
    other = CalibrationDisplay.from_predictions(y, p[:, 0], domain, pos_label="no")
    assert other.about == "no"
    assert other.curves["B"].error == pytest.approx(display.curves["B"].error, abs=0.05)
    three = np.where(X[:, 1] > 1, "maybe", y)
    many = LogisticRegression().fit(X, three)
    sure = many.predict_proba(X).max(axis=1)[domain == "C"]
    right = (many.predict(X) == three)[domain == "C"]
    found = CalibrationDisplay.from_estimator(many, X, three, domain)
    assert found.curves["C"].error == pytest.approx(reliability(sure, right).error)
    assert found.about == "the predicted class"


def test_the_worst_site_and_all_sites_together_are_marked():
    rng = np.random.default_rng(0)
    domain, p = np.repeat(np.arange(40), 30), rng.uniform(size=1200)
    y = rng.uniform(size=1200) < p
    y[domain == 7] = 1 - y[domain == 7]
    display = CalibrationDisplay.from_predictions(y, p, domain)
    texts = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    ratio, slope = observed_expected(y, p, domain), calibration_slope(y, p, domain)
    assert texts == [
        f"7: O/E {ratio.sites[7].value:.2f}, slope {slope.sites[7].value:.2f}",
        "39 other sites",
        f"all sites: O/E {ratio.value:.2f}, slope {slope.value:.2f}",
    ]
    np.testing.assert_array_equal(display.pooled.predicted, reliability(p, y).predicted)
    assert len(display.ax_.lines) == 1 + 40 + 1  # diagonal, sites, all sites


def test_decision_curves_show_each_site_and_the_mean():
    y, p, site = [0, 1, 0, 1], [0.1, 0.6, 0.4, 0.9], ["A", "A", "B", "B"]
    display = DecisionCurveDisplay.from_predictions(
        y, p, site, thresholds=[0.2, 0.5], threshold=0.2
    )
    np.testing.assert_allclose(display.curves.sites["B"], [0.5 - 0.5 * 0.25, 0.5])
    np.testing.assert_allclose(display.curves.mean, [(0.5 + 0.375) / 2, 0.5])
    drawn = [list(line.get_ydata()) for line in display.ax_.lines]
    assert display.curves.mean.tolist() in drawn
    assert {"treat all", "treat nobody", "threshold 0.2"} <= set(_texts(display.figure_))
    yes = DecisionCurveDisplay.from_predictions(
        ["no", "yes", "no", "yes"], p, site, pos_label="yes"
    )
    assert len(yes.curves.thresholds) == 99


def test_a_forest_plot_is_sorted_and_has_a_diamond_and_a_bar():
    rng = np.random.default_rng(1)
    scores = {f"site {i}": 5.0 + rng.normal() for i in range(6)} | {"empty": np.nan}
    errors = dict.fromkeys(scores, 0.4)
    display = ForestDisplay.from_scores(
        scores, errors, label="RMSE", greater_is_better=False, notes={"site 0": "412 (29)"}
    )
    known = {name: score for name, score in scores.items() if name != "empty"}
    assert display.order_ == [*sorted(known, key=known.get, reverse=True), "empty"]
    assert display.intervals["site 0"] == pytest.approx(
        (scores["site 0"] - 1.96 * 0.4, scores["site 0"] + 1.96 * 0.4), abs=1e-4
    )
    expected = pool_scores(list(known.values()), [0.4] * 6)
    assert display.pooled.mean == expected.mean
    bar = display.ax_.patches[-1]
    assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx(expected.true_range)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == [*display.order_, "pooled mean", "new site (90 %)"]
    texts = _texts(display.figure_)
    assert any(text.endswith("412 (29)") for text in texts)
    assert "no score" in texts


def test_with_many_sites_the_worst_and_the_best_have_a_row():
    scores = {i: 0.5 + 0.01 * i for i in range(25)}
    display = ForestDisplay.from_scores(scores, dict.fromkeys(scores, 0.02), chance=0.5)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[:12] == [*map(str, range(10)), "5 other sites", "15"]
    assert len(labels) == 10 + 1 + 10 + 2
    display.figure_.canvas.draw()
    with pytest.raises(ValueError, match="errors contains 'x', which is unknown"):
        ForestDisplay.from_scores({"a": 0.5}, {"x": 0.1})


# Maps


def test_a_map_draws_the_rows_of_each_domain_at_their_coordinates(rows):
    X, y, domain = rows
    model = KPCA(2).fit(X)
    display = DomainMapDisplay.from_estimator(model, X, domain, y=y, highlight=["B"])
    np.testing.assert_allclose(display.Z, model.transform(X))
    drawn = [c.get_offsets() for c in display.ax_.collections if len(c.get_offsets())]
    points = np.concatenate(drawn[:-1])
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(display.Z, axis=0))
    np.testing.assert_allclose(np.asarray(drawn[-1]), display.Z[domain == "B"])
    labels = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert labels == ["A", "B", "C", "D", "class no", "class yes"]


def test_projected_rows_are_drawn_unchanged(rows):
    X, _, domain = rows
    np.testing.assert_array_equal(DomainMapDisplay.from_predictions(X, domain).Z, X[:, :2])


def test_numbers_have_a_scale_and_many_domains_are_grey():
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(400, 2)), np.repeat(np.arange(40), 10)
    display = DomainMapDisplay.from_predictions(X, domain, y=X[:, 0], color_by="target")
    assert len(display.figure_.axes) == 2
    display = DomainMapDisplay.from_predictions(X, domain, highlight=[7])
    labels = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert labels == ["7", "39 other domains"]


def test_a_single_component_lies_on_a_line(rows):
    X, _, domain = rows
    assert not DomainMapDisplay.from_estimator(KPCA(1).fit(X), X, domain).Z[:, 1].any()


# All


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_are_text_in_every_display(rows):
    X, y, _ = rows
    domain = np.resize(NAMES, len(X))
    y = np.where(y == "yes", r"$\frac$", "$x$")
    model = LogisticRegression().fit(X, y)
    displays = [
        ShiftDisplay.from_features(X, domain),
        DomainScoresDisplay.from_estimator({"$m$": model}, X, y, domain),
        DomainMapDisplay.from_predictions(X, domain, y=y),
        CalibrationDisplay.from_estimator(model, X, y, domain),
        ForestDisplay.from_scores({"$5 to $6": 0.5, "b": 0.6}, {"$5 to $6": 0.1, "b": 0.1}),
    ]
    for display in displays:
        display.figure_.canvas.draw()  # a formula that cannot be read would raise
        assert "$5 to $6" in str(_texts(display.figure_))


def _texts(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def test_plots_are_drawn_on_the_axes_that_are_passed(rows):
    X, y, domain = rows
    figure, (left, right) = plt.subplots(1, 2)
    display = DomainMapDisplay.from_predictions(X, domain, ax=left)
    assert (display.ax_, display.figure_) == (left, figure)
    model = LogisticRegression().fit(X, y)
    assert CalibrationDisplay.from_estimator(model, X, y, domain, ax=right).ax_ is right
    assert left.get_legend() is not None
    again = display.plot()
    assert again.figure_ is not figure


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, y, d: ShiftDisplay.from_features(X, d[:9]), "sample_domain has 9 .* 151"),
        (lambda X, y, d: ShiftDisplay.from_features(X, None), "sample_domain is required"),
        (
            lambda X, y, d: ShiftDisplay.from_features(y, d),
            "X must be a non-empty 2-D array of numbers",
        ),
        (
            lambda X, y, d: ShiftDisplay.from_features(X, d, new=["Z"]),
            "new contains 'Z', which is unknown. Use only: A, B",
        ),
        (
            lambda X, y, d: ShiftDisplay.from_features(X, d, new=[*"ABCD"]),
            "contains all domains. Remove the source domains",
        ),
        (
            lambda X, y, d: ShiftDisplay.from_features(X, d, highlight=["Z"]),
            "highlight contains 'Z'",
        ),
        (lambda X, y, d: ShiftDisplay.from_predictions(y, d), "y_pred must contain numbers"),
        (lambda X, y, d: ShiftDisplay.from_predictions(X[:9, 0], d), "151 entries, but y_pred has"),
        (lambda X, y, d: ShiftDisplay.from_predictions(X[:, 0] * np.inf, d), "y_pred has 151 m"),
        (lambda X, y, d: ShiftDisplay.from_features(X, d, max_features=0), "max_features"),
        (
            lambda X, y, d: ShiftDisplay.from_features(X, d, ax=3),
            "ax must be matplotlib axes or None; got 3",
        ),
        (
            lambda X, y, d: ShiftDisplay.from_estimator(KPCA().fit(X), X),
            "stores no statistics of its source domains",
        ),
        (lambda X, y, d: DomainMapDisplay.from_predictions(X, d, color_by="x"), "color_by"),
        (lambda X, y, d: DomainMapDisplay.from_predictions(X, d, color_by="target"), "needs y"),
        (lambda X, y, d: DomainMapDisplay.from_predictions(X, d, y=y[:3]), "y has 3 entries"),
        (
            lambda X, y, d: DomainMapDisplay.from_estimator(DummyClassifier(), X, d),
            "DummyClassifier has no transform method",
        ),
        (
            lambda X, y, d: DomainScoresDisplay.from_predictions(y, y[:4], d),
            "y_pred has 4 entries, but y_true has 151",
        ),
        (lambda X, y, d: DomainScoresDisplay.from_predictions(y, y, d, metric="x"), "metric"),
        (
            lambda X, y, d: DomainScoresDisplay.from_predictions(y, y, d, highlight=["x"]),
            "highlight contains 'x', which is unknown. Use only: predictions",
        ),
        (
            lambda X, y, d: DomainScoresDisplay.from_predictions(X[:, 0], X[:, 0] * np.nan, d),
            "y_pred of 'predictions' contains NaN",
        ),
        (lambda X, y, d: DomainScoresDisplay.from_predictions(y, {}, d), "y_pred is empty"),
        (lambda X, y, d: DomainScoresDisplay.from_predictions([], [], []), "y_true is empty"),
        (
            lambda X, y, d: DomainScoresDisplay.from_estimator({}, X, y, d),
            "estimator must be one or more classifiers",
        ),
        (
            lambda X, y, d: DomainScoresDisplay.from_estimator(KPCA().fit(X), X, y, d),
            "must be one or more classifiers, or one or more regressors; got KPCA",
        ),
        (
            lambda X, y, d: DomainScoresDisplay.from_estimator(
                LogisticRegression().fit(X, y), X[:9], y, d
            ),
            "X has 9 entries, but y has 151",
        ),
        (
            lambda X, y, d: CalibrationDisplay.from_predictions(y, X[:, 0] * np.nan, d),
            "y_prob contains NaN",
        ),
        (
            lambda X, y, d: CalibrationDisplay.from_predictions(X[:, 0], y, d),
            "y_prob must contain numbers between 0 and 1; got text",
        ),
        (
            lambda X, y, d: CalibrationDisplay.from_predictions(
                y, np.full(151, 0.5), d, classes=["no", "maybe"]
            ),
            "class 'yes' is unknown. The classes are 'no', 'maybe'",
        ),
        (lambda X, y, d: DomainMapDisplay.from_predictions(X * np.nan, d), "Z contains NaN"),
        (
            lambda X, y, d: CalibrationDisplay.from_predictions(y, X[:, 0], d),
            "y_prob must contain probabilities between 0 and 1; got values from -",
        ),
        (
            lambda X, y, d: CalibrationDisplay.from_predictions(y, np.full((151, 3), 0.3), d),
            "y_prob has 3 columns, but there are 2 classes: no, yes",
        ),
        (
            lambda X, y, d: CalibrationDisplay.from_estimator(LinearRegression(), X, y, d),
            "LinearRegression has no predict_proba method",
        ),
    ],
)
def test_bad_arguments_are_named(rows, call, words):
    with pytest.raises(ValueError, match=words):
        call(*rows)
