"""The answer in sentences: the recommended method, what to expect, and the confidence."""

import ast
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from scipy import stats

from domainwise.evaluation import verdict
from domainwise.evaluation.constant import compare_with_constant
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.gather import holm, with_p_values
from domainwise.evaluation.plots.style import number_format
from domainwise.evaluation.results import MethodResult, domain_weights
from domainwise.evaluation.verdict import rule
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.statistics import MIN_PAIRS, expected_range, in_words
from domainwise.metrics import pool_scores

CLASSES = np.array([0, 0, 1, 1])


def make_evaluation(scores, *, scoring="accuracy", seen=None, error=None):
    """An evaluation with these scores, {key: [one score per domain]}, and standard errors."""
    kinds = {"constant": "baseline", "svm": "baseline"}
    classification = not scoring.startswith("neg_")
    results = []
    for key, values in scores.items():
        by_domain = {f"site {i}": value for i, value in enumerate(values)}
        inside = dict.fromkeys(by_domain, np.nan)
        kind = kinds.get(key, "projection")
        known = {} if seen is None else dict.fromkeys(by_domain, seen)
        errors = {} if error is None else dict.fromkeys(by_domain, error)
        result = MethodResult(key, key.upper(), kind, "", by_domain, inside, seen=known)
        results.append(replace(result, errors=errors))
    measure = choose_measure(scoring, CLASSES, classification)
    domains = list(results[0].scores)
    evaluation = Evaluation(with_p_values(results), domains, measure, {}, {"classes": None})
    evaluation.row_counts = dict.fromkeys(domains, 200)
    return evaluation


SVM = [0.70, 0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77]


def test_the_best_method_is_recommended_with_its_lead_and_a_p_value():
    evaluation = make_evaluation({"svm": SVM, "dcm": [score + 0.05 for score in SVM]})
    assert evaluation.recommended.key == "dcm"
    assert evaluation.best.p_value == pytest.approx(2 / 2**8)
    assert evaluation.answer.take == "DCM"
    assert evaluation.answer.reason == (
        "best mean accuracy over eight held-out domains, 0.050 better than the SVM; this "
        "difference is statistically significant (p = 0.008)."
    )
    assert evaluation.verdict().startswith("Use DCM: best mean accuracy over")
    mixed = [score + (0.07 if i % 2 else -0.04) for i, score in enumerate(SVM)]
    reason = make_evaluation({"svm": SVM, "dcm": mixed}).answer.reason
    assert "; this difference may be due to chance (p = " in reason
    few = make_evaluation({"svm": SVM[:5], "dcm": [score + 0.05 for score in SVM[:5]]})
    assert few.best.p_value is None
    assert few.answer.reason.endswith("; with five domains, this difference may be due to chance.")
    one = make_evaluation({"svm": SVM[:1], "dcm": [0.8]})
    assert one.answer.reason.endswith("; with one domain, this difference may be due to chance.")


def test_p_values_are_adjusted_for_the_number_of_methods():
    gain = [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, -0.01]
    ours = {
        key: [a + b + shift for a, b in zip(SVM, gain, strict=True)]
        for key, shift in (("dcm", 0.0), ("coir", -0.02), ("dica", -0.02), ("kpca", -0.02))
    }
    evaluation = make_evaluation({"svm": SVM, **ours})
    assert evaluation.best.p_value < 0.05 <= evaluation.best.p_adjusted
    evaluation.results = [result for result in evaluation.results if result.key in ("svm", "dcm")]
    p_value = f"{evaluation.best.p_adjusted:.3f}"
    chance = f"this difference may be due to chance (adjusted p = {p_value})"
    assert chance in evaluation.answer.reason


def test_the_simplest_of_equally_good_methods_is_recommended():
    better = [score + 0.009 for score in SVM]
    evaluation = make_evaluation(
        {"svm": SVM, "ensemble": better, "dcm": [score - 0.02 for score in SVM]}
    )
    assert (evaluation.best.key, evaluation.recommended.key, evaluation.rival.key) == (
        "ensemble",
        "svm",
        "ensemble",
    )
    assert evaluation.answer.reason == (
        "about as good as ENSEMBLE on eight held-out domains (mean accuracy: 0.735 and 0.744); it "
        "is preferred because it is a single model."
    )
    linear = make_evaluation({"linear": SVM, "dcm": better}).answer.reason
    assert linear.endswith("; it is preferred because it is a linear model.")


@pytest.mark.parametrize(
    ("seconds", "ending"),
    [(5.0, "; it is preferred because it took 5 s instead of 10 s."), (6.0, ").")],
)
def test_a_method_is_called_faster_only_if_it_took_half_the_time(seconds, ending):
    better = [score + 0.009 for score in SVM]
    timed = make_evaluation({"svm": SVM, "dcm": better})
    timed.results = [replace(r, seconds={"svm": seconds}.get(r.key, 10.0)) for r in timed.results]
    assert timed.recommended.key == "svm"
    assert timed.answer.reason.endswith(ending)
    assert "simpler" not in timed.answer.reason


def test_a_method_that_is_about_as_good_as_the_best_one_is_called_so():
    better = [score + 0.009 for score in SVM]
    same = make_evaluation({"svm": better, "ensemble": SVM}).answer
    assert same.reason.startswith(
        "about as good as ENSEMBLE on eight held-out domains (mean accuracy: "
    )
    clearly = make_evaluation({"svm": SVM, "ensemble": [score + 0.011 for score in SVM]})
    assert clearly.recommended.key == "ensemble"
    # The same mean with a far worse domain is not as good.
    uneven = [0.60, 0.81, *SVM[2:]]
    assert make_evaluation({"svm": uneven, "ensemble": better}).recommended.key == "ensemble"
    errors = [-10.0 * score for score in SVM]
    close = make_evaluation(
        {"svm": errors, "ensemble": [0.985 * error for error in errors]},
        scoring="neg_root_mean_squared_error",
    )
    assert close.margin == pytest.approx(0.02 * 7.35)
    assert close.recommended.key == "svm"


def test_a_better_method_that_needs_whole_domains_is_mentioned():
    evaluation = make_evaluation(
        {"ensemble": SVM, "ensemble+context": [score + 0.05 for score in SVM]}
    )
    evaluation.results = [replace(r, context=r.key.endswith("context")) for r in evaluation.results]
    assert (evaluation.best.key, evaluation.recommended.key) == ("ensemble+context", "ensemble")
    assert evaluation.answer.context == (
        "If you can predict all rows from the next site together, use ENSEMBLE with context: its "
        "mean accuracy is 0.785 instead of 0.735."
    )
    scores = {"context": 0.785, "plain": 0.735, "error": 0.01, "domains": 8}
    batches = {"whole": scores, "first half": {**scores, "context": 0.76}}
    evaluation.results[0] = replace(evaluation.results[0], batches=batches)
    assert evaluation.answer.context.endswith(
        "0.735. With only some of the rows, this score is 0.760 (first half)."
    )
    batches["first half"] = {**scores, "context": 0.70}
    assert evaluation.answer.context.endswith(
        "instead of 0.735. Do not use it for only some of the rows (first half: 0.700 instead "
        "of 0.735)."
    )
    evaluation.results[0] = replace(
        evaluation.results[0], scores=dict(evaluation.results[1].scores)
    )
    assert evaluation.answer.context == ""


def test_a_constant_that_is_as_good_is_reported():
    answer = make_evaluation({"constant": SVM, "dcm": [score - 0.05 for score in SVM]}).answer
    assert answer.take == ""
    assert answer.reason.startswith(
        "No method is better than always predicting the mean of the target (CONSTANT), which has "
    )
    assert answer.command == ""


def test_the_range_is_a_prediction_interval_from_students_t_distribution():
    evaluation = make_evaluation({"svm": SVM})
    reach = stats.t.ppf(0.95, 7) * np.std(SVM, ddof=1) * np.sqrt(1 + 1 / 8)
    assert evaluation.next_site == pytest.approx((0.735 - reach, 0.735 + reach))
    low, high = evaluation.next_site
    assert evaluation.answer.expect == (
        f"accuracy between {low:.2f} and {high:.2f} at the next site (90 % prediction "
        "interval). The mean over held-out domains is 0.73."
    )
    assert evaluation.to_dict()["answer"]["range"] == pytest.approx([low, high])


def test_the_range_is_that_of_the_recommended_method_and_the_choice_has_a_cost():
    up = [0.99, *[score + 0.005 for score in SVM[1:]]]  # its lead is that of one domain
    evaluation = make_evaluation({"svm": SVM, "ensemble": up})
    assert evaluation.recommended.key == "ensemble"
    assert evaluation.choose("site 0").key == "svm"
    assert evaluation.next_site == pytest.approx(expected_range(up, "accuracy"))
    assert evaluation.choice_cost == pytest.approx((0.99 - SVM[0]) / 8)
    assert "The choice of the method itself costs about 0.036." in evaluation.answer.expect
    assert make_evaluation({"svm": SVM}).choice_cost == 0


@pytest.mark.parametrize(("n", "chance"), [(2, "one third"), (3, "one half")])
def test_two_or_three_domains_have_no_range_but_a_probability(n, chance):
    evaluation = make_evaluation({"svm": SVM[:n]})
    assert evaluation.next_site is None
    assert evaluation.answer.expect == (
        f"accuracy {np.mean(SVM[:n]):.2f} on average. A 90 % prediction interval cannot be "
        f"computed from {in_words(n)} domains: the score at the next site is between 0.70 and "
        f"{SVM[n - 1]:.2f} with a probability of {chance}."
    )
    assert evaluation.answer.certainty == "low"


def test_scores_that_are_not_defined_for_one_method_on_one_domain_are_ignored():
    nan, scores = np.nan, [0.9, 0.69, 0.7, 0.74]
    others = {"svm": [nan, 0.7, 0.72, nan], "dica": [nan, nan, nan, 0.6]}
    evaluation = make_evaluation({"constant": [0.5, nan, 0.5, nan], "dcm": scores, **others})
    assert evaluation.recommended.key == "dcm"
    assert evaluation.choose("site 0").key == "svm"  # which has no score on this site
    assert evaluation.next_site == pytest.approx(expected_range(scores, "accuracy"))
    assert "at the next site (90 % prediction interval)" in evaluation.answer.expect
    check = compare_with_constant("accuracy", {"a": 0.9, "b": 0.8, "c": 0.8}, {"a": 0.5, "c": 0.5})
    assert (check.better, check.n_domains) == (True, 2)


def test_confidence_is_low_with_few_domains_medium_if_they_may_differ_much_and_otherwise_high():
    constant = [0.5] * 8
    few = make_evaluation({"constant": [0.5] * 5, "svm": SVM[:5]}).answer
    assert few.certainty == "low"
    expected = "Five domains are too few to predict the next site reliably."
    assert few.certain == expected
    clear = make_evaluation({"constant": constant, "svm": SVM}, error=0.03)
    assert not clear.between_sites().differ
    low, high = clear.between_sites().true_range
    assert (clear.answer.certainty, clear.answer.certain) == (
        "high",
        "There is no evidence that the accuracy differs between domains: its true value at the "
        "next site is between "
        f"{low:.2f} and {high:.2f} (90 %). At the worse end, more than half of the gain over a "
        "constant prediction (0.50) remains.",
    )
    # The same scores, with more rows: the differences are real, and small.
    real = make_evaluation({"constant": constant, "svm": SVM}, error=0.003).answer
    assert (real.certainty, real.certain[:40]) == (
        "high",
        "The accuracy differs between domains: it",
    )
    # The same scores, with fewer rows: they may differ a lot.
    unknown = make_evaluation({"constant": constant, "svm": SVM}, error=0.3).answer
    assert unknown.certainty == "medium"
    assert unknown.certain.startswith("There is no evidence that the accuracy differs")
    apart = [0.5, 0.55, *[0.9] * 6]
    apart = make_evaluation({"constant": constant, "svm": apart}, error=0.02).answer
    assert apart.certainty == "medium"
    assert apart.certain.endswith("worse end is no better than a constant prediction (0.50).")
    half = [0.65, 0.65, *[0.8] * 6]
    half = make_evaluation({"constant": constant, "svm": half}, error=0.01).answer
    assert half.certainty == "medium"
    assert half.certain.endswith("over a constant prediction (0.50) is lost.")
    scores = {"constant": [-5.0] * 8, "svm": [-1.0] * 4 + [-1.2] * 4}
    clear = make_evaluation(scores, scoring="neg_root_mean_squared_error", error=0.02)
    assert clear.answer.certainty == "high"
    assert (
        "The RMSE differs between domains: its true value at the next site is between 0.9"
        in clear.answer.certain
    )
    assert clear.next_site[1] < 3


def test_the_confidence_follows_the_five_rules_in_the_guide():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "report.md"
    if not guide.exists():
        pytest.skip("the documentation is not beside the tests")
    text = " ".join(guide.read_text("utf-8").split())
    rules = re.findall(
        r"(?<= )[1-9]\. .*?(?= [1-9]\. | The \*true\* )", text.split("These are the rules:")[1]
    )
    assert len(rules) == 5
    assert f"fewer than {in_words(MIN_PAIRS)} domains" in rules[1]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        n_domains, error = rng.integers(2, 12), rng.choice([0.003, 0.03])
        scores = {
            "svm": rng.uniform(0.5, 0.9) + rng.choice([0.01, 0.1]) * rng.normal(size=n_domains)
        }
        scores["svm"] = scores["svm"].clip(0.2, 0.97).tolist()
        if rng.random() < 0.7:
            scores["constant"] = [0.5] * int(n_domains)
        evaluation = make_evaluation(scores, error=error)
        if evaluation.recommended.trivial:
            continue
        pooled, constant = evaluation.between_sites(), evaluation.find("constant")
        differs = pooled.differ
        if pooled.tau_interval is not None:
            assert differs == (pooled.tau_interval[0] > 0)  # rule 1
        if n_domains < 6:  # rule 2
            expected = "low"
        elif constant is None:  # rule 5
            expected = "medium" if differs else "high"
        else:  # rules 3 and 4
            gain, least = evaluation.best.mean - constant.mean, pooled.true_range[0] - constant.mean
            expected = "high" if least >= gain / 2 else "medium"
        answer = evaluation.answer
        assert answer.certainty == expected
        assert ("The accuracy differs between domains" in answer.certain) == bool(differs)
        seen.add((expected, differs, constant is None))
    assert len(seen) > 6


def test_few_domains_are_said_to_differ_or_not_as_far_as_they_show_it():
    five = make_evaluation({"svm": SVM[:5]}, error=0.003).answer
    assert five.certain.startswith("Five domains are too few to predict the next site reliably. ")
    assert (
        "The accuracy differs between domains: its true value at the next site is" in five.certain
    )
    three = make_evaluation({"svm": [0.6, 0.7, 0.8]}, error=0.003).answer
    assert three.certain.endswith(
        " The accuracy differs between domains, but three domains do not show by how much it may "
        "differ at a new one."
    )
    same = make_evaluation({"svm": [0.7, 0.71]}, error=0.03).answer
    assert same.certain.endswith(
        " Scores of two domains do not show whether the accuracy differs between domains."
    )


def test_only_rows_of_domains_with_a_score_are_called_scored():
    evaluation = make_evaluation({"svm": [*SVM[:7], np.nan]})
    evaluation.facts |= {"rows": 500, "rows_given": 1700}
    assert "trained on 500 of 1,700 rows and scored on 1,400 rows." in evaluation.answer.limits
    assert "performance was assessed on 1,400 rows." in evaluation.answer.methods


def test_all_intervals_of_a_metric_have_the_same_decimals():
    evaluation = make_evaluation({"svm": SVM}, error=0.02)
    texts = [verdict.interval(evaluation, ends) for ends in ((0.6, 0.9), (0.711, 0.7142), None)]
    assert texts == ["0.60 to 0.90", "0.71 to 0.71", "–"]
    assert number_format([5.1, -0.02], [])(-0.02) == "0.0"


def test_differences_between_sites_are_pooled_on_the_scale_of_the_metric():
    evaluation = make_evaluation({"svm": SVM}, error=0.02)
    pooled = evaluation.between_sites()
    expected = pool_scores(SVM, [0.02] * 8, scale="logit")
    assert pooled.to_dict() == {**expected.to_dict(), "table": pooled.table}
    assert pooled.table["score"].tolist() == SVM
    assert pooled.table["domain"].tolist() == [f"site {i}" for i in range(8)]
    errors = make_evaluation({"svm": [-3.0, -4.0, -5.0, -4.5]}, scoring="neg_mean_absolute_error")
    with pytest.raises(ValueError, match="standard errors of SVM are not known"):
        errors.between_sites()
    with pytest.raises(ValueError, match="was not evaluated; use one of svm"):
        errors.between_sites("dcm")


def test_a_domain_with_few_rows_has_less_weight_in_the_recommendation():
    evaluation = make_evaluation({"svm": [0.7] * 7 + [1.0], "dcm": [0.72] * 7 + [0.66]})
    assert evaluation.recommended.key == evaluation.best.key == "svm"
    rows = {f"site {i}": 300 for i in range(7)} | {"site 7": 3}
    errors = dict.fromkeys(rows, 0.026)
    results = [replace(result, errors=errors) for result in evaluation.results]
    evaluation.weights = domain_weights(results, rows)
    assert evaluation.weights["site 0"] == 1.0
    assert evaluation.weights["site 7"] < 0.15
    assert (evaluation.best.key, evaluation.recommended.key) == ("svm", "dcm")
    assert "with less weight for domains with few rows" in evaluation.answer.reason
    # The weighted mean is that of scores which are shrunk towards it by their standard error.
    scores = np.array(list(evaluation.recommended.scores.values()))
    share = np.array([evaluation.weights[name] for name in rows])
    mean = evaluation.weighted_mean(evaluation.recommended)
    assert np.mean(mean + share * (scores - mean)) == pytest.approx(mean)


def test_the_answer_has_at_most_ten_lines_in_a_terminal():
    evaluation = make_evaluation(
        {"constant": [0.5] * 8, "svm": SVM, "dcm": [s + 0.05 for s in SVM]}
    )
    fault = {"message": "A long sentence about a column. " * 5, "effect": "", "action": "Do it."}
    evaluation.differences = {
        "faults": [{**fault, "severity": 2, "columns": ["a"], "leak": False}] * 7
    }
    evaluation.next_step = "To fit it: domainwise fit --from folder -o model.skops"
    texts = {"reason": "a " * 200, "expect": "non-missing " * 200, "certain": "c " * 200}
    longest_lines = replace(evaluation.answer, **texts).lines()
    assert len(longest_lines) == 10
    assert [line.split()[-2:] for line in longest_lines if "g …" in line] == [["non-missing", "…"]]
    lines = evaluation.answer.lines(report="folder/report.html")
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for part in ("Recommended DCM:", "Expect accuracy", "Confidence",
                 "problems in folder/report.html",
                 "Next domainwise fit --from folder -o model.skops"):  # fmt: skip
        assert part in text
    assert len(evaluation.answer.faults) == 5
    evaluation.differences["faults"][0] = {**fault, "severity": 3, "columns": ["b"], "leak": True}
    evaluation.differences["without_leaks"] = {
        "columns": ["b"],
        "scores": {"SVM": 0.6, "DCM": 0.55},
    }
    evaluation.differences["without_leaks"]["scores"] = {"SVM": 0.4}
    assert "Without b, the best score is 0.500 (CONSTANT)." in evaluation.answer.expect
    evaluation.differences["without_leaks"]["scores"] = {"SVM": 0.6, "DCM": 0.55}
    assert (
        "Without b, the best score is 0.600 (SVM). Always predicting the mean of the target "
        "(CONSTANT) scores 0.50." in evaluation.answer.expect
    )
    assert (evaluation.answer.certainty, evaluation.answer.certain) == (
        "low", "The scores may be too good, because b may contain the answer."
    )  # fmt: skip


def test_a_terminal_shows_as_many_whole_clauses_as_there_is_room_for():
    fault = {"problem": "A column is 0 at one site. It may be a code.", "action": "Drop it. " * 9}
    answer = replace(
        make_evaluation({"svm": SVM}).answer,
        take="DCM",
        reason="about as good as the ensemble; "
        + "it is preferred because it is a single model. " * 2,
        expect="an accuracy between 0.6 and 0.8. " + "More words follow here. " * 6,
        faults=[fault, fault, fault, fault],
        command="domainwise fit",
    )
    short, long = (" ".join(" ".join(answer.lines(n_lines=n)).split()) for n in (6, 19))
    assert "Recommended DCM: about as good as the ensemble. Expect" in short
    assert "It may be a code. Drop it. Drop it. 3 more problems in the report Next" in short
    assert "the ensemble; it is preferred because it is a single model." in long
    assert long.count("A column is 0 at one site.") == 3
    assert "1 more problem in the report Next domainwise fit" in long
    assert "…" not in short + long
    # The reason for the confidence comes before further reasons for the recommendation.
    certain = "There is no evidence that the domains of this table differ, as far as it shows."
    reasoned = replace(answer, certainty="high", certain=certain).lines(n_lines=7)
    middle = " ".join(" ".join(reasoned).split())
    assert "the ensemble. Expect" in middle
    assert f"Confidence high. {certain} Check" in middle


def test_a_terminal_shows_at_most_twenty_lines_and_no_name_in_two_pieces(monkeypatch, capsys):
    pytest.importorskip("typer")
    from domainwise.cli import common
    from domainwise.cli.evaluate import print_evaluation

    monkeypatch.setitem(common.mode, "json", False)  # other tests may have set it
    monkeypatch.setenv("COLUMNS", "80")
    common._console.cache_clear()
    methods = ("svm", "linear", "boosting", "dcm", "coir", "kpca", "dica", "sca", "mda", "mida")
    evaluation = make_evaluation(
        {**{key: [s - i / 50 for s in SVM] for i, key in enumerate(methods)}, "constant": [0.3] * 8}
    )
    domain = "a hospital with a name that is longer than the terminal is wide, in Switzerland"
    for method in evaluation.results:
        method.scores[domain] = method.scores.pop("site 0")
    folder = "results/of-a-study-with-a-long-name"
    evaluation.next_step = f"To fit it: domainwise fit --from {folder} -o a-long-name.skops"
    print_evaluation(evaluation, Path("folder/report.html"))
    common._console.cache_clear()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert [line[13:] for line in lines[-2:]] == [
        f"domainwise fit --from {folder} \\", "-o a-long-name.skops"
    ]  # fmt: skip
    names = [line.split("  ")[0] for line in lines[1:9]]
    assert names[0] == evaluation.best.label
    assert names[-2:] == ["4 other methods", "CONSTANT"]
    assert all("…" in line for line in lines[1:9] if "a hospital" in line)


def test_a_quoted_name_in_a_command_stays_on_one_line():
    command = "domainwise fit --from 'a folder with a long name and spaces' -o 'a name.skops'"
    answer = replace(make_evaluation({"svm": SVM}).answer, command=command)
    assert answer.lines()[-1] == f"{'Next':13}{command}"


def test_minor_problems_are_not_called_more_problems_if_there_is_no_serious_one():
    answer = replace(make_evaluation({"svm": SVM}).answer, more_faults=1)
    assert answer.faults == []
    lines = answer.lines()
    assert "1 minor problem in the report" in lines[-2]
    assert not any("…" in line for line in lines)


def test_scores_have_three_digits_however_close_the_methods_are():
    evaluation = make_evaluation({"svm": SVM, "dcm": [score + 0.00004 for score in SVM]})
    assert (evaluation.show(evaluation.best.mean), evaluation.show(SVM[0])) == ("0.735", "0.700")


def test_holm_multiplies_by_the_number_of_hypotheses_left():
    assert holm({"a": 0.03, "b": 0.01, "c": 0.02}) == pytest.approx(
        {"b": 0.03, "c": 0.04, "a": 0.04}
    )


def test_small_errors_keep_their_digits():
    evaluation = make_evaluation(
        {"svm": [-1e-5 * score for score in SVM]}, scoring="neg_root_mean_squared_error"
    )
    assert evaluation.measure.format(-3.3081e-5) == "3.31e-05"
    assert evaluation.measure.format(-0.25) == "0.250"
    assert choose_measure("accuracy", np.arange(2), True).format(0.0001) == "0.000"
    assert "0.000" not in repr(evaluation)


def test_differences_have_the_same_decimals_as_scores():
    errors = choose_measure("rmse", np.arange(2.0), False)
    assert [errors.format(-x, scale=-0.645) for x in (0.645, 0.0025, -0.0025)] == [
        "0.645", "0.003", "-0.003"
    ]  # fmt: skip
    assert [errors.format(-x, scale=-1868.3) for x in (1868.3, 12.34)] == ["1868", "12"]
    assert [errors.format(-x, scale=-123.46) for x in (123.46, 0.5)] == ["123.5", "0.5"]
    evaluation = make_evaluation({"svm": [-s for s in SVM]}, scoring="neg_root_mean_squared_error")
    assert evaluation.show(-0.0025) == "0.003"


def test_methods_that_failed_are_named():
    evaluation = make_evaluation({"svm": SVM})
    evaluation.left_out["dcm"] = "failed: no memory"
    evaluation.left_out["dica"] = "too many rows"
    assert evaluation.answer.faults == [
        {
            "problem": "These methods failed and have no score: dcm.",
            "action": "The error messages are in the notes at the end of the report.",
        }
    ]


def test_the_rule_of_the_recommendation_states_the_margin_that_was_used():
    evaluation = make_evaluation({"svm": SVM})
    assert "worse than the best by less than 0.01 (" in rule(evaluation)
    errors = make_evaluation({"svm": [-3.0] * 4}, scoring="neg_root_mean_squared_error")
    assert "worse than the best by less than 0.06 (" in rule(errors)


def test_the_methods_paragraph_says_what_was_held_out_and_how_many_rows():
    evaluation = make_evaluation({"constant": [0.5] * 8, "svm": SVM}, error=0.02)
    evaluation.facts |= {"rows": 500, "rows_given": 1700}
    text = evaluation.answer.methods
    pooled = evaluation.between_sites()
    low, high = pooled.true_range
    for part in (
        "internal-external cross-validation. Each of the 8 sites was held out in turn:",
        "Models were developed on 500 of 1,700 rows, and performance was assessed on 1,600 rows.",
        "Two methods (SVM, CONSTANT) were compared by accuracy; SVM was selected.",
        f"The pooled accuracy was {pooled.mean:.2f}; heterogeneity between sites was "
        f"τ = {pooled.tau:.2f} (90 % confidence interval ",
        f"prediction interval for the true score at a new site was {low:.2f} to {high:.2f}.",
        "Calibration was assessed in each site by bias and calibration slope",
    ):
        assert part in text
    results = [replace(r, parameters=[{}] * 3) for r in evaluation.results]
    grouped = replace(evaluation, results=results, facts={**evaluation.facts, "classes": [0, 1]})
    assert "The 8 sites were held out in three groups: models" in grouped.answer.methods
    assert "observed-to-expected ratio" in grouped.answer.methods
    # Fewer than four sites have no prediction interval.
    few = make_evaluation({"svm": SVM[:3]}, error=0.02)
    assert "heterogeneity" not in few.answer.methods


def test_limits_are_empty_if_nothing_was_left_out():
    evaluation = make_evaluation({"svm": SVM})
    assert evaluation.answer.limits == ""
    evaluation.facts |= {"rows": 700, "rows_given": 700}
    assert evaluation.answer.limits == ""
    results = [*evaluation.results, replace(evaluation.best, key="dcm", label="DCM", n_rows=-1)]
    few = replace(evaluation, results=results)
    assert few.answer.limits == "Compared on fewer rows, and not recommended: DCM."
    evaluation.facts |= {"stopped": "Interrupted after 3 of 8 fits."}
    assert evaluation.answer.limits == "Interrupted after 3 of 8 fits."
    assert evaluation.verdict().startswith("Interrupted after 3 of 8 fits. Use SVM:")


@pytest.mark.parametrize("folder", [".", "plots"])
def test_every_message_of_an_error_is_used_and_exists(folder):
    folder = Path(verdict.__file__).parent / folder
    nodes = [
        node
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("require", "style.require")
    ]
    messages = tomllib.loads((folder / "errors.toml").read_text("utf-8"))
    assert {node.args[1].value for node in nodes} == messages.keys()
    for node in nodes:
        names = {keyword.arg for keyword in node.keywords}
        fields = {field for _, field, _, _ in Formatter().parse(messages[node.args[1].value])}
        assert None in names or fields - {None} == names


def test_every_sentence_of_the_template_file_is_used():
    folder = Path(verdict.__file__).parent
    names = ("verdict.py", "page.py", "gather.py", "run.py")
    code = "".join((folder / name).read_text("utf-8") for name in names)
    keys = [*verdict.TEXTS, *verdict.TEXTS["notes"], *verdict.TEXTS["captions"]]
    assert [key for key in keys if f'"{key}"' not in code] == []
    used = set(re.findall(r'say\(\s*"(\w+)"|TEXTS\["(\w+)"\]', code))
    assert {name for pair in used for name in pair if name} <= set(verdict.TEXTS)


def test_names_with_braces_are_inserted_unchanged():
    evaluation = make_evaluation(
        {"constant": [0.5] * 8, "svm": SVM, "{0}": [s + 0.05 for s in SVM]}
    )
    assert evaluation.verdict().startswith("Use {0}: best mean accuracy over eight held-out")
