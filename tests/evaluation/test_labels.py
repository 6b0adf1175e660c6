"""Gain from labels at the next site, on the page and in JSON."""

from dataclasses import replace

import numpy as np
import pytest

from domainwise import evaluate
from domainwise.evaluation.results import merge_by_domain
from domainwise.evaluation.verdict import label_sentence
from domainwise.held_out.calibration.quantiles import calibrate_sets

KEYS = ["n_labels", "score", "low", "high", "domains", "loss", "first_rows"]


def sites(seed=0, n_domains=6, n=60, level=3.0):
    """Rows whose target has a level of its own in each domain."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n)
    X = rng.normal(size=(len(domain), 3))
    y = X[:, 0] + level * rng.normal(size=n_domains)[domain] + 0.3 * rng.normal(size=len(domain))
    return X, y, domain


def run(X, y, domain, **options):
    options = {"methods": ["constant", "linear"]} | options
    return evaluate(X, y, domain, progress=False, **options)


@pytest.fixture(scope="module")
def levels():
    return run(*sites())


@pytest.fixture(scope="module")
def shares():
    """Classes whose share differs between domains."""
    X, y, domain = sites(level=1.5)
    return run(X, np.where(y > 0, "yes", "no"), domain, scoring="accuracy")


def page_of(evaluation, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    return evaluation.report(tmp_path / "report.html").read_text("utf-8")


def test_the_expected_score_without_labels_is_that_of_the_best_method(levels, shares):
    for evaluation in (levels, shares):
        first = evaluation.label_gain[0]
        expected = evaluation.expect(evaluation.best)[0], *evaluation.next_site
        assert [first[key] for key in KEYS[1:4]] == pytest.approx(expected)
    assert levels.label_gain[1]["loss"] == pytest.approx(levels.label_gain[1]["score"])  # the RMSE
    assert shares.label_gain[-1]["loss"] < shares.label_gain[0]["loss"]  # the log loss


def test_ten_labels_gain_more_than_a_mean_of_them_and_less_than_all_rows_of_the_domain(levels):
    rng, before, by_mean, by_line = np.random.default_rng(1), [], [], []
    for record in levels.records[levels.best_]:
        residuals = record.target - record.prediction
        line = np.polynomial.Polynomial.fit(record.prediction, residuals, 1)
        before.append(np.sqrt(np.mean(residuals**2)))
        by_line.append(np.sqrt(np.mean((residuals - line(record.prediction)) ** 2)))
        draws = [rng.permutation(residuals) for _ in range(50)]
        by_mean.append(np.mean([np.sqrt(np.mean((r[10:] - r[:10].mean()) ** 2)) for r in draws]))
    gains = {gain["n_labels"]: gain["score"] for gain in levels.label_gain}
    assert gains[0] == pytest.approx(np.mean(before))
    assert np.mean(by_line) < gains[10] < np.mean(by_mean)
    assert np.mean(by_mean) < 0.3 * gains[0]


def test_the_gain_of_classes_uses_probabilities_and_the_measure(shares):
    scores = [gain["score"] for gain in shares.label_gain]
    assert shares.measure.label == "accuracy"
    assert scores[-1] > scores[0] + 0.05


def test_numbers_of_labels_for_which_no_domain_has_enough_rows_are_omitted():
    evaluation = run(*sites(n=24))
    assert [gain["n_labels"] for gain in evaluation.label_gain] == [0, 5, 10]
    assert [gain["domains"] for gain in evaluation.label_gain] == [6, 6, 6]


def test_the_gain_is_stored_in_json(levels):
    content = levels.to_dict()
    assert content["label_gain"] == levels.label_gain
    assert [list(gain) for gain in content["label_gain"]] == [KEYS] * 4
    assert {"facts", "measure", "methods", "differences", "others", "recipe"} <= content.keys()
    assert all("label_gain" not in other for other in content["others"])


def test_the_page_has_the_sentence_and_a_table(levels, tmp_path):
    page = page_of(levels, tmp_path)
    section = page.split('<section id="labels">')[1].split("</section>")[0]
    assert "Gain from labels at the next site" in section
    assert label_sentence(levels) in section
    assert section.count("<tr") == 1 + len(levels.label_gain)


def test_the_first_rows_are_mentioned_only_if_they_mislead(levels):
    X, y, domain = sites()
    assert "mislead" not in label_sentence(levels)
    y = y + np.tile(np.r_[np.full(12, 4.0), np.zeros(48)], 6)
    evaluation = run(X, y, domain)
    assert ". The first 5 rows of a site may mislead" in label_sentence(evaluation)
    assert evaluation.label_gain[0]["first_rows"] is None
    assert evaluation.label_gain[1]["first_rows"] > evaluation.label_gain[1]["score"]


@pytest.mark.parametrize("case", ["small domains", "no predictions", "no probabilities", "own"])
def test_the_section_is_omitted_if_the_gain_cannot_be_computed(case, levels, shares, tmp_path):
    if case == "small domains":
        evaluation = run(*sites(n=9))
    elif case == "no predictions":
        calibration = calibrate_sets(levels.records[levels.best_], None)
        evaluation = replace(levels, records={}, set_calibration=calibration)
    elif case == "no probabilities":
        records = [replace(r, probabilities=None) for r in shares.records[shares.best_]]
        evaluation = replace(shares, records={shares.best_: records})
    else:
        evaluation = replace(levels, measure=replace(levels.measure, is_custom=True))
    assert evaluation.label_gain == []
    assert label_sentence(evaluation) == ""
    assert evaluation.to_dict()["label_gain"] == []
    if case != "own":
        assert 'id="labels"' not in page_of(evaluation, tmp_path)


def test_a_row_that_was_held_out_twice_counts_once(levels):
    records = merge_by_domain(r for r in levels.records[levels.best_] for _ in range(2))
    twice = replace(levels, records={levels.best_: records})
    for gain, expected in zip(twice.label_gain, levels.label_gain, strict=True):
        assert gain == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        (
            (0.4, 0.3, 0.29, 0.25, 0.249),
            "With 5 labels (known values of the target) from the next site, the expected RMSE is "
            "0.300 instead of 0.400; with 20, it is 0.250.",
        ),
        (
            (0.4, 0.3, 0.299, 0.3, 0.3),
            "With 5 labels (known values of the target) from the next site, the expected RMSE is "
            "0.300 instead of 0.400. More labels add little.",
        ),
        (
            (0.4, 0.395, 0.38, 0.35, 0.3),
            "With 50 labels (known values of the target) from the next site, the expected RMSE is "
            "0.300 instead of 0.400.",
        ),
        (
            (0.4, 0.397, 0.395, 0.393, 0.39),  # five labels gain less than what matters
            "With 50 labels (known values of the target) from the next site, the expected RMSE is "
            "0.390 instead of 0.400.",
        ),
        (
            (0.4, 0.42, 0.41, 0.4, 0.4),
            "would hardly help: the expected RMSE is 0.400 without labels and ",
        ),
        (
            (0.4, 0.42, 0.43, 0.44, 0.45),
            "might make predictions worse: the expected RMSE is 0.400 without labels and 0.450",
        ),
    ],
)
def test_the_sentence_says_how_many_labels_are_enough(levels, scores, sentence):
    evaluation = replace(levels)
    best = replace(levels.best, scores=dict.fromkeys(levels.best.scores, -0.4))
    evaluation.results = [best]
    evaluation.label_gain = [
        {"n_labels": n, "score": score, "low": score, "high": score, "domains": 6}
        for n, score in zip((0, 5, 10, 20, 50), scores, strict=True)
    ]
    assert sentence in label_sentence(evaluation)
