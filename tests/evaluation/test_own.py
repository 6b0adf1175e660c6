"""Methods that the user passes as estimators: what they get, and what is refused."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from domainwise import InvariantSVC, evaluate
from domainwise.held_out.search.grids import ALPHAS


def problem(n_domains=4, size=16, seed=0):
    rng = np.random.default_rng(seed)
    domain = np.repeat([f"site {i}" for i in range(n_domains)], size)
    X = rng.normal(size=(len(domain), 3)) + rng.normal(size=(n_domains, 3)).repeat(size, axis=0)
    value = X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.normal(size=len(X))
    return X, np.where(value > np.median(value), "yes", "no"), domain


def test_a_custom_model_with_the_same_grid_scores_like_the_built_in_method():
    X, y, domain = problem()
    grid = {"C": [1 / alpha for alpha in ALPHAS[::-1]]}
    mine = ("mine", LogisticRegression(max_iter=1000), grid)
    options = dict(scoring="accuracy", progress=False)
    evaluation = evaluate(X, y, domain, methods=["linear", mine], **options)
    assert evaluation.find("mine").known == evaluation.find("linear").known
    np.testing.assert_equal(evaluation.find("mine").seen, evaluation.find("linear").seen)
    assert evaluation.find("mine").parameters == evaluation.find("linear").parameters
    assert evaluation.find("mine").candidates == len(ALPHAS)


def test_a_model_without_a_grid_is_not_tuned():
    X, y, domain = problem()
    own = [("plain", SVC(C=3.0)), ("piped", make_pipeline(StandardScaler(), SVC(C=3.0)))]
    evaluation = evaluate(X, y, domain, methods=own, scoring="accuracy", progress=False)
    assert evaluation.find("plain").candidates == 1
    assert evaluation.find("plain").parameters == [{}] * 4
    for name, score in evaluation.find("plain").known.items():
        train = domain != name
        mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
        model = SVC(C=3.0).fit((X[train] - mean) / spread, y[train])
        assert score == model.score((X[~train] - mean) / spread, y[~train])
    assert evaluation.find("piped").known == evaluation.find("plain").known  # standardized twice


class Spy(ClassifierMixin, BaseEstimator):
    """Records its arguments."""

    seen: ClassVar = []

    def fit(self, X, y, sample_domain=None):
        self.classes_ = np.unique(y)
        self.seen.append((X, y, sample_domain))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_custom_models_get_the_original_names_of_classes_and_domains():
    X, y, domain = problem()
    Spy.seen.clear()
    evaluate(X, y, domain, methods=[("spy", Spy())], progress=False)
    fits = Spy.seen[:4]  # the other fits are for random folds, where all domains are seen
    assert len(Spy.seen) == 8
    for i, (rows, targets, domains) in enumerate(fits):
        assert set(targets) == {"no", "yes"}
        assert set(domains) == {f"site {k}" for k in range(4) if k != i}
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)


def test_domains_are_passed_to_estimators_inside_a_pipeline():
    X, y, domain = problem()
    model = make_pipeline(StandardScaler(), InvariantSVC())
    evaluation = evaluate(X, y, domain, methods=[("invariant kernel", model)], progress=False)
    without = evaluate(
        X, y, domain, methods=[("no weight", model.set_params(invariantsvc__domain_weight=0))],
        progress=False,
    )  # fmt: skip
    assert evaluation.scores["invariant kernel"] != without.scores["no weight"]


def test_only_custom_methods_get_unprepared_rows():
    pandas = pytest.importorskip("pandas")
    X, y, domain = problem()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = np.where(X[:, 1] > 0, "high", "low")
    columns = make_column_transformer(
        (StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(), ["kind"])
    )
    mine = ("mine", make_pipeline(columns, LogisticRegression(max_iter=1000)))
    evaluation = evaluate(
        frame, y, domain, methods=["constant", mine], prepare=False, progress=False
    )
    prepared = evaluate(
        frame, y, domain, methods=[("mine", LogisticRegression(max_iter=1000))], progress=False
    )
    assert evaluation.scores["mine"] == pytest.approx(prepared.scores["mine"])
    assert not evaluation.left_out


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (("svm", SVC()), "name of another method"),
        (("InvariantSVC", SVC()), "name of another method"),
        (("mine", SVC), "must be a scikit-learn estimator"),
        (("mine", 3), "must be a scikit-learn estimator"),
        (("mine", SVC(), [1, 2]), "grid for 'mine' must be a dict"),
        (("mine", Ridge()), "must be a classifier, because the task is classification"),
        (SVC(), r"must be names, \(name, estimator\)"),
    ],
)
def test_objects_that_are_not_methods_are_refused(method, words):
    X, y, domain = problem()
    with pytest.raises(ValueError, match=words):
        evaluate(X, y, domain, methods=[method], progress=False)


def test_a_failing_custom_model_is_reported_and_other_methods_continue():
    X, y, domain = problem()
    bad = ("bad", SVC(kernel="precomputed"))
    evaluation = evaluate(X, y, domain, methods=["linear", bad], progress=False)
    assert "failed" in evaluation.left_out["bad"]
    assert [result.key for result in evaluation.results] == ["linear"]
    with pytest.raises(
        ValueError, match=r"could be evaluated: bad \(failed: .*Choose other methods"
    ):
        evaluate(X, y, domain, methods=[bad], progress=False)


@pytest.mark.parametrize("methods", [3, LogisticRegression()])
def test_methods_must_be_a_list(methods):
    X, y, domain = problem()
    with pytest.raises(TypeError, match="methods must be a list of names or of"):
        evaluate(X, y, domain, methods=methods, progress=False)


def test_a_dict_of_estimators_is_a_list_of_names_and_estimators():
    X, y, domain = problem()
    evaluation = evaluate(X, y, domain, methods={"own": LogisticRegression()}, progress=False)
    assert [result.key for result in evaluation.results] == ["own"]


class Failing(ClassifierMixin, BaseEstimator):
    """Raises an error in ``fit`` or ``predict``."""

    def __init__(self, error, where):
        self.error, self.where = error, where

    def check(self, where):
        if self.where == where:
            raise self.error

    def fit(self, X, y):
        self.check("fit")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        self.check("predict")
        return np.full(len(X) - (self.where == "length"), self.classes_[0])


class Unreadable(Exception):
    """An error whose message is an error."""

    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "where", "reason"),
    [
        (Unreadable(), "predict", "Unreadable"),
        (ValueError("x" * 10**6), "fit", "x" * 300),
        (IndexError(3), "fit", "IndexError: 3"),
        (KeyError("x"), "predict", "KeyError: 'x'"),
        (RuntimeError("no memory"), "fit", "no memory"),
        (AssertionError(), "predict", "AssertionError"),
        (SystemExit(2), "fit", "2"),
        (None, "length", r"the model returned predictions of shape (15,) for 16 rows"),
    ],
)
def test_any_error_of_a_custom_model_costs_only_this_model(error, where, reason):
    X, y, domain = problem()
    methods = ["constant", ("bad", Failing(error, where))]
    evaluation = evaluate(X, y, domain, methods=methods, quick=True, progress=False)
    assert evaluation.left_out["bad"] == f"failed: {reason}"
    assert [result.key for result in evaluation.results] == ["constant"]


class Improbable(LogisticRegression):
    """Returns probabilities that are none."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def predict_proba(self, X):
        return super().predict_proba(X) * self.factor


@pytest.mark.parametrize("factor", [2.0, np.nan, [3.0, -1.0]])
def test_outputs_that_are_no_probabilities_cost_only_their_model(factor):
    X, y, domain = problem()
    methods = ["constant", ("bad", Improbable(factor))]
    options = {"quick": True, "progress": False, "scoring": "neg_log_loss"}
    evaluation = evaluate(X, y, domain, methods=methods, **options)
    assert "not probabilities with sum 1" in evaluation.left_out["bad"]


class Returning(RegressorMixin, BaseEstimator):
    """Returns its mean, converted by a function."""

    def __init__(self, convert):
        self.convert = convert

    def fit(self, X, y):
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X):
        return self.convert(np.full(len(X), self.mean_))


@pytest.mark.parametrize(
    ("convert", "reason"),
    [
        (lambda values: values.astype(object), None),
        (lambda values: values[:, None], None),
        (lambda values: values.tolist(), None),
        (lambda values: values.astype(str), "predict returned <U32 values instead of numbers"),
        (lambda values: values + 1j, "predict returned complex128 values instead of numbers"),
        (lambda values: np.ma.masked_array(values, values == values), "masked entries"),
        (lambda values: np.column_stack([values, values]), r"predictions of shape (16, 2)"),
        (lambda values: values[0], r"predictions of shape ()"),
        (lambda values: None, "missing values"),
        (lambda values: iter(values), "contains iterator objects"),
    ],
)
def test_predictions_that_are_not_one_number_per_row_cost_only_their_model(convert, reason):
    X, _, domain = problem()
    methods = ["constant", ("own", Returning(convert))]
    options = {"quick": True, "progress": False, "task": "regression"}
    evaluation = evaluate(X, X[:, 0], domain, methods=methods, **options)
    if reason is None:
        assert evaluation.scores["own"] == pytest.approx(evaluation.scores["constant"], rel=1e-9)
    else:
        assert reason in evaluation.left_out["own"]


class Uncopied(Failing):
    """Cannot be cloned."""

    def get_params(self, deep=True):
        raise KeyError("error")


def test_a_custom_model_that_cannot_be_cloned_costs_only_this_model():
    X, y, domain = problem()
    methods = ["constant", ("bad", Uncopied(None, ""))]
    evaluation = evaluate(X, y, domain, methods=methods, progress=False)
    assert evaluation.left_out == {"bad": "failed: KeyError: 'error'"}


class Once(ClassifierMixin, BaseEstimator):
    """Raises an error after some fits, as a service with a limit would."""

    n_fits: ClassVar = 0

    def __init__(self, max_fits):
        self.max_fits = max_fits

    def fit(self, X, y):
        type(self).n_fits += 1
        if self.n_fits > self.max_fits:
            raise KeyError("limit")
        self.classes_, self.coef_ = np.unique(y), np.asarray(X)[:, 0].mean()
        return self

    def predict(self, X):
        return self.classes_[(np.asarray(X)[:, 0] > self.coef_).astype(int)]


@pytest.mark.parametrize("leak", [False, True])
def test_a_custom_model_that_fails_in_later_fits_keeps_its_first_scores(leak):
    X, y, domain = problem()
    codes = (y == "yes").astype(float)
    noise = np.random.default_rng(0).normal(scale=1e-3, size=len(y))
    site_value = np.unique(domain, return_inverse=True)[1].astype(float)  # a column of the site
    X = np.column_stack([X[:, 0], codes + noise if leak else site_value])
    Once.n_fits = 0
    evaluation = evaluate(X, y, domain, methods=["constant", ("once", Once(4))], progress=False)
    assert Once.n_fits > 4
    assert not evaluation.left_out
    assert len(evaluation.find("once").known) == 4
    assert evaluation.site_columns is None
    assert evaluation.verdict()


def test_a_score_that_is_undefined_for_one_method_on_one_domain_is_ignored(tmp_path):
    X, y, domain = problem()
    last_share = np.mean(y[domain == "site 3"] == "yes")

    def share(model, X, targets):
        is_undefined = "C=2" in repr(model) and np.mean(targets == "yes") == last_share
        return float("nan") if is_undefined else np.mean(model.predict(X) == targets)

    mine = ("mine", LogisticRegression(C=2.0))
    options = dict(methods=["constant", "linear", mine], scoring=share, progress=False)
    evaluation = evaluate(X, y, domain, **options)
    result = evaluation.find("mine")
    assert list(result.known) == ["site 0", "site 1", "site 2"]
    assert result.mean == pytest.approx(np.mean(list(result.known.values())))
    assert evaluation.verdict()
    assert evaluation.report(tmp_path / "report.html").stat().st_size > 0
    assert np.isnan(evaluation.per_domain().set_index(["method", "domain"]).score["mine", "site 3"])


class Centred(ClassifierMixin, BaseEstimator):
    """Compares each row with the mean of its domain or, without domains, of the sources."""

    def fit(self, X, y, sample_domain=None):
        self.classes_ = np.unique(y)
        self.mean_ = X.mean(axis=0)
        return self

    def predict(self, X, sample_domain=None):
        centre = np.tile(self.mean_, (len(X), 1))
        for name in () if sample_domain is None else np.unique(sample_domain):
            rows = np.asarray(sample_domain) == name
            centre[rows] = X[rows].mean(axis=0)
        return self.classes_[((X - centre)[:, 0] > 0).astype(int)]


def test_only_the_result_with_context_gets_the_domains_of_held_out_rows():
    X, _, domain = problem()
    shift = X[:, 0] + 5 * np.unique(domain, return_inverse=True)[1]
    centre = np.array([shift[domain == name].mean() for name in np.unique(domain)])
    y = np.where(shift > centre.repeat(16), "yes", "no")
    X = np.column_stack([shift, X[:, 1]])
    evaluation = evaluate(X, y, domain, methods=["constant", ("mine", Centred())], progress=False)
    alone, together = evaluation.find("mine"), evaluation.find("mine+context")
    assert (alone.context, together.context) == (False, True)
    assert together.mean == 1.0
    assert alone.mean < 0.7
    assert evaluation.best_ == "mine+context"
    assert [m["context"] for m in evaluation.to_dict()["methods"]] == [True, False, False]
    assert evaluation.recommended_ == "mine"  # row by row
    assert (
        "rows from the next site together, use mine with context: its mean accuracy is 1.000"
        in evaluation.verdict()
    )
    words = (
        "together (a median of 16 rows), without using their labels, and assume that these rows "
        "are typical of the domain"
    )
    assert any(words in note for note in evaluation.notes)
    assert "+context" in evaluation.table()["method"].iloc[0]
    model = evaluation.fit()
    assert (model.predict(X) == y).mean() < 0.7
    with config_context(enable_metadata_routing=True):
        assert (model.predict(X, sample_domain=domain) == y).all()


class Mixed(Centred):
    """Has members with weights, like an ensemble."""

    def fit(self, X, y, sample_domain=None):
        self.weights_ = {"trees": 0.25, "linear": 0.75}
        self.context_weights_ = {"trees": 1.0, "linear": 0.0}
        return super().fit(X, y)


def test_member_weights_are_reported_as_parameters():
    X, y, domain = problem()
    evaluation = evaluate(X, y, domain, methods=["constant", ("mine", Mixed())], progress=False)
    alone, together = evaluation.find("mine"), evaluation.find("mine+context")
    assert set(map(str, alone.parameters)) == {
        "{'weight of trees': 0.25, 'weight of linear': 0.75}"
    }
    assert together.parameters[0] == {"weight of trees": 1.0, "weight of linear": 0.0}


class Whole(Centred):
    """Records the rows that it gets."""

    seen: ClassVar = []

    def fit(self, X, y, sample_domain=None):
        self.seen.append((len(X), None))
        return super().fit(X, y)

    def predict(self, X, sample_domain=None):
        self.seen.append((len(X), sample_domain))
        return super().predict(X, sample_domain)


def test_the_context_of_a_domain_includes_rows_that_were_not_drawn():
    X, y, domain = problem(3, 40)
    Whole.seen.clear()
    evaluate(X, y, domain, methods=[("whole", Whole())], progress=False, max_rows=30,
             scoring="accuracy")  # fmt: skip
    assert [n for n, _ in Whole.seen].count(20) >= 3  # fits to the drawn rows of two domains
    # Other calls are for random folds, or for copies of the domain with a shuffled column.
    sizes = [n for n, names in Whole.seen if names is not None and len(set(names)) == 1]
    assert sizes == [40] * 3


def test_a_job_is_run_again_if_one_of_its_two_rows_is_missing(tmp_path):
    X, y, domain = problem()
    options = dict(methods=["constant", ("mine", Centred())], scoring="accuracy", progress=False)
    first = evaluate(X, y, domain, **options, out=tmp_path)
    results = next((tmp_path / "jobs").glob("*.jsonl"))
    lines = results.read_text().splitlines()
    lost = next(line for line in lines if '"mine+context"' in line and '"kind": "job"' in line)
    results.write_text("\n".join(line for line in lines if line != lost) + "\n")
    again = evaluate(X, y, domain, **options, out=tmp_path)
    np.testing.assert_equal(again.scores, first.scores)
    assert len(again.find("mine").parameters) == len(first.find("mine").parameters) == 4
    assert len(again.predictions_) == len(first.predictions_)
