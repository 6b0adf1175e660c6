"""Awkward inputs and what was decided about each: a line of the table is a case.

``works`` means that it works; anything else is what the refusal says. To add a case, add a line.
"""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import domainwise as dw
from domainwise.selection import DCMCV, InvariantSearchCV, LeaveDomainsOut

pandas = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
D = np.arange(24) % 3
Y = np.arange(24) // 3 % 2
FRAME = pandas.DataFrame(X, columns=list("abc"))
NAN = float("nan")


def search(step=None):
    machine = dw.InvariantSVC()
    if step is None:
        return InvariantSearchCV(machine, {"C": [1.0]})
    return InvariantSearchCV(make_pipeline(step, machine), {"invariantsvc__C": [1.0]})


def split(groups):
    return lambda: list(LeaveDomainsOut().split(X, Y, groups=groups))


def fit(model, X=X, y=Y, domains=D):
    return lambda: model.fit(X, y, sample_domain=domains)


BY_NAME = make_column_transformer((StandardScaler(), ["a", "b"]))

#: Name, input, outcome, why.
CASES = [
    ("too few groups", split(D[:20]), "20 entries.*24 rows", "rows would be left out"),
    ("too many groups", split([*D, 0]), "25 entries.*24 rows", "indices that do not exist"),
    ("a missing group", split([0.0, 1.0, NAN] * 8), "NaN", "no domain is called nan"),
    (
        "nan among domains' names",
        fit(dw.DCM(), domains=["a", "b", NAN] * 8),
        "missing values",
        "no domain is called nan",
    ),
    (
        "nan among classes' names",
        fit(dw.InvariantSVC(), y=["a", NAN, "b"] * 8),
        "NaN|missing",
        "no class is called nan",
    ),
    (
        "... of a ridge",
        fit(dw.InvariantRidgeClassifierCV(), y=["a", NAN, "b"] * 8),
        "NaN|missing",
        "no class is called nan",
    ),
    (
        "... of a search",
        fit(search(), y=["a", NAN, "b"] * 8),
        "NaN|missing",
        "no class is called nan",
    ),
    (
        "... of a projection",
        fit(DCMCV(), y=["a", NAN, "b"] * 8),
        "NaN|missing",
        "no class is called nan",
    ),
    (
        "numbers of 65 bits",
        fit(dw.DCM(), domains=[2**64, 2**64 + 1, 1] * 8),
        "64 bits",
        "two would become one",
    ),
    (
        "numbers of 64 bits",
        fit(dw.DCM(), domains=np.array([2**63, 2**63 + 1, 1] * 8, np.uint64)),
        "works",
        "all different",
    ),
    ("short y in a search", fit(search(), y=Y[:20]), "20 entries.*24 rows", "not an IndexError"),
    ("one column as a list", fit(search(), X=X[:, 0]), "2D array", "rows or columns?"),
    ("NaN in a search", fit(search(), X=np.where(X > 1, NAN, X)), "NaN", "a machine takes none"),
    ("columns by name", fit(search(BY_NAME), X=FRAME), "works", "GridSearchCV takes them"),
    (
        "columns in another order",
        lambda: search().fit(FRAME, Y, sample_domain=D).predict(FRAME[["b", "a", "c"]]),
        "same order",
        "results would change",
    ),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case, outcome", [c[1:3] for c in CASES], ids=[c[0] for c in CASES])
def test_the_outcome_is_the_decided_one(case, outcome):
    if outcome == "works":
        case()
    else:
        with pytest.raises(ValueError, match=outcome):
            case()
