"""Splits that hold out whole domains, and scores on each held-out domain."""

import numpy as np
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import DCM, DCMCV, InvariantRidgeClassifierCV, InvariantSVC
from domainwise.datasets import make_synthetic
from domainwise.held_out.folds import domain_folds
from domainwise.selection import InvariantSearchCV, LeaveDomainsOut, domain_cross_validate

DOMAINS = np.repeat(["a", "b", "c", "d", "e"], [4, 1, 6, 3, 2])
X = np.zeros((16, 2))


def test_one_domain_at_a_time_equals_leave_one_group_out():
    ours = list(LeaveDomainsOut().split(X, groups=DOMAINS))
    theirs = list(LeaveOneGroupOut().split(X, groups=DOMAINS))
    assert LeaveDomainsOut().get_n_splits(groups=DOMAINS) == len(ours) == 5
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine[0], other[0])
        np.testing.assert_array_equal(mine[1], other[1])


@pytest.mark.parametrize("seed", [None, 3])
def test_grouped_folds_test_each_domain_once(seed):
    tested = []
    for train, test in LeaveDomainsOut(2, random_state=seed).split(X, groups=DOMAINS):
        assert not set(DOMAINS[train]) & set(DOMAINS[test])
        assert len(train) + len(test) == 16
        tested += sorted(set(DOMAINS[test]))
    assert sorted(tested) == list("abcde")


def test_repeats_draw_different_domains_and_repeat_with_the_seed():
    draws = [
        [tuple(sorted(set(DOMAINS[test]))) for _, test in splitter.split(X, groups=DOMAINS)]
        for splitter in (LeaveDomainsOut(2, 20, 0), LeaveDomainsOut(2, 20, 0))
    ]
    assert draws[0] == draws[1]
    assert len(draws[0]) == 20
    assert all(len(draw) == 2 for draw in draws[0])
    assert len(set(draws[0])) > 3


@pytest.mark.parametrize(
    ("splitter", "groups", "message"),
    [
        (
            LeaveDomainsOut(5),
            DOMAINS,
            "leaves no domains to train on, because the number of domains is 5",
        ),
        (LeaveDomainsOut(), np.zeros(16, int), "the number of domains is 1"),
        (LeaveDomainsOut(0), DOMAINS, "'n_test_domains' .* Got 0"),
        (LeaveDomainsOut(1, 0), DOMAINS, "'n_repeats' .* Got 0"),
        (LeaveDomainsOut(), None, "needs the domain of each row"),
    ],
)
def test_invalid_splits_are_errors(splitter, groups, message):
    with pytest.raises(ValueError, match=message):
        list(splitter.split(X, groups=groups))


def test_sample_domain_is_routed_to_the_splitter_and_the_model_at_once():
    data = make_synthetic(n_domains=4, n_per_domain=30, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            make_pipeline(StandardScaler(), DCM(), SVC()),
            data.data,
            data.target,
            cv=LeaveDomainsOut(),
            params={"sample_domain": data.sample_domain},
        )
    assert scores.shape == (4,)


def test_scores_by_domain_equal_those_of_an_explicit_loop():
    data = make_synthetic(n_domains=5, n_per_domain=30, random_state=0)
    names = np.array(list("vwxyz"))[data.sample_domain]
    result = domain_cross_validate(
        make_pipeline(DCM(), SVC()), data.data, data.target, names, scoring="balanced_accuracy"
    )
    expected = {}
    for name in "vwxyz":
        test = names == name
        dcm = DCM().fit(data.data[~test], data.target[~test], sample_domain=names[~test])
        svc = SVC().fit(dcm.embedding_, data.target[~test])
        predicted = svc.predict(dcm.transform(data.data[test]))
        expected[name] = balanced_accuracy_score(data.target[test], predicted)
    assert result.per_domain() == pytest.approx(expected)
    assert result.worst == pytest.approx(min(expected.values()))
    assert expected[result.worst_domain] == result.worst
    assert result.mean == pytest.approx(np.mean(list(expected.values())))
    assert f"worst={result.worst:.3f}" in repr(result)


def test_several_domains_in_a_test_set_are_scored_separately():
    domain = np.repeat([0, 1, 2, 3], 10)
    y = np.tile([0, 1], 20)
    y[domain == 1] = 1  # the constant prediction is worst where its class is absent
    result = domain_cross_validate(
        DummyClassifier(strategy="constant", constant=0),
        np.zeros((40, 1)),
        y,
        domain,
        cv=LeaveDomainsOut(2),
    )
    assert result.per_domain() == {0: 0.5, 1: 0.0, 2: 0.5, 3: 0.5}
    assert result.worst_domain == 1


@pytest.mark.parametrize("n_domains, most, splits", [(3, 10, 3), (13, 10, 10), (40, 10, 10)])
def test_at_most_max_splits_hold_out_every_domain_once(n_domains, most, splits):
    domains = np.repeat(np.arange(n_domains), 2)
    cv = LeaveDomainsOut(max_splits=most, random_state=0)
    tests = [domains[test] for _, test in cv.split(np.zeros((len(domains), 1)), groups=domains)]
    assert len(tests) == splits == cv.get_n_splits(groups=domains)
    assert sorted(np.concatenate(tests)) == sorted(domains)
    sizes = [len(np.unique(test)) for test in tests]
    assert max(sizes) - min(sizes) <= 1


def test_one_split_with_all_domains_is_an_error():
    with pytest.raises(ValueError, match="max_splits must be at least 2.*got 1"):
        LeaveDomainsOut(max_splits=1).get_n_splits(groups=[0, 1, 2])


def test_folds_are_the_same_for_every_call_without_a_seed():
    splitter = LeaveDomainsOut(2, n_repeats=4)
    first, second = (
        [test.tolist() for _, test in splitter.split(X, groups=DOMAINS)] for _ in range(2)
    )
    assert first == second
    assert not splitter.shuffle
    assert LeaveDomainsOut(random_state=np.random.RandomState(0)).shuffle


@pytest.mark.parametrize("rows", [[0, 99], [0.5, 1.0], np.ones(3, dtype=bool)])
def test_splits_with_rows_that_do_not_exist_are_errors(rows):
    splits = [(np.arange(8), np.arange(8, 16)), (np.arange(8), rows)]
    with pytest.raises(ValueError, match="cv: the test set of split 1 has row indices from"):
        domain_folds(np.arange(16) % 2, None, classification=True, cv=splits)


def test_a_boolean_mask_selects_rows():
    mask = np.arange(16) < 8
    ((train, test),), _ = domain_folds(
        np.arange(16) % 2, None, classification=True, cv=[(mask, ~mask)]
    )
    assert train.tolist() == list(range(8))
    assert test.tolist() == list(range(8, 16))


@pytest.mark.parametrize(
    "search",
    [
        DCMCV(scoring="r2"),
        InvariantSearchCV(InvariantSVC(), {"C": [1.0]}, scoring="neg_mean_squared_error"),
        InvariantRidgeClassifierCV(scoring="r2"),
    ],
)
def test_a_regression_score_is_an_error_for_classes(search):
    data = make_synthetic(n_domains=3, random_state=0)
    with pytest.raises(ValueError, match="is for a continuous target, but the target has classes"):
        search.fit(data.data, data.target, sample_domain=data.sample_domain)
