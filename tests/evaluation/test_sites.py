"""Calibration by site, decision curves, and the number of rows to validate a model."""

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import logit

from domainwise import evaluate
from domainwise.datasets import make_synthetic
from domainwise.evaluation.folder import read_evaluation, write_evaluation
from domainwise.metrics import net_benefit, observed_expected

DATA = make_synthetic(n_domains=5, n_per_domain=60, random_state=0)
X, Y, D = DATA.data, DATA.target, DATA.sample_domain


@pytest.fixture(scope="module")
def evaluation():
    return evaluate(X, Y, D, methods=["linear", "constant"], progress=False)


@pytest.fixture(scope="module")
def predictions(evaluation):
    frame = evaluation.predictions_
    return frame[frame["method"] == "linear"]


def test_calibration_by_site_agrees_with_statsmodels(evaluation, predictions):
    calibration = evaluation.calibration()
    assert calibration.table["domain"].tolist() == [0, 1, 2, 3, 4]
    for row in calibration.table.itertuples():
        rows = predictions[predictions["domain"] == row.domain]
        y, p = (rows["target"] == 1).to_numpy(), rows["probability_1"].to_numpy()
        fit = sm.GLM(y, sm.add_constant(logit(p)), family=sm.families.Binomial()).fit(tol=1e-12)
        assert row.slope == pytest.approx(fit.params[1], abs=1e-6)
        np.testing.assert_allclose([row.slope_low, row.slope_high], fit.conf_int()[1], atol=1e-6)
        assert row.oe == pytest.approx(y.sum() / p.sum())
        assert (row.rows, row.events) == (len(y), y.sum())
    ratio = observed_expected(
        predictions["target"], predictions["probability_1"], predictions["domain"], level=0.9
    )
    pooled = calibration.pooled["oe"]
    for name in ("mean", "mean_interval", "tau_interval", "true_range"):  # rows in another order
        assert getattr(pooled, name) == pytest.approx(getattr(ratio.pooled, name), rel=1e-9)
    assert evaluation.calibration("constant").pooled["slope"] is None  # equal probabilities


def test_decision_curves_are_net_benefits(evaluation, predictions):
    curves = evaluation.decision_curve(thresholds=[0.3, 0.6])
    y, p, site = (predictions[c] for c in ("target", "probability_1", "domain"))
    by_site = net_benefit(y, p, 0.6, site)
    for domain, estimate in by_site.sites.items():
        assert curves.sites[domain][1] == pytest.approx(estimate.value)
        assert curves.treat_all[domain][1] == pytest.approx(estimate.treat_all.value)
    assert len(evaluation.decision_curve().thresholds) == 99


def test_a_threshold_adds_what_the_decision_is_worth(predictions, tmp_path):
    decided = evaluate(X, Y, D, methods=["linear", "constant"], threshold=0.6, progress=False)
    decisions = decided.decision_scores("linear")
    assert decisions.threshold == 0.6
    rows = predictions[predictions["domain"] == 3]
    is_event, treated = rows["target"] == 1, rows["probability_1"] >= 0.6
    row = decisions.table.set_index("domain").loc[3]
    assert (row["rows"], row["events"]) == (len(rows), is_event.sum())
    assert row["sensitivity"] == pytest.approx(np.mean(treated[is_event]))
    assert row["specificity"] == pytest.approx(np.mean(~treated[~is_event]))
    assert row["ppv"] == pytest.approx(np.mean(is_event[treated]))
    assert row["npv"] == pytest.approx(np.mean(~is_event[~treated]))
    true, false = np.mean(is_event & treated), np.mean(~is_event & treated)
    assert row["net_benefit"] == pytest.approx(true - false * 1.5)
    assert row["treat_all"] == pytest.approx(np.mean(is_event) - np.mean(~is_event) * 1.5)
    assert row["ppv_low"] < row["ppv"] < row["ppv_high"]
    stored = write_evaluation(tmp_path, decided)["site_decisions"]
    assert (stored["threshold"], len(stored["sites"])) == (0.6, 5)
    assert stored["pooled"]["ppv"]["n_sites"] == 5
    read_evaluation(tmp_path)
    assert decided.decision_scores(threshold=0.5).threshold == 0.5


def test_a_decision_needs_a_threshold_and_two_classes(evaluation):
    with pytest.raises(ValueError, match="no threshold was passed"):
        evaluation.decision_scores()
    assert evaluation.to_dict()["site_decisions"] is None


def test_rows_to_validate_a_model(evaluation, predictions):
    size = evaluation.validation_size(oe=0.2, slope=0.3, auc=0.05)
    shares = predictions.groupby("domain")["target"].agg(lambda y: np.mean(y == 1))
    share = shares.mean()
    assert size.criteria["oe"] == np.ceil((1 - share) / share * (1.959964 / np.log(1.2)) ** 2)
    # The standard error of a slope in a sample of this size is 0.3 / 1.96.
    rows = pd.concat(
        [group.sample(4000, replace=True, random_state=0) for _, group in
         predictions.groupby("domain")]
    )  # fmt: skip
    p = rows["probability_1"].to_numpy()
    design = sm.add_constant(logit(p))
    information = (design * (p * (1 - p))[:, None]).T @ design
    error = np.sqrt(np.linalg.inv(information)[1, 1] * len(p) / size.criteria["slope"])
    assert error == pytest.approx(0.3 / 1.959964, rel=0.03)
    assert size.rows == max(size.criteria.values())
    assert size.events == np.ceil(size.rows * share)
    assert evaluation.validation_size(auc=0.1).criteria["auc"] < size.criteria["auc"] / 3
    with pytest.raises(ValueError, match="oe must be positive"):
        evaluation.validation_size(oe=0)


def test_the_answer_says_how_many_rows_to_collect(evaluation):
    size = evaluation.validation_size()
    assert evaluation.answer.validation == (
        "To know O/E within a factor of 1.2, the calibration slope within ±0.3 and AUC within "
        f"±0.05 (95 %) at the next site, collect about {size.rows} rows with known values of the "
        f"target (about {size.events} of class 1)."
    )
    assert evaluation.answer.validation in evaluation.verdict()


def test_the_example_of_seven_per_cent_events():
    """1,520 patients with 107 deaths, for a factor of 1.2."""
    share = 107 / 1520
    n = (1 - share) / share * (1.959964 / np.log(1.2)) ** 2
    assert n == pytest.approx(1520, rel=0.01)


def test_several_classes_and_numbers_have_their_own_tables():
    classes = np.digitize(X[:, 0] + 2 * Y, [-1.5, 1.5])
    several = evaluate(X, classes, D, methods=["linear", "constant"], progress=False)
    calibration = several.calibration()
    assert list(calibration.pooled) == [0, 1, 2]
    assert len(calibration.table) == 15
    assert several.validation_size().events >= 1
    with pytest.raises(ValueError, match="two classes"):
        several.decision_curve()
    numbers = evaluate(X, X[:, 0] + D, D, methods=["linear", "constant"], progress=False)
    calibration = numbers.calibration()
    frame = numbers.predictions_
    rows = frame[(frame["method"] == numbers.recommended_) & (frame["domain"] == 4)]
    bias = calibration.table.set_index("domain").loc[4, "bias"]
    assert bias == pytest.approx(np.mean(rows["prediction"] - rows["target"]))
    assert bias < 0
    assert calibration.pooled["bias"].differ
    assert set(numbers.validation_size().criteria) == {"rmse", "slope"}


def test_pooled_scores_and_calibration_are_stored(evaluation, tmp_path):
    content = write_evaluation(tmp_path, evaluation)
    method = content["methods"][0]
    assert method["between_sites"]["tau_interval"] == list(evaluation.between_sites().tau_interval)
    assert content["validation_size"]["rows"] == evaluation.validation_size().rows
    stored = content["site_calibration"]
    assert [row["domain"] for row in stored["sites"]] == [0, 1, 2, 3, 4]
    assert stored["pooled"]["slope"]["n_sites"] == 5
    json.dumps(content)
    read, _ = read_evaluation(tmp_path)
    np.testing.assert_allclose(
        read.between_sites().true_range, evaluation.between_sites().true_range
    )
    with pytest.raises(ValueError, match="probabilities of .* are not available"):
        read.calibration()
