"""Columns that are constant within every domain: scores with and without them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from domainwise import evaluate
from domainwise.evaluation.faults import with_effects
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.gather import compare_columns
from domainwise.evaluation.results import MethodResult
from domainwise.evaluation.verdict import site_columns_sentences

pandas = pytest.importorskip("pandas")


def table(effect, n_sites=12, n=30, seed=0):
    """Sites whose number of beds changes the target by ``effect``."""
    rng = np.random.default_rng(seed)
    site = np.repeat([f"site {i:02d}" for i in range(n_sites)], n)
    beds = np.repeat(rng.normal(size=n_sites), n)
    frame = pandas.DataFrame({"age": rng.normal(size=n_sites * n), "beds": beds})
    y = frame["age"] + effect * beds + 0.5 * rng.normal(size=n_sites * n)
    return frame, y.to_numpy() + np.repeat(rng.normal(size=n_sites), n) * (effect == 0), site


def run(effect, **options):
    X, y, site = table(effect)
    methods = ["constant", ("mine", Ridge(1.0))]
    return evaluate(X, y, site, methods=methods, progress=False, **options), (X, y, site)


def test_the_recommended_method_is_scored_without_columns_of_the_site():
    evaluation, (X, y, site) = run(1.0)
    comparison = evaluation.site_columns
    without = evaluate(X[["age"]], y, site, methods=[("mine", Ridge(1.0))], progress=False)
    gains = [s - without.scores["mine"][d] for d, s in evaluation.scores["mine"].items()]
    assert (comparison.columns, comparison.method) == (["beds"], "mine")
    assert comparison.score_with == pytest.approx(-evaluation.find("mine").mean)
    assert comparison.score_without == pytest.approx(-without.best.mean)
    assert comparison.gain == pytest.approx(np.mean(gains))
    assert comparison.error == pytest.approx(np.std(gains, ddof=1) / np.sqrt(12))
    assert comparison.safer_with
    (fault,) = (f for f in evaluation.differences["faults"] if f["kind"] == "site level")
    assert "it is safer to use beds" in fault["action"]


def test_columns_of_the_site_that_do_not_clearly_help_are_unsafe():
    evaluation, _ = run(0.0)
    assert not evaluation.site_columns.safer_with
    (fault,) = (f for f in evaluation.differences["faults"] if f["kind"] == "site level")
    assert fault["action"].endswith("evaluate again with --drop beds.")
    assert "RMSE of mine is" in fault["effect"]


@pytest.mark.parametrize("quick", [False, True])
def test_a_table_without_columns_of_the_site_has_no_comparison(quick):
    X, y, site = table(1.0)
    methods = ["constant", "linear"]
    options = dict(methods=methods, progress=False, quick=quick)
    assert evaluate(X[["age"]], y, site, **options).site_columns is None
    # If all columns describe the site, nothing is left to compare with.
    assert evaluate(X[["beds"]], y, site, **options).site_columns is None


def test_the_comparison_is_stored_with_the_evaluation(tmp_path):
    pytest.importorskip("pyarrow")
    evaluation, _ = run(1.0, out=tmp_path / "run", scoring=["r2", "neg_mean_absolute_error"])
    again, content = read_evaluation(tmp_path / "run")
    assert again.site_columns == evaluation.site_columns
    assert again.others[0].site_columns is None
    assert content["site_columns"]["safer_with"] is True
    assert again.differences == evaluation.differences


def test_a_gain_below_two_standard_errors_is_not_clear():
    evaluation, _ = run(1.0)
    scores = dict(evaluation.recommended.known)
    better = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # one site only
    worse = {d: s - g for (d, s), g in zip(scores.items(), better, strict=True)}
    comparison = compare_columns(evaluation, MethodResult("mine", "", "", "", worse, {}), ["beds"])
    assert comparison.gain == pytest.approx(1 / 12)
    assert comparison.error == pytest.approx(1 / 12)
    assert not comparison.safer_with
    evaluation.site_columns = comparison
    effect = site_columns_sentences(evaluation)["effect"]
    assert effect.endswith("(a difference of 0.083, with a standard error of 0.083).")


def test_columns_of_the_site_that_clearly_hurt_are_a_problem_to_check_first():
    evaluation, _ = run(0.0)
    faults = evaluation.differences["faults"]
    for gain, severity in ((-0.1, 1), (-0.3, 2), (0.3, 1)):
        evaluation.site_columns = replace(evaluation.site_columns, gain=gain, error=0.1)
        evaluation.differences["faults"] = with_effects(faults, evaluation)
        (fault,) = (f for f in evaluation.differences["faults"] if f["kind"] == "site level")
        assert fault["severity"] == severity
        lines = "\n".join(evaluation.answer.lines(report="report.html"))
        assert ("beds is constant within every domain" in lines) == (severity == 2)
