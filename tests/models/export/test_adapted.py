"""ONNX graphs of models that were adapted to a site agree with the models."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier

pytest.importorskip("skl2onnx")
runtime = pytest.importorskip("onnxruntime")

from domainwise import (  # noqa: E402
    DomainEnsembleClassifier,
    DomainEnsembleRegressor,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
    SiteAdapter,
    to_onnx,
)
from domainwise.datasets import make_synthetic  # noqa: E402

MODELS = {
    "ensemble": (DomainEnsembleRegressor(["linear"]), DomainEnsembleClassifier(["linear"])),
    "ridge": (
        InvariantRidgeCV(kernels=["rbf"], gammas=[0.1]),
        InvariantRidgeClassifierCV(kernels=["rbf"], gammas=[0.1]),
    ),
    "adapter": (SiteAdapter(LinearRegression()), SiteAdapter(LogisticRegression())),
    "adapter of decisions": (None, SiteAdapter(RidgeClassifier())),
}


@pytest.mark.filterwarnings("ignore:X_site is missing")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [False, True])
def test_a_graph_includes_the_correction_for_the_site(name, classes):
    model = MODELS[name][classes]
    if model is None:
        pytest.skip("this adapter exists only for classifiers")
    data = make_synthetic(n_domains=6, n_per_domain=30, random_state=0)
    X, domain = data.data[:, 1:], data.sample_domain
    level = np.linspace(-3, 3, 6)[domain]
    y = np.where(X[:, 0] + level > 0, "yes", "no") if classes else data.data[:, 0] + level
    new = domain == 5
    site = model.fit(X[~new], y[~new], sample_domain=domain[~new]).adapt(X[new][:8], y[new][:8])
    assert np.any(site.corrections_["plain"])
    session = runtime.InferenceSession(to_onnx(site).SerializeToString())
    outputs = session.run(None, {session.get_inputs()[0].name: X[new]})
    if classes:
        assert (outputs[0] == site.predict(X[new])).all()
        assert np.asarray(outputs[1]) == pytest.approx(site.predict_proba(X[new]), abs=1e-9)
    else:
        assert outputs[0].ravel() == pytest.approx(site.predict(X[new]), abs=1e-9)
