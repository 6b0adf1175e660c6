"""What a user writes, for mypy: after R what it says an expression is, after E what it refuses.

Not run: test_typing.py has it checked with --strict.
"""

import numpy as np
from sklearn.metrics import accuracy_score

import domainwise as dw
from domainwise.datasets import make_synthetic
from domainwise.metrics import invariance_report, worst_domain_score
from domainwise.plots import CalibrationDisplay, DomainScoresDisplay
from domainwise.selection import (
    DomainConformal,
    InvariantSearchCV,
    LeaveDomainsOut,
    domain_cross_validate,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X[:, 0] > 0
d = np.arange(60) % 3

dcm = dw.DCM(2, kernel="laplacian", gamma=0.5, random_state=0).fit(X, y, sample_domain=d)
reveal_type(dcm)  # R: DCM
reveal_type(dcm.transform(X))  # R: NDArray
reveal_type(dcm.fit_transform(X.tolist(), y.tolist(), d.tolist()))  # R: NDArray
dw.DCM(kernel=lambda A, B: A @ B.T)
dw.DCM(gamma=[0.5])  # E: arg-type
dw.DCM(random_state="0")  # E: arg-type
dw.FastDCM(n_landmarks=50, landmarks=X).partial_fit(X, y, d)
reveal_type(dw.FastDCM(100).fit(X))  # R: FastDCM
reveal_type(dw.FastDCM(100).merge(dw.FastDCM(100)))  # R: FastDCM
dw.DCM().fit(X, y, sample_domains=d)  # E: call-arg

search = dw.DCMCV(gammas=[0.1, 1.0], ridges="auto", cv=LeaveDomainsOut(), scoring="accuracy")
reveal_type(search.fit(X, y, d))  # R: DCMCV
dw.DCMCV(gammas=0.1)  # E: arg-type
reveal_type(search.best_score_)  # R: float
reveal_type(search.n_splits_)  # R: int
dw.DCMCV(estimator="lda")  # E: arg-type
reveal_type(dw.FastDCMCV().fit(X, y, d).eigenvalues_)  # R: NDArray

machine = dw.InvariantSVC(C=10.0, class_weight="balanced", probability=True).fit(X, y, d)
reveal_type(machine)  # R: InvariantSVC
reveal_type(machine.predict(X))  # R: NDArray
reveal_type(machine.decision_function(X))  # R: NDArray
dw.InvariantSVC(C="10")  # E: arg-type

ridge = dw.InvariantRidgeClassifierCV(kernels=["rbf"], cv=5).fit(X, y, sample_domain=d)
reveal_type(ridge.predict(X))  # R: NDArray

reveal_type(ridge.best_score_)  # R: float
grid = {"domain_weight": [0.0, 0.1], "kernel": ["rbf", "linear"]}
reveal_type(InvariantSearchCV(machine, grid).fit(X, y, d).best_index_)  # R: int
InvariantSearchCV(machine, param_grid=["domain_weight"])  # E: list-item

ensemble = dw.DomainEnsembleClassifier(["linear"], context=False, time_budget=10).fit(X, y, d)
reveal_type(ensemble)  # R: DomainEnsembleClassifier
reveal_type(ensemble.predict_proba(X, sample_domain=d))  # R: NDArray
reveal_type(ensemble.predict_set(X, coverage=0.9))  # R: NDArray
reveal_type(dw.DomainContext(summary=True).fit(X).transform(X, sample_domain=d))  # R: NDArray

sets = DomainConformal(machine, calibration="split").fit(X, y, sample_domain=d)
reveal_type(sets.predict(X))  # R: NDArray

result = dw.evaluate(X, y, d, methods=["svm", "dcm"], scoring="accuracy", n_jobs=2)
reveal_type(result)  # R: Evaluation
dw.evaluate(X, y, d, n_jobs="2")  # E: arg-type
dw.evaluate(X, y, d, method="svm")  # E: call-arg
dw.evaluate(X, y, d, methods=["svm", ("mine", machine, {"C": [1.0, 10.0]})])
reveal_type(result.scores["dcm"]["A"])  # R: float
reveal_type(result.plot())  # R: Figure
dw.DomainEnsembleClassifier([("mine", machine), "linear"])
dw.DomainEnsembleClassifier(members=[5])  # E: list-item

display = DomainScoresDisplay.from_estimator({"mine": machine}, X, y, d)
reveal_type(display)  # R: DomainScoresDisplay
reveal_type(display.ax_)  # R: Axes
display.plot(ax=5)  # E: arg-type
DomainScoresDisplay.from_estimator("mine", X, y, d)  # E: arg-type
reveal_type(CalibrationDisplay.from_predictions(y, X[:, 0], d).figure_)  # R: Figure

for finding in dw.check_shift(machine, X, sample_domain=d):
    reveal_type(finding.kind)  # R: str

dw.save(dcm, "model.skops", info={"site": "A"})
dw.save(dcm, 5)  # E: arg-type
dw.save("model.skops", "model.skops")  # E: arg-type
dw.to_onnx("model.skops")  # E: arg-type
reveal_type(dw.load("model.skops"))  # R: Any

data = make_synthetic(n_domains=3, random_state=0)
dw.KPCA(n_components=2).fit(data.data, sample_domain=data.sample_domain)
reveal_type(worst_domain_score(y, y, d, accuracy_score))  # R: float
reveal_type(invariance_report(X, y, d))  # R: InvarianceReport
reveal_type(domain_cross_validate(machine, X, y, d))  # R: DomainScores
reveal_type(domain_cross_validate(machine, X, y, d).worst_domain)  # R: Hashable
domain_cross_validate("svm", X, y, d)  # E: arg-type
for train, test in LeaveDomainsOut().split(X, y, groups=d):
    reveal_type(train)  # R: NDArray
with dw.precision("tf32"):
    pass
