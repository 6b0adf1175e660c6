"""Races: candidates that are clearly worse on the first splits are not scored on the others."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from domainwise.held_out.search import driver
from domainwise.held_out.search.driver import Data, Race, best_of_paths, search

N_SPLITS = 10


class Plain:
    """Return known scores: a mean for each candidate, plus noise for each split."""

    def table(self, outcomes, tests):
        return np.array(outcomes, dtype=float)


class Levels:
    """Candidates whose score is their mean plus noise that depends on candidate and split."""

    one_pass = False

    def __init__(self, levels, noise):
        self.levels, self.noise, self.seen = levels, noise, Counter()

    def candidates(self, data):
        return [{"path": i // 2, "level": i} for i in range(len(self.levels))]

    def batches(self, candidates):
        return [[i] for i in range(len(candidates))]

    def outcomes(self, data, splits, batch, score):
        ((_, test),) = splits
        split = int(test[0])
        values = []
        for candidate in batch:
            self.seen[candidate["level"]] += 1
            rng = np.random.default_rng([candidate["level"], split])
            values.append([self.levels[candidate["level"]] + self.noise * rng.normal()])
        return values


def raced(kind, rule=None, race=None, n_jobs=None):
    splits = [(np.delete(np.arange(N_SPLITS), i), np.array([i])) for i in range(N_SPLITS)]
    data = Data(np.zeros((N_SPLITS, 1)), np.zeros(N_SPLITS))
    return search(kind, data, splits, Plain(), rule, race=race, n_jobs=n_jobs)


def test_much_worse_candidates_are_dropped_and_the_others_are_scored_on_all_splits():
    kind = Levels([0.0, 0.1, -5.0, -6.0, 0.05], noise=0.5)
    result = raced(kind, race=Race())
    assert kind.seen[2] == kind.seen[3] == Race().first
    left = [candidate["level"] for candidate in result.candidates]
    assert set(left) <= {0, 1, 4}
    assert all(kind.seen[level] == N_SPLITS for level in left)
    assert result.scores.shape == (len(left), N_SPLITS)
    assert np.isfinite(result.scores).all()


@pytest.mark.parametrize("seed", range(5))
def test_dropped_candidates_are_worse_than_the_chosen_ones_on_the_same_splits(seed):
    levels = np.random.default_rng(seed).normal(size=12)
    kind, full = Levels(levels, 0.3), Levels(levels, 0.3)
    everything = raced(full).scores
    result = raced(kind, race=Race())
    winner = result.chosen[0]["level"]
    order = np.concatenate(Race().rounds(N_SPLITS))
    for level, times in kind.seen.items():
        if times < N_SPLITS:
            first = order[:times]
            assert everything[level, first].mean() < everything[:, first].mean(axis=1).max()
    assert everything[winner].mean() >= everything.mean(axis=1).max() - 0.3


@pytest.mark.parametrize("n", [1, 3])
def test_an_infinite_margin_is_the_full_search(n):
    rule = partial(best_of_paths, path=("level",), n=n)
    levels = np.linspace(0, 1, 9)
    full = raced(Levels(levels, 1.0), rule)
    result = raced(Levels(levels, 1.0), rule, race=Race(margin=np.inf))
    np.testing.assert_array_equal(result.scores, full.scores)
    assert result.chosen == full.chosen
    assert result.candidates == full.candidates


def test_all_chosen_candidates_survive_if_the_rule_chooses_several():
    rule = partial(best_of_paths, path=("level",), n=3)
    result = raced(Levels([0.0, -9.0, 1.0, -9.0, 2.0, -9.0, -8.0, -9.0], 0.01), rule, race=Race())
    assert [candidate["level"] for candidate in result.chosen] == [4, 2, 0]


def test_the_choice_is_the_same_for_every_number_of_jobs():
    levels = np.random.default_rng(3).normal(size=10)
    one, two = (raced(Levels(levels, 1.0), race=Race(), n_jobs=jobs) for jobs in (1, 2))
    assert one.candidates == two.candidates
    assert one.chosen == two.chosen
    np.testing.assert_array_equal(one.scores, two.scores)


@pytest.mark.parametrize(("free", "jobs"), [(2**40, 3), (2**29 + 2**20, 2), (0, 1), (None, 3)])
def test_the_number_of_workers_is_limited_by_free_memory(monkeypatch, free, jobs):
    monkeypatch.setattr(driver, "available_memory", lambda: free)
    data = Data(np.zeros((4, 1)), np.zeros(4))
    assert driver.limit_jobs(3, data.X.nbytes) == jobs
    assert driver.limit_jobs(None, data.X.nbytes) is None


@pytest.mark.parametrize("n_splits", range(1, 24))
def test_rounds_contain_every_split_once(n_splits):
    rounds = Race().rounds(n_splits)
    assert sorted(np.concatenate(rounds)) == list(range(n_splits))
    assert all(rounds)
