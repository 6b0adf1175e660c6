"""Scores that are computed without scikit-learn, to be fast, equal those of scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import get_scorer, roc_auc_score

from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.predictions import Outputs, Predictions


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy"])
@pytest.mark.parametrize("present", [["a", "b", "c"], ["a", "c"], ["b"]])
def test_scores_of_classes_are_those_of_scikit_learn(name, present):
    rng = np.random.default_rng(0)
    classes = np.array(["a", "b", "c"])
    y, predicted = rng.choice(present, 40), rng.choice(classes, 40)
    predictions = Predictions.from_outputs(classes, Outputs(prediction=predicted))
    measure = choose_measure(name, classes, True)
    expected = get_scorer(name)._score_func(y, predicted)
    assert measure.scorer(predictions, None, y) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("output", ["probabilities", "decisions"])
@pytest.mark.parametrize("positive", ["sick", "well"])
def test_the_area_under_the_roc_curve_is_that_of_scikit_learn(output, positive):
    rng = np.random.default_rng(1)
    classes = np.array(["sick", "well"])
    y = rng.choice(classes, 60)
    values = np.round(rng.normal(size=60) + (y == "well"), 1)  # with ties
    measure = choose_measure("roc_auc", y, True, positive)
    values = values if positive == "well" else -values
    p = 1 / (1 + np.exp(-values))
    values_by_output = {"probabilities": np.column_stack([1 - p, p]), "decisions": values}
    outputs = Outputs(y, y, **{output: values_by_output[output]})
    score = measure.score_outputs(measure.scorer.classes, outputs)
    assert score == pytest.approx(roc_auc_score(y == positive, values), abs=1e-14)
    assert score > 0.6
    rows = np.flatnonzero(y == "sick")
    assert np.isnan(measure.score_outputs(measure.scorer.classes, outputs, rows))
