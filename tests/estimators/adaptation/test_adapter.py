"""SiteAdapter with several estimators: scores, unchanged models and errors."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from domainwise import SiteAdapter
from domainwise.estimators.adaptation.site import own_site_scores
from domainwise.selection import LeaveDomainsOut


def sites(n_sites=10, n=60, level=3.0, seed=0):
    """A target whose level differs between sites."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_sites), n)
    X = rng.normal(size=(len(domain), 3))
    y = X @ [1.0, -1.0, 0.5] + level * rng.normal(size=n_sites)[domain]
    return X, y + 0.3 * rng.normal(size=len(y)), domain


def class_sites(n_sites=10, n=60, n_classes=3, bias=1.5, seed=0):
    """Classes whose shares differ between sites."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_sites), n)
    X = rng.normal(size=(len(domain), 3))
    logs = X @ (2.0 * rng.normal(size=(3, n_classes)))
    logs += bias * rng.normal(size=(n_sites, n_classes))[domain] + rng.gumbel(size=logs.shape)
    return X, np.array(["a", "b", "c", "d"])[logs.argmax(axis=1)], domain


def held_out_site(X, y, domain, code=0):
    known = domain != code
    return (X[known], y[known], domain[known]), (X[~known], y[~known])


def fit_adapter(estimator, rows, **options):
    X, y, domain = rows
    return SiteAdapter(estimator, **options).fit(X, y, sample_domain=domain)


def test_ten_labels_correct_most_of_a_wrong_level():
    X, y, domain = sites()
    errors = []
    for code in range(10):
        rows, (X_site, y_site) = held_out_site(X, y, domain, code)
        model = fit_adapter(LinearRegression(), rows)
        site = model.adapt(X_site[:10], y_site[:10])
        X_test, y_test = X_site[10:], y_site[10:]
        errors.append([np.sqrt(np.mean((m.predict(X_test) - y_test) ** 2)) for m in (model, site)])
        assert (model.predict(X) == model.estimator_.predict(X)).all()  # the model is unchanged
        assert site.n_site_labels_ == 10
    before, after = np.mean(errors, axis=0)
    assert after < 0.2 * before


def test_ten_labels_follow_the_class_shares_of_a_site():
    gains = []
    X, y, domain = class_sites()
    for code in range(10):
        rows, (X_site, y_site) = held_out_site(X, y, domain, code)
        model = fit_adapter(LogisticRegression(), rows)
        site = model.adapt(X_site[:10], y_site[:10])
        gains.append(site.score(X_site[10:], y_site[10:]) - model.score(X_site[10:], y_site[10:]))
    assert np.mean(gains) > 0.03


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=3, random_state=0)),
    ],
)
def test_labels_in_two_calls_give_identical_models(estimator):
    rows, (X, y) = held_out_site(*sites())
    model = fit_adapter(estimator, rows)
    in_one_call = model.adapt(X[:25], y[:25])
    in_two_calls = model.adapt(X[7:25], y[7:25]).adapt(X[:7], y[:7])
    assert (in_one_call.predict(X) == in_two_calls.predict(X)).all()
    assert (in_one_call.predict_interval(X) == in_two_calls.predict_interval(X)).all()


def test_labels_in_two_calls_give_identical_classifiers():
    rows, (X, y) = held_out_site(*class_sites())
    model = fit_adapter(LogisticRegression(), rows)
    in_one_call = model.adapt(X[:25], y[:25])
    in_two_calls = model.adapt(X[7:25], y[7:25]).adapt(X[:7], y[:7])
    assert (in_one_call.predict_proba(X) == in_two_calls.predict_proba(X)).all()


def test_intervals_cover_and_get_narrower_with_labels():
    X, y, domain = sites(n_sites=12)
    inside, widths = [], []
    for code in range(12):
        rows, (X_site, y_site) = held_out_site(X, y, domain, code)
        model = fit_adapter(LinearRegression(), rows)
        site = model.adapt(X_site[:20], y_site[:20])
        ends = site.predict_interval(X_site[20:], coverage=0.9)
        inside.append(np.mean((ends[:, 0] <= y_site[20:]) & (y_site[20:] <= ends[:, 1])))
        wide = np.ptp(model.predict_interval(X_site[20:21], coverage=0.9))
        widths.append(np.ptp(ends[0]) / wide)
    assert 0.85 <= np.mean(inside) <= 0.99  # too wide with eleven domains (theory 16)
    assert np.mean(widths) < 0.3


def test_few_domains_and_enough_labels_use_the_labels_for_intervals():
    X, y, domain = sites(n_sites=6, n=120)
    inside = []
    for code in range(6):
        rows, (X_site, y_site) = held_out_site(X, y, domain, code)
        model = fit_adapter(LinearRegression(), rows)
        wide = np.ptp(model.predict_interval(X_site[:1]))
        ends = model.adapt(X_site[:40], y_site[:40]).predict_interval(X_site[40:])
        assert np.ptp(ends[0]) < 0.4 * wide
        inside.append(np.mean((ends[:, 0] <= y_site[40:]) & (y_site[40:] <= ends[:, 1])))
    assert 0.82 <= np.mean(inside) <= 0.97


def test_label_gain_estimates_the_actual_gain():
    X, y, domain = sites(n_sites=10, n=120)
    model = fit_adapter(LinearRegression(), (X, y, domain))
    table = model.label_gain_
    assert table.dtype.names == ("n_labels", "score", "low", "high")
    assert table["n_labels"].tolist() == [0, 5, 10, 20, 50]
    assert table["score"][0] == pytest.approx(model.expected_score_[0])
    assert (np.diff(table["score"][:2]) > 1.0).all()  # RMSE falls from about 3 to about 0.4
    assert (table["low"] <= table["score"]).all()
    assert (table["score"] <= table["high"]).all()
    assert model.label_gain_domains_.tolist() == [10] * 5


def test_label_gain_is_that_of_random_rows_with_a_warning_if_the_first_rows_mislead():
    X, y, domain = sites(n_sites=10, n=120)
    ordered = y + np.tile(np.r_[np.full(20, 5.0), np.zeros(100)], 10)
    random = np.random.default_rng(0).permutation(len(y))
    model = fit_adapter(LinearRegression(), (X, ordered, domain))
    shuffled = fit_adapter(LinearRegression(), (X[random], ordered[random], domain[random]))
    assert model.label_gain_["score"] == pytest.approx(shuffled.label_gain_["score"])
    first, first_shuffled = (m.label_gain(first_rows=True)["score"] for m in (model, shuffled))
    assert first[1] < first_shuffled[1] - 0.5
    warning = "The first 5 rows of a site may mislead: label random ones."
    assert warning in model.label_advice_
    assert warning not in shuffled.label_advice_


def test_the_gain_of_the_loss_and_of_the_mean_of_several_sites():
    X, y, domain = class_sites(n_classes=2, bias=2.0)
    model = fit_adapter(LogisticRegression(), (X, y, domain))
    gain, loss = model.label_gain_, model.label_gain_loss_
    assert (gain["score"][1:4] > 0.5).all()  # balanced accuracy
    assert loss["score"][3] > loss["score"][0]  # negative log loss
    assert (loss["score"][:4] < 0.0).all()
    widths = [np.diff(model.label_gain(m).tolist()[1][2:])[0] for m in (1, 4, 100)]
    assert widths[0] > widths[1] > widths[2] > 0.0
    assert "the expected log loss is" in model.label_advice_


def test_a_classifier_without_probabilities_gets_them_from_held_out_domains():
    rows, (X, y) = held_out_site(*class_sites())
    model = fit_adapter(RidgeClassifier(), rows)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    site = model.adapt(X[:10], y[:10])
    codes = site.decision_rule_.codes(site.predict_proba(X))
    assert (site.classes_[codes] == site.predict(X)).all()


def test_decisions_that_divide_by_class_shares_use_those_of_the_site():
    rows, (X, y) = held_out_site(*class_sites(n_classes=2, bias=2.0))
    adapted = {}
    for decision in ("balanced", "argmax", 0.3):
        model = SiteAdapter(LogisticRegression(), decision=decision)
        model.fit(rows[0], rows[1], sample_domain=rows[2])
        adapted[decision] = model.adapt(X[:20], y[:20])
        shares = [m.decision_rule_.shares for m in (model, adapted[decision])]
        assert (shares[0] == shares[1]).all() == (decision != "balanced")
    p = [model.predict_proba(X) for model in adapted.values()]
    assert (p[0] == p[1]).all()
    assert (p[0] == p[2]).all()
    frequency = (y == adapted["argmax"].classes_[1]).mean()
    source_share = (rows[1] == adapted["argmax"].classes_[1]).mean()
    moved = adapted["balanced"].decision_rule_.shares[1]
    assert abs(moved - frequency) < abs(source_share - frequency)
    again = adapted["balanced"].adapt(X[20:25], y[20:25])  # from the rule of the sources
    at_once = model.set_params(decision="balanced").fit(rows[0], rows[1], sample_domain=rows[2])
    at_once = at_once.adapt(X[:25], y[:25])
    assert (again.decision_rule_.shares == at_once.decision_rule_.shares).all()


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_one_label_equal_labels_and_labels_outside_the_range_give_finite_predictions(kind):
    data = sites() if kind == "numbers" else class_sites(n_classes=2, bias=1.0)
    estimator = LinearRegression() if kind == "numbers" else LogisticRegression()
    rows, (X, y) = held_out_site(*data)
    model = fit_adapter(estimator, rows)
    cases = {"one": y[:1], "constant": np.full(10, y[0])}
    if kind == "numbers":
        cases["outside"] = np.full(10, 100.0 * np.abs(rows[1]).max())
    for labels in cases.values():
        adapted = model.adapt(X[: len(labels)], labels)
        outputs = adapted.predict(X) if kind == "numbers" else adapted.predict_proba(X)
        assert np.isfinite(outputs).all()
        assert not (outputs == model._outputs(X, None).reshape(outputs.shape)).all()
    if kind == "numbers":  # such labels move the level nearly all the way
        assert outputs.mean() > 0.5 * cases["outside"][0]
    else:  # ten labels of a class make it more probable
        code = list(model.classes_).index(y[0])
        assert outputs[:, code].mean() > model.predict_proba(X)[:, code].mean() + 0.1
        assert outputs.max() < 1.0


def test_probabilities_of_an_estimator_with_class_weights_are_calibrated():
    X, y, domain = class_sites(n_classes=2, bias=0.0)
    rare = (y == np.unique(y)[0]) & (np.arange(len(y)) % 5 > 0)
    X, y, domain = X[~rare], y[~rare], domain[~rare]
    plain, weighted = (
        fit_adapter(LogisticRegression(class_weight=weight), (X, y, domain))
        for weight in (None, "balanced")
    )
    frequency = (y == plain.classes_[0]).mean()
    for model in (plain, weighted):
        assert model.predict_proba(X)[:, 0].mean() == pytest.approx(frequency, rel=0.1)
    assert weighted.estimator_.predict_proba(X)[:, 0].mean() > 1.5 * frequency


def test_it_can_be_cloned_pickled_and_adapted_again():
    rows, (X, y) = held_out_site(*class_sites())
    model = clone(SiteAdapter(LogisticRegression(), cv=LeaveDomainsOut(), n_jobs=1))
    site = model.fit(rows[0], rows[1], sample_domain=rows[2]).adapt(X[:5], y[:5])
    again = pickle.loads(pickle.dumps(site))
    assert (again.predict_proba(X) == site.predict_proba(X)).all()
    assert (again.adapt(X[5:9], y[5:9]).predict(X) == site.adapt(X[5:9], y[5:9]).predict(X)).all()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda X, y: (X, np.where(y == "a", "new", y)),
            "class 'new' is unknown. The classes are 'a'",
        ),
        (lambda X, y: (X[:5], y), "y has 10 entries, but X has 5 rows"),
        (lambda X, y: (X[:, :2], y), "features"),
        (lambda X, y: (X, np.column_stack([y, y])), "y must be 1-D, got shape .10, 2."),
    ],
)
def test_invalid_labels_are_errors(change, message):
    rows, (X, y) = held_out_site(*class_sites())
    model = fit_adapter(LogisticRegression(), rows)
    with pytest.raises(ValueError, match=message):
        model.adapt(*change(X[:10], np.where(np.arange(10) == 0, "a", y[:10])))


def test_missing_targets_are_errors():
    rows, (X, _) = held_out_site(*sites())
    model = fit_adapter(LinearRegression(), rows)
    with pytest.raises(ValueError, match="missing or infinite"):
        model.adapt(X[:3], [1.0, np.nan, 2.0])


def test_one_label_and_labels_of_one_class_are_enough():
    rows, (X, y) = held_out_site(*class_sites())
    model = fit_adapter(LogisticRegression(), rows)
    assert model.adapt(X[:1], y[:1]).n_site_labels_ == 1
    same = model.adapt(X[:30], np.full(30, "a"))
    assert same.predict_proba(X)[:, 0].max() < 1.0


def test_a_source_domain_may_be_the_site():
    X, y, domain = sites()
    model = fit_adapter(LinearRegression(), (X, y, domain))
    assert np.isfinite(model.adapt(X[domain == 3], y[domain == 3]).predict(X)).all()


@pytest.mark.parametrize("slopes", [(1.0, 1.0), (-3.0, 3.0)])
def test_the_advice_says_when_a_model_of_the_sites_own_rows_is_as_good(slopes):
    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(8), 120)
    X = rng.normal(size=(len(domain), 2))
    y = np.linspace(*slopes, 8)[domain] * X[:, 0] + rng.normal(size=len(domain))
    model = fit_adapter(LinearRegression(), (X, y, domain))
    assert "site's own rows" not in model.label_advice_
    model.score_own_rows(X, y, domain)
    if slopes == (1.0, 1.0):
        assert "A linear model of only the site's own rows is worse" in model.label_advice_
    else:  # each site has a relation of its own
        assert "From about 20 labels on, a linear model of only these" in model.label_advice_


def test_models_of_own_rows_are_scored_by_log_loss_also_with_a_single_class():
    rng = np.random.default_rng(0)
    domain, y = np.repeat(np.arange(3), 100), np.zeros(300, dtype=int)
    y[100:] = rng.integers(2, size=200)
    scores = own_site_scores(rng.normal(size=(300, 2)), y, domain)
    assert scores[0, 0] > -0.01  # only one class
    assert (scores[:2, 1:] < -0.6).all()
    assert np.isnan(scores[2:]).all()  # no domain has 200 rows
