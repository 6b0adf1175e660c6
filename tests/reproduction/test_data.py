import numpy as np
import pytest
from sklearn.utils import Bunch

from reproduction.trials import derive_seed, make_split, sample_rows, split_domains


def test_a_split_shares_no_domain_between_sources_and_unseen_ones(tiny_case):
    split = make_split(tiny_case, 0, 0)
    sources, unseen = set(split.sample_domain), set(split.test_domain)
    assert len(sources) == 3
    assert len(unseen) == 2
    assert not sources & unseen
    assert len(split.X) == len(split.y) == len(split.sample_domain)


def test_a_split_depends_on_seed_case_and_repeat_alone(tiny_case):
    first, again = make_split(tiny_case, 0, 1), make_split(tiny_case, 0, 1)
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X[:5], make_split(tiny_case, 0, 2).X[:5])
    assert not np.array_equal(first.X[:5], make_split(tiny_case, 1, 1).X[:5])


def test_seeds_of_different_work_differ():
    states = {
        tuple(derive_seed(0, *path).generate_state(2))
        for path in (("a", 0), ("a", 1), ("b", 0), ("a", 0, "x"))
    }
    assert len(states) == 4


def test_stratified_rows_keep_the_class_ratio_and_the_count():
    target = np.repeat([0, 1], [900, 100])
    rows = sample_rows(np.arange(1000), target, 57, stratified=True, rng=np.random.default_rng(0))
    assert len(rows) == 57
    assert target[rows].sum() in (5, 6)
    assert len(np.unique(rows)) == 57


def test_a_small_domain_keeps_all_its_rows():
    rows = np.arange(5)
    sample = sample_rows(rows, np.zeros(5), 10, stratified=True, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(sample, rows)


def test_too_few_domains_are_refused(tiny_case):
    bunch = Bunch(data=np.zeros((4, 1)), target=np.zeros(4), sample_domain=np.arange(4))
    with pytest.raises(ValueError, match="requires 5 domains, but the data have 4; check that"):
        split_domains(bunch, tiny_case, np.random.default_rng(0))
