"""Neither the order of rows nor the names of domains change the result of an evaluation."""

import numpy as np
import pandas
import pytest
from sklearn.ensemble import RandomForestClassifier

from domainwise import evaluate

NAMES = np.array([f"site {i:02d}" for i in range(12)])


def table(n_domains, n, classes):
    rng = np.random.default_rng(0)
    domain = np.repeat(NAMES[:n_domains], n)
    X = rng.normal(size=(len(domain), 4)) + rng.normal(size=(n_domains, 4)).repeat(n, axis=0)
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
    return X, (y > 0).astype(int) if classes else y, domain


def summary(evaluation, old_name):
    """Numbers by method and by the original name of the domain, and their means."""
    numbers = {}
    for result in evaluation.results:
        for row in evaluation.domain_scores(result):
            names = ("score", "low", "high", "error") + ("seen",) * (not result.context)
            numbers |= {(result.key, old_name[row.domain], k): getattr(row, k) for k in names}
        numbers |= {(result.key, "expected", i): v for i, v in enumerate(evaluation.expect(result))}
        numbers |= {(result.key, name): value for name, value in result.importance.items()}
        numbers[result.key, "p"] = result.p_value or 0.0
    numbers["range"], numbers["high"] = evaluation.next_site or (0.0, 0.0)
    return numbers, evaluation.recommended_, evaluation.verdict().partition(":")[0]


@pytest.mark.parametrize(
    ("shape", "methods", "options"),
    [
        ((4, 60, True), "constant,svm,linear,boosting,ensemble", {}),
        ((4, 60, True), "constant,linear,boosting,dcmcv,invariantridge", {"max_rows": 120}),
        ((12, 30, False), "constant,linear,boosting", {}),
        ((4, 80, True), "constant,linear,boosting", {"quick": True}),
    ],
    ids=["all rows", "drawn rows", "groups of domains", "quick"],
)
def test_results_depend_neither_on_the_order_of_rows_nor_on_names(
    shape, methods, options, few_trees
):
    X, y, domain = table(*shape)
    options = {"methods": methods, "progress": False, **options}
    expected = summary(evaluate(X, y, domain, **options), {name: name for name in NAMES})
    rng = np.random.default_rng(1)
    order, names = rng.permutation(len(y)), rng.permutation([f"clinic {i}" for i in range(12)])
    renamed = names[np.searchsorted(NAMES, domain)]
    changed = {
        "order": ((X[order], y[order], domain[order]), NAMES),
        "order and names": ((X[order], y[order], renamed[order]), names),
    }
    for what, (rows, new_names) in changed.items():
        found = summary(
            evaluate(*rows, **options), dict(zip(new_names.tolist(), NAMES.tolist(), strict=True))
        )
        assert found[1:] == expected[1:], what
        assert found[0] == pytest.approx(expected[0], rel=1e-7, abs=1e-9, nan_ok=True), what


def test_results_do_not_depend_on_the_order_of_rows_of_a_data_frame(few_trees):
    X, y, domain = table(4, 60, True)
    frame = pandas.DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    order = np.random.default_rng(1).permutation(len(y))
    options = {"methods": "constant,linear,boosting,invariantridge", "progress": False}
    framed = evaluate(frame.iloc[order], y[order], domain[order], **options)
    plain = evaluate(frame, y, domain, **options)
    for key, scores in plain.scores.items():
        assert framed.scores[key] == pytest.approx(scores, rel=1e-7)


@pytest.mark.parametrize("framed", [False, True], ids=["array", "frame of text"])
def test_groups_of_domains_and_fitted_models_depend_on_neither_if_domains_are_alike(framed):
    X, y, domain = table(12, 8, True)
    y = np.tile([0, 1], len(y) // 2)  # all domains have the same size and class shares
    X[:, 0] += y
    frame = pandas.DataFrame(X > 0, columns=list("abcd")).replace({True: "yes", False: "no"})
    X = frame if framed else X
    renamed = NAMES[np.random.default_rng(2).permutation(12)][np.searchsorted(NAMES, domain)]
    order = np.random.default_rng(1).permutation(len(y))
    methods = [("forest", RandomForestClassifier(5, random_state=0))]
    options = {"methods": methods, "progress": False, "max_rows": None}
    expected, *others = [
        evaluate(*rows, **options)
        for rows in (
            (X, y, domain),
            (X, y, renamed),
            (X.iloc[order] if framed else X[order], y[order], domain[order]),
        )
    ]
    for found in others:
        scores = [sorted(e.scores["forest"].values()) for e in (found, expected)]
        assert scores[0] == pytest.approx(scores[1])
        probabilities = expected.fit().predict_proba(X)
        np.testing.assert_allclose(found.fit().predict_proba(X), probabilities, atol=1e-9)
