"""ONNX graphs of models, and of their parts, agree with Python."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

runtime = pytest.importorskip("onnxruntime")

import domainwise  # noqa: E402
from domainwise import (  # noqa: E402
    DCM,
    DCMCV,
    DomainContext,
    DomainEnsembleClassifier,
    DomainEnsembleRegressor,
    FastDCM,
    InvariantFeatures,
    InvariantKernel,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
    InvariantSVC,
    InvariantSVR,
    ShiftWatch,
    to_onnx,
)
from domainwise.datasets import make_synthetic  # noqa: E402
from domainwise.estimators import projections as estimators  # noqa: E402
from domainwise.models.registry import METHODS, Setting  # noqa: E402
from domainwise.selection import DomainConformal, InvariantSearchCV  # noqa: E402

DATA = make_synthetic(n_domains=4, n_per_domain=20, random_state=0)
X, DOMAIN = DATA.data, DATA.sample_domain
TWO = np.array(["no", "yes"])[(DATA.target > 0).astype(int)]
THREE = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6])) + 5
NUMBERS = 100 * X[:, 0] + 1e4
#: Training rows, rows near them, a zero row, and distant rows.
NEW = np.vstack([X[:20], X[:20] + 0.3, np.zeros((1, X.shape[1])), 1e3 * X[:5]])


def run(model, rows=NEW):
    rows = rows if isinstance(rows, dict) else {"X": rows}
    session = runtime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, rows)


def assert_same(model, rows=NEW, tolerance=1e-9):
    """Check that graph and model agree to more digits than float32 has."""
    outputs = run(model, rows)
    if hasattr(model, "predict"):
        expected = model.predict(rows)
        if hasattr(model, "classes_"):
            np.testing.assert_array_equal(outputs[0], expected)
            name = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
            expected = getattr(model, name)(rows)
    else:
        expected = model.transform(rows)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(
        outputs[-1].reshape(expected.shape), expected, atol=tolerance * scale
    )


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "cosine", "laplacian"])
@pytest.mark.parametrize("name", estimators.__all__)
def test_every_projection_agrees_with_every_kernel(name, kernel):
    model = getattr(estimators, name)(kernel=kernel, n_components=2)
    assert_same(model.fit(X, THREE, sample_domain=DOMAIN))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_fourier_features_agree(kernel):
    model = FastDCM(kernel=kernel, feature_map="fourier", n_landmarks=51)
    assert_same(model.fit(X, TWO, sample_domain=DOMAIN), NEW[:-5])


@pytest.mark.parametrize(
    "arguments",
    [
        {"gamma": 1e-12},
        {"gamma": 1e8},
        {"kernel": "poly", "degree": 2.5, "coef0": 50.0},
        {"kernel": "poly", "degree": 1, "coef0": 0.0},
    ],
)
def test_kernels_with_extreme_gammas_agree(arguments):
    assert_same(DCM(**arguments).fit(X, TWO, sample_domain=DOMAIN), NEW[:-5], 1e-6)


@pytest.mark.parametrize("decision", ["argmax", "balanced", 0.2])
@pytest.mark.parametrize("key", ["linear", "svm", "boosting", "dcmcv", "invariant", "constant"])
def test_calibrated_probabilities_and_decisions_of_methods_agree(key, decision):
    for target in (TWO, THREE):
        if target is THREE and decision == 0.2:
            continue
        setting = Setting(True, len(X), metric="balanced_accuracy", decision=decision)
        method = METHODS[key].make(setting)
        if method.searches and key == "dcmcv":
            method.set_params(grid={"gammas": [0.1], "ridges": [0.1], "domain_weights": [1.0]})
            method.set_params(units=None)
        assert_same(method.fit(X, target, sample_domain=DOMAIN))


@pytest.mark.parametrize("decision", ["argmax", "balanced", 0.7])
def test_decisions_of_ridge_models_agree_with_and_without_probabilities(decision):
    grid = dict(kernels=["rbf"], gammas=[0.1], alphas=[1.0], domain_weights=[0.0], landmarks=X[::4])
    model = InvariantRidgeClassifierCV(decision=decision, class_weight="balanced", **grid)
    assert_same(model.fit(X, TWO, sample_domain=DOMAIN))
    batches = InvariantRidgeClassifierCV(decision=decision, class_weight="balanced", **grid)
    for d in np.unique(DOMAIN):
        rows = d == DOMAIN
        batches.partial_fit(X[rows], TWO[rows], sample_domain=DOMAIN[rows])
    assert_same(batches)


def test_features_far_from_zero_and_duplicated_rows_agree():
    rows = np.vstack([X, X[:10]]) + 1e6
    model = DCM().fit(rows, np.r_[TWO, TWO[:10]], sample_domain=np.r_[DOMAIN, DOMAIN[:10]])
    assert_same(model, NEW[:40] + 1e6, 1e-6)


def test_a_model_of_float32_rows_agrees_to_float32_precision():
    model = DCM().fit(X.astype(np.float32), TWO, sample_domain=DOMAIN)
    assert_same(model, NEW[:-5], 1e-5)


@pytest.mark.parametrize(
    "model", [DCM(kernel="precomputed"), InvariantKernel(kernel="precomputed")]
)
def test_precomputed_matrices_agree_even_if_they_are_not_kernels(model):
    K = X @ X.T - 3.0 * np.outer(X[:, 0], X[:, 0])
    with pytest.warns(UserWarning, match="kernel"):
        model.fit(K, TWO, sample_domain=DOMAIN)
    assert_same(model, K[:7])


def test_a_search_for_dcm_agrees():
    model = DCMCV(gammas=[0.1], ridges=[1e-2], domain_weights=[0.0, 1.0])
    assert_same(model.fit(X, TWO, sample_domain=DOMAIN))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("solver", ["exact", "fast"])
@pytest.mark.parametrize("probability", [False, True])
def test_invariant_svm_classifiers_agree(y, solver, probability):
    model = InvariantSVC(solver=solver, probability=probability, C=100.0, domain_weight=0.1)
    assert_same(model.fit(X, y, sample_domain=DOMAIN))


@pytest.mark.parametrize("solver", ["exact", "fast"])
def test_invariant_svm_regressors_agree(solver):
    model = InvariantSVR(C=1e3, solver=solver, kernel="laplacian")
    assert_same(model.fit(X, NUMBERS, sample_domain=DOMAIN))


@pytest.mark.parametrize("model", [InvariantKernel(), InvariantFeatures(n_landmarks=30)])
def test_invariant_kernels_and_features_agree(model):
    assert_same(model.fit(X, TWO, sample_domain=DOMAIN))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_invariant_ridge_classifiers_agree(y):
    model = InvariantRidgeClassifierCV(n_average=3)
    assert_same(model.fit(X, y, sample_domain=DOMAIN))


def test_invariant_ridge_without_probabilities_gives_decisions():
    model = InvariantRidgeClassifierCV(n_average=3).partial_fit(X, THREE, sample_domain=DOMAIN)
    assert [o.name for o in to_onnx(model).graph.output] == ["prediction", "decisions"]
    assert_same(model)


def test_invariant_ridge_with_several_targets_agrees():
    model = InvariantRidgeCV(n_average=3)
    assert_same(model.fit(X, np.c_[NUMBERS, X[:, 1]], sample_domain=DOMAIN))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_averages_of_svms_agree(y):
    search = InvariantSearchCV(InvariantSVC(), {"gamma": [0.01, 0.1, 1.0]}, n_average=3)
    assert_same(search.fit(X, y, sample_domain=DOMAIN))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_an_ensemble_with_a_custom_member_agrees_on_rows_with_missing_values(y):
    own = make_pipeline(StandardScaler(), SVC(C=10.0))
    model = DomainEnsembleClassifier(["linear", "invariant_svm", ("svm", own)], context=False)
    gaps = NEW.copy()
    gaps[::3, 0] = np.nan
    gaps[1::3, 1] *= 1e3  # outside the range of the source domains
    assert_same(model.fit(X, y, sample_domain=DOMAIN), gaps)


def test_a_regression_ensemble_agrees_without_context():
    model = DomainEnsembleRegressor(["linear", "boosting"], context=True)
    assert_same(model.fit(X, NUMBERS, sample_domain=DOMAIN), tolerance=1e-6)


def test_a_member_fitted_without_one_of_the_classes_agrees():
    model = DomainEnsembleClassifier(["linear"], context=False).fit(X, THREE, sample_domain=DOMAIN)
    (member,) = model.members_.values()
    rows = THREE != 7
    member.estimators[0] = LogisticRegression().fit(X[rows], np.searchsorted([5, 6], THREE[rows]))
    assert_same(model)


@pytest.mark.parametrize(
    "machine",
    [
        SVC(C=100.0),
        SVC(kernel="poly", coef0=0.5, break_ties=True),
        SVC(kernel="linear", decision_function_shape="ovo"),
    ],
)
def test_support_vector_machines_for_three_classes_agree(machine):
    assert_same(machine.fit(X, THREE))


def test_a_tie_between_two_classes_is_broken_as_libsvm_does():
    machine = SVC(kernel="linear").fit([[-1.0], [1.0]], [0, 1])
    assert machine.decision_function([[0.0]])[0] == 0.0
    assert run(machine, np.zeros((1, 1)))[0][0] == machine.predict([[0.0]])[0]


TREES = [
    (ExtraTreesClassifier(20, random_state=0), THREE),
    (RandomForestClassifier(20, random_state=0), TWO),
    (ExtraTreesRegressor(20, random_state=0), NUMBERS),
    (HistGradientBoostingClassifier(max_iter=20), THREE),
    (HistGradientBoostingClassifier(max_iter=20), TWO),
    (HistGradientBoostingRegressor(max_iter=20), NUMBERS),
    (HistGradientBoostingRegressor(max_iter=20, loss="poisson"), np.exp(X[:, 0])),
]


@pytest.mark.parametrize(("model", "y"), TREES, ids=lambda value: type(value).__name__)
def test_trees_agree_with_missing_values_and_on_their_thresholds(model, y):
    gaps = X.copy()
    gaps[::4, 0] = np.nan
    # These differences vanish in float32, which only boosting does not use.
    gaps[:, 1] = 1e4 + np.round(gaps[:, 1], 1) * 1e-3
    assert_same(model.fit(gaps, y), gaps, 1e-6)


def test_scikit_learn_steps_are_converted_and_a_shift_watch_is_omitted():
    model = make_pipeline(ShiftWatch(), MinMaxScaler(), DCM(), LogisticRegression())
    assert_same(model.fit(X, TWO))


def test_searches_and_calibrated_models_are_converted_as_the_model_inside():
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]})
    assert_same(DomainConformal(search).fit(X, TWO, sample_domain=DOMAIN))


def test_text_columns_are_imputed_and_unknown_values_are_ignored():
    pandas = pytest.importorskip("pandas")
    words = np.array(["a", "b", "über"], dtype=object)[np.arange(len(X)) % 3]
    words[5] = np.nan
    frame = pandas.DataFrame({"x": X[:, 0], "Größe": words, "gap": np.nan})
    text = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    transformers = [("n", SimpleImputer(), ["gap", "x"]), ("t", text, ["Größe"])]
    model = make_pipeline(ColumnTransformer(transformers), SVR())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping features")
        model.fit(frame, NUMBERS)
        frame.loc[:2, "Größe"] = ["new", np.nan, "b"]
        frame.loc[3, "x"] = np.nan
        expected = model.predict(frame)
    columns = {name: frame[[name]].to_numpy() for name in ("x", "gap")}
    columns["Größe"] = frame[["Größe"]].fillna("").to_numpy(dtype=object)
    np.testing.assert_allclose(run(model, columns)[0][:, 0], expected, rtol=1e-9)


def test_rare_and_unknown_categories_are_pooled_in_the_graph():
    pandas = pytest.importorskip("pandas")
    rows = np.arange(len(X))
    frame = pandas.DataFrame(
        {"u": np.array(["a", "b"])[rows % 2], "v": "rare " + pandas.Series(rows).astype(str)}
    )
    frame.loc[:3, "u"] = ["c", "d", "c", "e"]
    frame.loc[4:30, "v"] = "often"
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5)
    model = make_pipeline(ColumnTransformer([("t", encoder, ["u", "v"])]), LinearRegression())
    model.fit(frame, NUMBERS)
    frame.loc[5:8, ["u", "v"]] = "never seen"
    expected = model.predict(frame)
    columns = {name: frame[[name]].to_numpy(dtype=object) for name in frame}
    np.testing.assert_allclose(run(model, columns)[0][:, 0], expected, rtol=1e-9)
    for refused in (OneHotEncoder(drop="first"), OneHotEncoder(min_frequency=5)):
        model = make_pipeline(ColumnTransformer([("t", refused, ["u", "v"])]), LinearRegression())
        with pytest.raises(ValueError, match="cannot convert OneHotEncoder with"):
            domainwise.to_onnx(model.fit(frame, NUMBERS))


def test_a_placeholder_for_missing_numbers_is_imputed():
    gaps = X.copy()
    gaps[::3, 0] = -999.0
    model = make_pipeline(SimpleImputer(missing_values=-999.0, strategy="median"), SVR())
    assert_same(model.fit(gaps, NUMBERS), gaps)


@pytest.mark.parametrize("classes", [[False, True], [1.0, 2.0], [3, 9]])
def test_predicted_labels_have_the_type_of_the_classes(classes):
    model = InvariantSVC().fit(X, np.array(classes)[(TWO == "yes").astype(int)])
    np.testing.assert_array_equal(run(model)[0], model.predict(NEW))


def test_classes_beyond_the_range_of_int64_are_refused():
    model = LogisticRegression().fit(X, np.uint64(2**63) + (TWO == "yes"))
    with pytest.raises(ValueError, match="LogisticRegression with classes that are too large for"):
        to_onnx(model)
    small = LogisticRegression().fit(X, (TWO == "yes").astype(np.uint64))
    assert run(small)[0].dtype == np.int64


def test_errors_name_the_part_that_cannot_be_converted():
    def own(A, B):
        return A @ B.T

    knn = DomainEnsembleClassifier(["linear", ("near", KNeighborsClassifier())], context=False)
    context = make_pipeline(DomainContext(), SVC())
    for model, words in [
        (DCM(kernel=own), "own"),
        (make_pipeline(DCM(kernel=own), SVC()), "Python function"),
        (context, "DomainContext .it needs all rows of a domain"),
        (DummyClassifier(strategy="uniform"), "DummyClassifier with strategy='uniform'"),
        (SVC(kernel="sigmoid"), "SVC with kernel='sigmoid'"),
        (make_pipeline(Unknown(), SVC()), "Unknown"),
    ]:
        with pytest.raises(ValueError, match=words):
            to_onnx(model.fit(X, TWO))
    fitted = knn.fit(X, TWO, sample_domain=DOMAIN)
    with pytest.raises(ValueError, match="member 'near' of DomainEnsembleClassifier.*KNeigh"):
        to_onnx(fitted)


class Unknown(StandardScaler):
    """An unknown type whose base class can be converted."""


def test_unfitted_models_and_other_objects_are_rejected():
    with pytest.raises(NotFittedError):
        to_onnx(DCM())
    with pytest.raises(TypeError):
        to_onnx(DCM)


def test_converters_of_other_packages_are_not_changed():
    import skl2onnx

    before = dict(skl2onnx._supported_operators.sklearn_operator_name_map)
    to_onnx(SVC().fit(X, TWO))
    assert skl2onnx._supported_operators.sklearn_operator_name_map == before


def test_the_error_names_a_missing_extra():
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import domainwise\n"
        "try: domainwise.to_onnx(None)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "domainwise[onnx]"' in done.stdout
    assert domainwise.to_onnx is to_onnx
