"""Shared computations do not change the scores of the candidates of a search."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR

from domainwise import DICA, KPCA, MDA, MIDA, SCA
from domainwise.held_out.search.driver import Data
from domainwise.held_out.search.scores import QuickDiscriminant, SmoothScore, quick_head
from domainwise.models.candidates import MethodSearchKind
from domainwise.models.tuning import MethodSearch
from domainwise.selection import LeaveDomainsOut


def make_rows(n=150, seed=0):
    rng = np.random.default_rng(seed)
    d = rng.choice(5, n)
    X = rng.standard_normal((n, 4)) + 0.5 * rng.standard_normal((5, 4))[d]
    t = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n)
    return X, np.array(["a", "b", "c"])[np.digitize(t, [-0.5, 0.7])], t, d


def projected(step, head=None):
    return Pipeline([("project", step), ("predict", head or LinearDiscriminantAnalysis())])


#: Solutions of support vector machines are equal up to their tolerance.
SEARCHES = {
    "SVC": (SVC(tol=1e-9), "", [{"C": c, "gamma": g} for g in (0.05, 0.5) for c in (0.1, 10.0)]),
    "SVC, balanced": (
        SVC(class_weight="balanced", gamma=0.2, tol=1e-9),
        "",
        [{"C": 1.0}, {"C": 50.0}],
    ),
    "SVR": (SVR(gamma=0.1, tol=1e-9), "", [{"C": c, "epsilon": 0.1} for c in (0.1, 3.0)]),
    "KPCA": (projected(KPCA()), "project", [{"gamma": 0.1, "n_components": k} for k in (3, 20)]),
    "KPCA, Laplacian": (
        projected(KPCA(kernel="laplacian", gamma=0.3)),
        "project",
        [{"n_components": k} for k in (4, 2, 6)],
    ),
    "KPCA, numbers": (projected(KPCA(), Ridge()), "project", [{"n_components": k} for k in (2, 9)]),
    "DICA": (
        projected(DICA(solver="dense")),
        "project",
        [{"gamma": g, "lam": lam} for g in (0.1, 0.4) for lam in (0.01, 10.0)],
    ),
    "SCA": (projected(SCA()), "project", [{"ridge": r, "domain_weight": 2.0} for r in (0.01, 1.0)]),
    "MDA": (projected(MDA()), "project", [{"domain_weight": w} for w in (0.1, 10.0)]),
    "MIDA": (projected(MIDA()), "project", [{"n_components": k} for k in (8, 3)]),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_with_a_common_kernel_are_scored_as_if_fitted_separately(name):
    model, step, candidates = SEARCHES[name]
    X, y, t, d = make_rows()
    numbers = "SVR" in name or "numbers" in name
    y = t if numbers else y
    scorer = SmoothScore(y, d, None if numbers else np.unique(y))
    kind, data = MethodSearchKind(model, step, []), Data(X, y, d)
    groups = kind.batches(candidates)
    assert len(groups) == len({str(c.get("gamma")) for c in candidates})
    for split in LeaveDomainsOut(2).split(X, None, d):
        for group in groups:
            mine = [candidates[i] for i in group]
            outcomes = kind.outcomes(data, [split], mine, scorer)
            for candidate, (values,) in zip(mine, outcomes, strict=True):
                ((expected,),) = kind.outcomes(data, [split], [candidate], scorer)
                np.testing.assert_allclose(values, expected, atol=1e-8)


def test_a_search_chooses_the_same_with_and_without_sharing(monkeypatch):
    X, y, _, d = make_rows()
    search = MethodSearch(
        SVC(), {"gamma": [0.1, 1.0, 5.0], "C": [0.1, 1.0, 10.0]}, {"gamma": "median"}
    )
    together = clone(search).fit(X, y, sample_domain=d)
    monkeypatch.setattr(
        "domainwise.models.candidates.batches_by", lambda c, names: [[i] for i in range(len(c))]
    )
    unshared = clone(search).fit(X, y, sample_domain=d)
    assert together.best_params_ == unshared.best_params_
    assert together.n_candidates_ == unshared.n_candidates_ == 9
    np.testing.assert_array_equal(together.decision_function(X), unshared.decision_function(X))


def test_a_users_own_estimator_gets_rows_and_no_kernel():
    X, y, _, d = make_rows()
    seen = []

    class Looking(SVC):
        def fit(self, X, y):
            seen.append(X.shape[1])
            return super().fit(X, y)

    MethodSearch(Looking(), {"C": [0.1, 1.0]}, own=True).fit(X, y, sample_domain=d)
    assert set(seen) == {4}


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("columns", [1, 3, 12])
def test_the_quick_discriminant_is_that_of_scikit_learn(classes, columns):
    rng = np.random.default_rng(0)
    codes = rng.choice(classes, 90, p=np.arange(1, classes + 1) / (classes * (classes + 1) / 2))
    X = rng.standard_normal((90, columns)) * 10.0 ** rng.integers(-3, 4, columns)
    X += rng.standard_normal((classes, columns))[codes]
    X = np.hstack([X, X[:, :1], np.ones((90, 1))])  # a duplicate and a constant column
    y = np.array(list("uvwxyz"))[codes]
    head = LinearDiscriminantAnalysis()
    quick, reference = quick_head(head).fit(X, y), clone(head).fit(X, y)
    assert isinstance(quick, QuickDiscriminant)
    np.testing.assert_allclose(
        quick.decision_function(X), reference.decision_function(X), atol=1e-8
    )
    np.testing.assert_array_equal(quick.predict(X), reference.predict(X))
    np.testing.assert_allclose(quick.predict_proba(X), reference.predict_proba(X), atol=1e-8)


def test_a_discriminant_with_other_arguments_is_not_replaced():
    head = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    assert quick_head(head).get_params() == head.get_params()
