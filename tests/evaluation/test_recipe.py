"""An evaluated method can be fitted to all rows, and its predictions are available."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, make_scorer

import domainwise
from domainwise import evaluate
from domainwise.held_out.scoring import pooling
from domainwise.tables.schema import load_table

pandas = pytest.importorskip("pandas")


def make_frame(n=96, seed=0, regression=False):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.normal(size=n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "hospital": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
        }
    )
    score = (frame["age"] - 50) / 10 + frame["dose"] + 0.5 * rng.normal(size=n)
    frame["ill"] = score if regression else np.where(score > 0, "yes", "no")
    frame.loc[::11, "age"] = np.nan
    return frame


OPTIONS = dict(methods=["constant", "linear", "svm"], max_rows=60, inner_scoring="accuracy")


@pytest.fixture(scope="module")
def evaluation():
    return evaluate(make_frame(), "ill", "hospital", **OPTIONS)


def test_column_names_give_the_same_scores_as_columns(evaluation):
    frame = make_frame()
    rows = frame[["age", "dose", "sex"]]
    same = evaluate(rows, frame["ill"], frame["hospital"], **OPTIONS)
    assert same.scores == evaluation.scores
    assert evaluation.facts["columns"] == 3


def test_fit_uses_all_rows_and_the_best_method_unless_another_is_named(evaluation, tmp_path):
    frame = make_frame()
    rows = frame[["age", "dose", "sex"]]
    model = evaluation.fit()
    assert evaluation.best_ in ("linear", "svm")
    assert model.predict(rows).shape == (96,)
    # Without ``inner_scoring``, parameters are chosen by the log loss of calibrated probabilities.
    by_log_loss = evaluate(frame, "ill", "hospital", methods=["constant", "linear"], max_rows=60)
    linear = by_log_loss.fit("Logistic")
    assert isinstance(linear[-1].estimator_, LogisticRegression)
    # The same search by hand, on all 96 rows instead of the 60 that were drawn.
    from domainwise.held_out.search.grids import LINEAR
    from domainwise.held_out.search.scores import SmoothScore
    from domainwise.selection import LeaveDomainsOut

    X, y = linear[:-1].transform(rows), frame["ill"].to_numpy()
    splits = list(LeaveDomainsOut().split(X, groups=frame["hospital"]))
    score = SmoothScore(y, frame["hospital"].to_numpy(), np.unique(y))
    models = [LogisticRegression(max_iter=1000, C=C) for C in LINEAR[0]["C"]]
    outputs = [
        [score.outcome(clone(model).fit(X[train], y[train]), X[test], y[test])
         for train, test in splits]
        for model in models
    ]  # fmt: skip
    best = models[score.table(outputs, [test for _, test in splits]).mean(axis=1).argmax()]
    assert linear[-1].best_params_ == {"C": best.C}
    fitted = linear[-1].estimator_
    order = evaluation.source.by_content(np.arange(96))  # in which the solver sums the rows
    best.fit(X[order], y[order])
    np.testing.assert_allclose(fitted.predict_proba(X), best.predict_proba(X), rtol=1e-6)
    pytest.importorskip("skops")
    domainwise.save(linear, tmp_path / "m.skops")
    again = domainwise.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict(rows), linear.predict(rows))
    with pytest.raises(ValueError, match="'dcm' was not evaluated; use one of"):
        evaluation.fit("dcm")


def test_predictions_for_held_out_domains_have_the_reported_scores(evaluation):
    frame = make_frame()
    predictions = evaluation.predictions_
    assert set(predictions["method"]) == {"constant", "linear", "svm"}
    assert len(predictions) == 3 * len(frame)  # rows that were not drawn are scored, too
    for (method, domain), part in predictions.groupby(["method", "domain"]):
        assert (frame["hospital"].to_numpy()[part["row"]] == domain).all()
        assert (frame["ill"].to_numpy()[part["row"]] == part["target"]).all()
        score = accuracy_score(part["target"], part["prediction"])
        assert score == pytest.approx(evaluation.scores[method][domain])
    linear = predictions[predictions["method"] == "linear"]
    np.testing.assert_allclose(linear["probability_no"] + linear["probability_yes"], 1)
    most_probable = np.where(linear["probability_yes"] > 0.5, "yes", "no")
    assert (most_probable == linear["prediction"]).all()
    svm = predictions[predictions["method"] == "svm"]
    assert ((svm["probability_yes"] > 0.5) == (svm["prediction"] == "yes")).all()
    numbers = evaluate(make_frame(regression=True), "ill", "hospital", methods=["linear"])
    assert list(numbers.predictions_) == ["method", "row", "domain", "target", "prediction"]


@pytest.mark.parametrize(
    ("positive", "scoring"),
    [
        # Parameters are chosen for the first measure.
        ("yes", ["f1", "average_precision", "roc_auc", "neg_log_loss"]),
        ("no", ["average_precision", "f1", "roc_auc"]),
        (None, ["roc_auc", "f1", "average_precision"]),
    ],
)
def test_pos_label_sets_the_positive_class(positive, scoring, monkeypatch):
    monkeypatch.setattr(pooling, "N_DRAWS", 2)  # intervals are tested elsewhere
    frame, asked = make_frame(), {"methods": ["linear"], "scoring": scoring}
    named = evaluate(frame, "ill", "hospital", pos_label=positive, **asked)
    coded = frame.assign(ill=(frame["ill"] == (positive or "yes")).astype(int))
    expected = evaluate(coded, "ill", "hospital", **asked)
    scores = {}
    for by_name, by_code in zip([named, *named.others], [expected, *expected.others], strict=True):
        scores[by_name.measure.name] = by_name.scores["linear"]
        assert by_name.scores["linear"] == pytest.approx(by_code.scores["linear"])
    predictions = named.predictions_
    last = predictions[predictions["domain"] == "D"]
    truth = last["target"] == (positive or "yes")
    score = f1_score(truth, last["prediction"] == (positive or "yes"))
    assert scores["f1"]["D"] == pytest.approx(score)
    score = average_precision_score(truth, last[f"probability_{positive or 'yes'}"])
    assert scores["average_precision"]["D"] == pytest.approx(score)


def test_a_custom_scorer_gets_the_estimator_and_unchanged_classes():
    frame = make_frame()
    scorer = make_scorer(f1_score, pos_label="no")
    own = evaluate(frame, "ill", "hospital", methods=["linear"], scoring=scorer)
    named = evaluate(frame, "ill", "hospital", methods=["linear"], scoring="f1", pos_label="no")
    assert own.scores["linear"] == pytest.approx(named.scores["linear"])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(max_row=3), TypeError, "unexpected keyword argument 'max_row'"),
        (dict(y="il"), ValueError, "y='il' is not a column of X; use one of 'age'"),
        (dict(sample_domain="ward"), ValueError, "sample_domain='ward' is not a column"),
        (dict(X=np.zeros((96, 2))), ValueError, "but X is not a data frame"),
        (dict(pos_label="maybe"), ValueError, "pos_label='maybe' must be one of the two classes"),
    ],
)
def test_invalid_arguments_have_specific_errors(change, error, words):
    arguments = (
        dict(X=make_frame(), y="ill", sample_domain="hospital", methods=["constant"]) | change
    )
    with pytest.raises(error, match=words):
        evaluate(**arguments)


def test_a_notebook_shows_a_table_and_the_verdict(evaluation):
    page = evaluation._repr_html_()
    assert page.count("<tr>") == 4
    assert "logistic" in page
    assert evaluation.verdict().split(";")[0] in page.replace("&#x27;", "'")
    with_markup = evaluate(
        make_frame(), "ill", "hospital", methods=[("<b>", LogisticRegression())], progress=False
    )
    assert "&lt;b&gt;" in with_markup._repr_html_()


def test_a_data_frame_is_read_like_a_file(tmp_path):
    rng = np.random.default_rng(0)
    n = 120
    dose, share, hour = rng.normal(size=n), rng.uniform(0, 1, n), rng.integers(0, 24, n)
    ill = np.where(dose + 3 * share + 0.3 * rng.normal(size=n) > 1.5, "yes", "no")
    frame = pandas.DataFrame(
        {
            "dose": [f"{value:.3f}".replace(".", ",") for value in dose],
            "share": [f"{100 * value:.1f}%" for value in share],
            "at": [f"{value:02d}:30" for value in hour],
            "same": "x",
            "empty": None,
            "ill": ill,
            "hospital": np.repeat(list("abcd"), 30),
        }
    )
    evaluation = evaluate(frame, "ill", "hospital", methods=["linear"], progress=False)
    frame.to_csv(tmp_path / "rows.csv", sep=";", index=False)
    table = load_table(tmp_path / "rows.csv", target="ill", domain="hospital")
    read = evaluate(table.X, table.y, table.sample_domain, methods=["linear"], progress=False)
    assert evaluation.scores == read.scores
    for words in ("decimal commas", "percentages", "times", "are constant", "are empty"):
        assert any(words in note for note in evaluation.notes)
    model = evaluation.fit("linear")
    np.testing.assert_array_equal(model.predict(frame), read.fit("linear").predict(table.X))
    domainwise.save(model, tmp_path / "model.skops")
    again = domainwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_a_data_frame_with_constant_columns_is_refused():
    frame = pandas.DataFrame({"a": [1.0] * 20, "b": None})
    with pytest.raises(ValueError, match="X has no usable column: .*are constant: a.*Pass other"):
        evaluate(frame, np.tile([0, 1], 10), np.repeat([0, 1], 10), progress=False)
