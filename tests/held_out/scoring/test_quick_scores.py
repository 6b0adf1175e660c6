"""Scores that are computed without scikit-learn, to be fast, equal those of scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import get_scorer

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
