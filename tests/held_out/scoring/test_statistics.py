import numpy as np
import pytest
from scipy import stats

from domainwise.held_out.scoring.statistics import compare
from reproduction.ranks import rank_methods, summarize


def test_deviation_is_that_of_a_sample():
    summary = summarize([1.0, 2.0, 4.0])
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.deviation == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert np.isnan(summarize([1.0]).deviation)
    assert np.isnan(summarize([]).mean)


def test_a_comparison_pairs_by_repeat():
    rng = np.random.default_rng(0)
    first = {r: float(v) for r, v in enumerate(rng.normal(size=12))}
    second = {r: first[r] - abs(rng.normal()) for r in reversed(range(10))}
    comparison = compare(first, second)
    expected = stats.wilcoxon([first[r] - second[r] for r in range(10)]).pvalue
    assert comparison.p_value == pytest.approx(expected)
    assert comparison.difference == pytest.approx(
        np.mean([first[r] - second[r] for r in range(10)])
    )


def test_too_few_pairs_have_no_p_value_and_equal_ones_have_one():
    assert compare({0: 1.0}, {0: 0.0}).p_value is None
    same = dict.fromkeys(range(8), 0.5)
    assert compare(same, same).p_value == 1.0


def test_ranks_and_critical_difference_agree_with_demsar():
    """Demšar (2006), section 3.2.4: k = 4, N = 14 has q = 2.569 and CD = 1.25."""
    scores = np.random.default_rng(0).normal(size=(14, 4))
    ranking = rank_methods(scores, list("abcd"))
    assert ranking.critical_difference == pytest.approx(1.25, abs=0.005)
    assert ranking.average_ranks.sum() == pytest.approx(10)
    assert ranking.p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)


def test_ties_share_a_rank_and_one_data_set_has_no_test():
    ranking = rank_methods(np.array([[1.0, 1.0, 0.0]]), list("abc"))
    np.testing.assert_allclose(ranking.average_ranks, [1.5, 1.5, 3.0])
    assert ranking.p_value is None
