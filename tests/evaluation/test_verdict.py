"""What is said about scores: who holds up, by how much, and whether that is chance."""

import numpy as np
import pytest

from domainwise.evaluation.evaluate import holm, with_p_values
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.results import MethodResult
from domainwise.scoring.measures import choose_measure

CLASSES = np.array([0, 0, 1, 1])


def evaluation(scores, *, scoring="accuracy", seen=None):
    """An evaluation with these scores: {key: [one score per domain]}."""
    kinds = {"constant": "baseline", "svm": "baseline"}
    classification = not scoring.startswith("neg_")
    results = []
    for key, values in scores.items():
        by_domain = {f"site {i}": value for i, value in enumerate(values)}
        inside = dict.fromkeys(by_domain, np.nan)
        kind = kinds.get(key, "projection")
        known = {} if seen is None else dict.fromkeys(by_domain, seen)
        results.append(MethodResult(key, key.upper(), kind, "", by_domain, inside, seen=known))
    measure = choose_measure(scoring, CLASSES, classification)
    domains = list(results[0].scores)
    return Evaluation(with_p_values(results), domains, measure, {}, {})


SVM = [0.70, 0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77]


def test_a_gain_on_every_domain_is_beyond_chance():
    found = evaluation({"svm": SVM, "dcm": [score + 0.05 for score in SVM]})
    assert found.best.key == "dcm"
    assert found.best.p_value == pytest.approx(2 / 2**8)
    words = found.verdict()
    assert words.startswith("DCM scores accuracy 0.750 on the worst domain (site 0), SVM 0.700")
    assert "The difference is significant (p = 0.008)" in words


def test_a_gain_on_half_of_the_domains_is_not():
    mixed = [score + (0.07 if i % 2 else -0.04) for i, score in enumerate(SVM)]
    words = evaluation({"svm": SVM, "dcm": mixed}).verdict()
    assert "The difference is not significant" in words


def test_many_methods_make_a_small_p_value_a_matter_of_chance():
    gain = [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, -0.01]
    ours = {
        key: [a + b + shift for a, b in zip(SVM, gain, strict=True)]
        for key, shift in (("dcm", 0.0), ("coir", -0.001), ("dica", -0.002), ("kpca", -0.003))
    }
    found = evaluation({"svm": SVM, **ours})
    assert found.best.p_value < 0.05 <= found.best.p_adjusted
    assert "but not after correction for the four methods that were compared" in found.verdict()


def test_five_domains_are_too_few_to_tell():
    found = evaluation({"svm": SVM[:5], "dcm": [score + 0.05 for score in SVM[:5]]})
    assert found.best.p_value is None
    assert "With five domains it cannot be tested" in found.verdict()


def test_a_plain_method_that_wins_is_said_to_win():
    words = evaluation({"svm": SVM, "dcm": [score - 0.05 for score in SVM]}).verdict()
    assert words.startswith("A baseline is best: SVM scores accuracy 0.735")
    assert "The difference is significant" in words


def test_a_constant_that_wins_is_said_to_win():
    words = evaluation({"constant": SVM, "dcm": [score - 0.05 for score in SVM]}).verdict()
    assert words.startswith("No method is better than a constant prediction")


def test_the_best_method_is_compared_with_a_constant_as_well():
    noise = [0.01, -0.01, 0.02, -0.01, 0.01, -0.02, 0.01, 0.0]
    constant = [score - delta for score, delta in zip(SVM, noise, strict=True)]
    words = evaluation({"constant": constant, "svm": SVM}).verdict()
    assert "Warning: SVM is not significantly better than a constant prediction" in words


def test_errors_are_shown_as_errors():
    errors = [-10.0 * score for score in SVM]
    ours = [error + 1.0 for error in errors]
    found = evaluation({"svm": errors, "dcm": ours}, scoring="neg_root_mean_squared_error")
    assert found.worst_domain == "site 7"
    assert found.verdict().startswith("DCM scores RMSE 6.700 on the worst domain (site 7)")


def test_the_generalization_gap_is_given_with_both_scores():
    words = evaluation({"svm": SVM}, seen=0.835).verdict()
    assert "Generalization gap of SVM: 0.100 (0.835 on seen, 0.735 on unseen domains)." in words
    words = evaluation({"svm": SVM}, seen=0.734).verdict()
    assert "Generalization gap of SVM: -0.001 (0.734 on seen, 0.735 on unseen domains)." in words
    better = [score + 0.05 for score in SVM]
    words = evaluation({"svm": SVM, "dcm": better}, seen=0.835).verdict()
    assert (
        "Generalization gap of DCM: 0.050 (0.835 on seen, 0.785 on unseen domains); of SVM: 0.100"
        in words
    )


def test_a_difference_below_the_margin_is_none_in_practice_whatever_its_p():
    found = evaluation({"svm": SVM, "dcm": [score + 0.009 for score in SVM]})
    assert found.best.p_value < 0.05
    assert "whatever the p-value: the means differ by less than 0.010" in found.verdict()
    errors = [-10.0 * score for score in SVM]
    small = [0.985 * error for error in errors]
    found = evaluation({"svm": errors, "dcm": small}, scoring="neg_root_mean_squared_error")
    assert found.margin == pytest.approx(0.02 * 7.35)
    assert "whatever the p-value: the means differ by less than 0.147" in found.verdict()


def test_scores_have_as_many_digits_as_differ():
    found = evaluation({"svm": SVM, "dcm": [score + 0.00004 for score in SVM]})
    assert (found.show(found.best.mean), found.show(SVM[0])) == ("0.73504", "0.70000")
    assert evaluation({"svm": SVM, "dcm": SVM}).show(0.7) == "0.700"
    assert evaluation({"svm": SVM}).show(0.7) == "0.700"


def test_another_method_may_be_best_on_its_worst_domain():
    steady = [0.72] * 8
    assert (
        "DCM has the best score on its worst domain, 0.720"
        in evaluation({"svm": SVM, "dcm": steady}).verdict()
    )


def test_holm_multiplies_by_the_number_of_hypotheses_left():
    assert holm({"a": 0.03, "b": 0.01, "c": 0.02}) == pytest.approx(
        {"b": 0.03, "c": 0.04, "a": 0.04}
    )


def test_small_errors_keep_their_digits():
    found = evaluation(
        {"svm": [-1e-5 * score for score in SVM]}, scoring="neg_root_mean_squared_error"
    )
    assert found.measure.format(-3.3081e-5) == "3.31e-05"
    assert found.measure.format(-0.25) == "0.250"
    assert choose_measure("accuracy", np.arange(2), True).format(0.0001) == "0.000"
    assert "0.000" not in repr(found)


def test_differences_have_the_decimals_of_the_scores_beside_them():
    errors = choose_measure("rmse", np.arange(2.0), False)
    assert [errors.format(-x, like=-0.645) for x in (0.645, 0.0025, -0.0025)] == [
        "0.645", "0.003", "-0.003"
    ]  # fmt: skip
    assert [errors.format(-x, like=-1868.3) for x in (1868.3, 12.34)] == ["1868", "12"]
    assert [errors.format(-x, like=-123.46) for x in (123.46, 0.5)] == ["123.5", "0.5"]
    found = evaluation({"svm": [-s for s in SVM]}, scoring="neg_root_mean_squared_error")
    assert found.show(-0.0025) == "0.003"


def test_methods_that_failed_are_named():
    found = evaluation({"svm": SVM})
    found.left_out["dcm"] = "failed: no memory"
    found.left_out["dica"] = "too many rows"
    assert "because they failed: dcm; the notes give" in found.verdict()
