"""Data frames as people have them, given to ``evaluate``: a line of the table is a case.

A case is a frame, or what else is given. ``works`` and ``numbers`` say that it is evaluated, and
that the target is a quantity then; anything else is what the refusal says.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import domainwise as dw
from domainwise import metrics

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

N = 30
RNG = np.random.default_rng(0)
FRAME = pandas.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)})
FRAME["site"] = np.repeat(["A", "B", "C"], N // 3)
FRAME["ill"] = np.where(np.arange(N) % 2, "yes", "no")
AMOUNT = np.round(FRAME.a * 7 + 1, 2)


def evaluated(X=FRAME, y="ill", sample_domain="site", **options):
    given = {"methods": ["constant"], "progress": False, **options}
    return lambda: dw.evaluate(X, y, sample_domain, **given)


def of_target(values):
    return evaluated(FRAME.assign(ill=values))


TWICE = FRAME.assign(more=FRAME.ill).set_axis(["a", "b", "site", "ill", "ill"], axis=1)
MASKED = np.ma.masked_array(FRAME[["a", "b"]].to_numpy(), mask=FRAME[["a", "b"]] > 1)
BEYOND = [(np.arange(20), np.array([99]))]

CASES = [
    ("polars", evaluated(polars.from_pandas(FRAME)), "works"),
    ("Arrow", evaluated(arrow.table(FRAME)), "works"),
    ("numbered columns", evaluated(FRAME.set_axis(range(4), axis=1), 3, 2), "works"),
    ("a target of percentages", of_target([f"{v}%" for v in AMOUNT]), "numbers"),
    ("... of decimal commas", of_target([str(v).replace(".", ",") for v in AMOUNT]), "numbers"),
    ("... of thousands apart", of_target([f"{v * 1e4:,.2f}" for v in AMOUNT]), "numbers"),
    ("... of numbers as text", of_target(AMOUNT.astype(str)), "numbers"),
    ("... of times", of_target([f"{i % 24}:{i + 10}" for i in range(N)]), "numbers"),
    ("... in a list", evaluated(FRAME[["a"]], [f"{v}%" for v in AMOUNT], FRAME.site), "numbers"),
    ("... of dates", of_target([f"2024-05-{i + 1:02}" for i in range(N)]), "contains dates"),
    ("... of days", of_target(pandas.date_range("2024-01-01", periods=N)), "dates or durations"),
    ("text as a quantity", evaluated(task="regression"), "contains text"),
    ("classes 0 and 1 as text", of_target(np.arange(N).astype(str).astype("U1")), "works"),
    ("the same column twice", evaluated(y="site"), "y and sample_domain must be different columns"),
    ("a name of two columns", evaluated(TWICE), "several columns of X. Rename all but one"),
    ("no such name", evaluated(y="Ill"), "not a column of X; use one of 'a', 'b', 'site', 'ill'"),
    ("a lazy frame", evaluated(polars.from_pandas(FRAME).lazy()), "got LazyFrame"),
    ("masked values", evaluated(MASKED, FRAME.ill, FRAME.site), "masked"),
    ("records", evaluated(FRAME.to_records(), FRAME.ill, FRAME.site), "structured"),
    ("a dict", evaluated({"a": 1}, FRAME.ill, FRAME.site), "got dict"),
    ("rows that are not there", evaluated(cv=BEYOND), "row index 99, but there are only 30 rows"),
    ("folds by a word", evaluated(inner_cv="five"), "'inner_cv' parameter"),
    ("days", evaluated(FRAME.assign(b="2024-05-01")), r"use X.drop\(columns=\['b'\]\)"),
    ("a class of numbers", evaluated(y="a", task="regression", pos_label=1), "names a class"),
    ("a folder without a name", evaluated(out=""), "out is an empty path"),
    ("no measure", evaluated(scoring=[]), "scoring is an empty list"),
    ("a metric, not a scorer", evaluated(scoring=metrics.g_mean_score), "cannot be computed"),
    ("a score of text", evaluated(scoring=lambda *_: "good"), "cannot be computed"),
    ("a folder that is a number", evaluated(out=3), "'out' parameter"),
    (
        "one value to choose from",
        evaluated(methods=[("own", LogisticRegression(), {"C": 1.0})]),
        "dict of lists",
    ),
]


@pytest.mark.parametrize("case, outcome", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_outcome_is_the_decided_one(case, outcome):
    if outcome in ("works", "numbers"):
        assert (case().measure.name == "neg_root_mean_squared_error") == (outcome == "numbers")
    else:
        with pytest.raises((ValueError, TypeError), match=outcome):
            case()


def test_a_quantity_written_as_text_scores_as_the_number():
    plain = of_target(AMOUNT)().scores["constant"]
    for written, unit in (
        (AMOUNT.map(str), 1),
        ([str(v).replace(".", ",") for v in AMOUNT], 1),
        ([f"{v}%" for v in AMOUNT], 100),
    ):
        found = of_target(written)()
        scores = [unit * score for score in found.scores["constant"].values()]
        np.testing.assert_allclose(scores, [*plain.values()], rtol=1e-10)
        assert any("read as numbers" in note for note in found.notes)


def test_row_numbers_are_no_feature():
    found = evaluated(FRAME.assign(**{"Unnamed: 0": range(N)}))()
    assert any("treated as an index" in note for note in found.notes)
    assert {column["name"] for column in found.differences["columns"]} == {"a", "b"}
