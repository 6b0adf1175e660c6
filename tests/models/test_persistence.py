"""Saved models predict the same bits, and no file makes load run anything."""

import copy
import io
import json
import os
import pickle
import warnings
import zipfile

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

import domainwise as dw
from domainwise.datasets import make_synthetic
from domainwise.models.persistence import FORMAT, ModelFileError, load, read_info, save
from domainwise.selection import DCMCV, FastDCMCV, InvariantSearchCV, LeaveDomainsOut

skops_io = pytest.importorskip("skops.io")
pandas = pytest.importorskip("pandas")

DATA = make_synthetic(n_domains=4, n_per_domain=20, random_state=0)
SITES = np.array(["north", "south", "east", "west"])[DATA.sample_domain]
CONTINUOUS = DATA.data[:, 0] + 0.1 * DATA.data[:, 1]

SEARCH = dict(gammas=[0.1], ridges=[1e-2, np.inf], domain_weights=[0.0, 1.0])
PROJECTIONS = [
    dw.DCM(),
    dw.DCM(kernel="laplacian", conditional=True),
    dw.DCM(n_components=3, kernel="poly"),
    dw.COIR(ridge=np.inf),
    dw.DICA(),
    dw.KPCA(n_components=2, kernel="cosine"),
    dw.MIDA(n_components=2),
    dw.FastMIDA(n_components=2, n_landmarks=20),
    dw.FastDCM(n_landmarks=20),
    dw.FastCOIR(n_landmarks=20),
    dw.FastDICA(n_landmarks=20),
    dw.FastKPCA(n_components=2, n_landmarks=20),
    DCMCV(cv=LeaveDomainsOut(2), estimator=LogisticRegression(), **SEARCH),
    FastDCMCV(n_landmarks=20, **SEARCH),
    dw.InvariantFeatures(n_landmarks=20),
]
OF_CLASSES = [
    dw.SCA(n_components=2),
    dw.MDA(),
    dw.FastSCA(n_components=2, n_landmarks=20),
    dw.FastMDA(n_landmarks=20),
]
CLASSIFIERS = [
    SVC(class_weight="balanced"),
    LinearSVC(),
    LinearDiscriminantAnalysis(),
    LogisticRegression(class_weight={-1: 1.0, 1: 2.0, 2: 1.0}),
    CalibratedClassifierCV(SVC(), cv=2),
    CalibratedClassifierCV(HistGradientBoostingClassifier(max_iter=3), cv=2, method="isotonic"),
    HistGradientBoostingClassifier(max_iter=4),
    DummyClassifier(),
    dw.InvariantSVC(),
    dw.InvariantSVC(probability=True),
    dw.InvariantSVC(solver="fast"),
    InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0, 10.0], "domain_weight": [0.1]}),
    dw.InvariantRidgeClassifierCV(gammas=[0.1], alphas=[1.0]),
]
REGRESSORS = [
    SVR(),
    Ridge(),
    KernelRidge(),
    TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
    HistGradientBoostingRegressor(max_iter=4),
    HistGradientBoostingRegressor(max_iter=4, loss="absolute_error"),
    DummyRegressor(),
    dw.InvariantRidgeCV(gammas=[0.1], alphas=[1.0]),
    dw.InvariantSVR(),
    dw.InvariantSVR(solver="fast"),
]


def fitted(model, y=DATA.target, X=DATA.data):
    with warnings.catch_warnings(), config_context(enable_metadata_routing=True):
        warnings.simplefilter("ignore")
        try:
            return clone(model).fit(X, y, sample_domain=SITES)
        except TypeError:  # no step asks for domains
            return clone(model).fit(X, y)


def through_file(model, path):
    save(model, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


@pytest.mark.parametrize(
    ("projection", "y"),
    [
        *((projection, y) for projection in PROJECTIONS for y in (DATA.target, CONTINUOUS)),
        *((projection, DATA.target) for projection in OF_CLASSES),
    ],
    ids=lambda value: repr(value)[:40] if hasattr(value, "fit") else value.dtype.kind,
)
def test_a_projection_and_its_predictor_come_back_to_the_bit(projection, y, path):
    if y is CONTINUOUS:
        projection = clone(projection)
        for name in {"conditional", "estimator"} & set(projection.get_params(deep=False)):
            projection.set_params(**{name: {"conditional": False}.get(name)})
    head = SVC() if y is DATA.target else Ridge()
    model = fitted(make_pipeline(StandardScaler(), projection, head), y)
    again = through_file(model, path)
    np.testing.assert_array_equal(again[:-1].transform(DATA.data), model[:-1].transform(DATA.data))
    np.testing.assert_array_equal(again.predict(DATA.data), model.predict(DATA.data))
    assert repr(again) == repr(model)


@pytest.mark.parametrize("predictor", CLASSIFIERS + REGRESSORS, ids=lambda model: repr(model)[:60])
def test_a_predictor_comes_back_to_the_bit(predictor, path):
    y = CONTINUOUS if any(predictor is each for each in REGRESSORS) else DATA.target + 0
    if y is not CONTINUOUS:
        y = y.copy()
        y[:9] = 2  # three classes need other parts of scikit-learn than two
    model = fitted(make_pipeline(MinMaxScaler(), predictor), y)
    again = through_file(model, path)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            expected = getattr(model, method)(DATA.data)
            np.testing.assert_array_equal(getattr(again, method)(DATA.data), expected)


def test_text_labels_and_column_names_come_back(path):
    frame = pandas.DataFrame(DATA.data, columns=[f"x{i}" for i in range(DATA.data.shape[1])])
    y = np.where(DATA.target == DATA.target[0], "ill", "well")
    model = fitted(dw.DCM(), y, frame)
    again = through_file(model, path)
    assert again.classes_.tolist() == ["ill", "well"]
    assert again.domains_.tolist() == ["east", "north", "south", "west"]
    assert again.feature_names_in_.tolist() == list(frame.columns)


def test_a_loaded_fast_model_goes_on_learning(path):
    first, rest = slice(None, 40), slice(40, None)
    model = dw.FastDCM(n_landmarks=20)
    model.partial_fit(DATA.data[first], DATA.target[first], SITES[first])
    again = through_file(model, path)
    for each in (model, again):
        each.partial_fit(DATA.data[rest], DATA.target[rest], SITES[rest])
    np.testing.assert_array_equal(again.transform(DATA.data), model.transform(DATA.data))
    assert pickle.loads(pickle.dumps(model))._sums.groups.keys() == model._sums.groups.keys()


def test_a_model_that_is_not_fitted_keeps_its_arguments(path):
    assert repr(through_file(dw.DCM(gamma=0.3, ridge=np.inf), path)) == repr(
        dw.DCM(gamma=0.3, ridge=np.inf)
    )


def test_the_header_is_read_without_the_model(path):
    save(dw.DCM(), path, info={"columns": ["a"]})
    header = read_info(path)
    assert header["format"] == FORMAT
    assert header["model"] == "DCM"
    assert header["info"] == {"columns": ["a"]}
    assert header["versions"]["domainwise"] == dw.__version__


def linear_kernel(X, Y):
    return X @ Y.T


class Own(dw.DCM):
    """A type that nobody has reviewed."""


@pytest.mark.parametrize(
    "model, message",
    [
        (dw.DCM(kernel=linear_kernel), "kernel is the function 'linear_kernel'"),
        (make_pipeline(dw.DCM(target_kernel=linear_kernel)), "dcm__target_kernel is the function"),
        (SVC(kernel=lambda X, Y: X @ Y.T), "functions cannot be saved"),
        (Own(), r"holds .*Own, which no model"),
        (fitted(RandomForestClassifier(n_estimators=2)), "RandomForestClassifier"),
        (object(), "cannot be saved|no model"),
    ],
)
def test_what_cannot_be_loaded_safely_is_not_saved(model, message, path):
    with pytest.raises(ModelFileError, match=message):
        save(model, path)
    assert not list(path.parent.iterdir())


def test_routing_requests_that_refer_to_their_owner_are_named(path):
    with config_context(enable_metadata_routing=True):
        model = SVC().set_fit_request(sample_weight=True)
        with pytest.raises(ModelFileError, match="set_fit_request"):
            save(model, path)


def test_a_model_that_cannot_be_saved_spares_the_file_that_is_there(path):
    save(dw.DCM(gamma=0.5), path)
    with pytest.raises(ModelFileError):
        save(Own(), path)
    assert load(path).gamma == 0.5
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


# ---- files that must not be loaded ----------------------------------------------------------


class Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def rewritten(path, change, *, compression=zipfile.ZIP_STORED):
    """The model file with its parts changed: ``change(parts)`` edits a dict of bytes."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    path.write_bytes(buffer.getvalue())


def edit_json(name, edit):
    def change(parts):
        value = json.loads(parts[name])
        edit(value)
        parts[name] = json.dumps(value).encode()

    return change


def attributes(schema):
    """Attributes of the object at the root of a model file."""
    return schema["content"]["content"]


def test_a_pickle_is_refused_and_not_run(path):
    sprung = path.parent / "sprung"
    for protocol in (0, 2, 5):
        path.write_bytes(pickle.dumps(Trap(sprung), protocol=protocol))
        with pytest.raises(ModelFileError, match="pickle|no model file"):
            load(path)
    path.write_bytes(b"not a model")
    with pytest.raises(ModelFileError, match="no model file"):
        load(path)
    assert not sprung.exists()


@pytest.mark.parametrize("length", [0, 1, 10, 1000, -1, -30])
def test_a_truncated_file_is_refused(length, path):
    save(fitted(dw.DCM()), path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelFileError, match="empty|no model file|damaged"):
        load(path)


def test_a_flipped_byte_is_noticed_wherever_it_is(path):
    save(fitted(dw.DCM()), path)
    content = path.read_bytes()
    for place in range(40, len(content) - 40, len(content) // 25):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        # Some bytes of a zip archive, such as dates, mean nothing.
        try:
            again = load(path)
        except ModelFileError:
            continue
        assert repr(again) == repr(dw.DCM())


def test_a_file_of_a_later_version_is_refused(path):
    save(dw.DCM(), path)
    rewritten(path, edit_json("domainwise.json", lambda header: header.update(format=FORMAT + 1)))
    for read in (load, read_info):
        with pytest.raises(ModelFileError, match="pip install --upgrade"):
            read(path)


def test_another_scikit_learn_is_a_warning(path):
    save(dw.DCM(), path)
    rewritten(
        path,
        edit_json("domainwise.json", lambda h: h["versions"].update({"scikit-learn": "1.0"})),
    )
    with pytest.warns(UserWarning, match="written with scikit-learn 1.0"):
        load(path)


@pytest.mark.parametrize(
    "node",
    [
        {"__loader__": "FunctionNode", "__module__": "os", "__class__": "system"},
        {"__loader__": "FunctionNode", "__module__": "numpy", "__class__": "add"},
        {"__loader__": "TypeNode", "__module__": "subprocess", "__class__": "Popen"},
        {"__loader__": "ObjectNode", "__module__": "os", "__class__": "_wrap_close"},
        {
            "__loader__": "ConstructorFromReduceNode",
            "__module__": "os",
            "__class__": "mkdir",
            "content": {
                "__loader__": "JsonNode",
                "__module__": "builtins",
                "__class__": "str",
                "content": '["sprung"]',
            },
        },
        {"__loader__": "MethodNode", "__module__": "sklearn.svm._classes", "__class__": "SVC"},
        {"__loader__": "PartialNode", "__module__": "functools", "__class__": "partial"},
        # A listed type, but built in a way that calls it.
        {
            "__loader__": "ConstructorFromReduceNode",
            "__module__": "sklearn.svm._classes",
            "__class__": "SVC",
        },
        {"__loader__": ["ObjectNode"], "__module__": "os", "__class__": "system"},
        {"__loader__": "NdArrayNode", "__module__": "os", "__class__": "system", "type": "numpy"},
        {"__loader__": "TreeNode", "__module__": "sklearn.tree._tree", "__class__": "Tree"},
    ],
    ids=lambda node: f"{node['__loader__']}-{node['__class__']}",
)
def test_any_other_type_is_refused_before_anything_is_built(node, path, monkeypatch):
    save(dw.DCM(), path)
    rewritten(path, edit_json("schema.json", lambda s: attributes(s).update(gamma=node)))
    monkeypatch.setattr(skops_io, "loads", lambda *_, **__: pytest.fail("skops was asked to load"))
    with pytest.raises(ModelFileError, match=node["__class__"]):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.pop("schema.json"),
        lambda parts: parts.pop("domainwise.json"),
        lambda parts: parts.update({"schema.json": b"{"}),
        lambda parts: parts.update({"schema.json": b"[" * 100_000}),
        lambda parts: parts.update({"schema.json": b"[]"}),
        lambda parts: parts.update({"domainwise.json": b"[]"}),
        edit_json("domainwise.json", lambda header: header.update(format="new")),
        edit_json("domainwise.json", lambda header: header.update(format=float("inf"))),
        edit_json("schema.json", lambda schema: schema.update(protocol=0)),
        edit_json("schema.json", lambda schema: schema.update(protocol="x")),
        edit_json("schema.json", lambda schema: schema.update(content={})),
        lambda parts: parts.pop(next(name for name in parts if name.endswith(".npy"))),
    ],
)
def test_parts_that_are_missing_or_wrong_are_refused(change, path):
    save(fitted(dw.DCM()), path)
    rewritten(path, change)
    with pytest.raises(ModelFileError, match="damaged|not written by domainwise"):
        load(path)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(path):
    save(dw.DCM(), path)
    rewritten(path, lambda parts: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        load(path)


def test_an_array_that_is_a_pickle_is_refused_and_not_run(path):
    sprung = path.parent / "sprung"
    save(fitted(dw.DCM()), path)
    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap(sprung)], dtype=object), allow_pickle=True)

    def change(parts):
        for name in parts:
            if name.endswith(".npy"):
                parts[name] = buffer.getvalue()

    rewritten(path, change)
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)
    assert not sprung.exists()


def test_a_plain_skops_file_is_refused(path):
    skops_io.dump(dw.DCM(), path)
    with pytest.raises(ModelFileError, match="not written by domainwise"):
        load(path)


def test_a_file_that_is_not_there_is_named(path):
    with pytest.raises(ModelFileError, match="no such file"):
        load(path)
    with pytest.raises(ModelFileError, match="folder"):
        load(path.parent)


def test_trees_that_point_outside_of_themselves_are_refused(path):
    model = fitted(HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5))
    for field, value in [("left", 10_000), ("right", 0), ("feature_idx", 99), ("feature_idx", -1)]:
        broken = copy.deepcopy(model)
        broken._predictors[0][0].nodes[field][0] = value
        with pytest.raises(ModelFileError, match="points outside"):
            save(broken, path)
    broken = copy.deepcopy(model)
    broken._predictors[0][0].nodes["is_categorical"][0] = 1
    with pytest.raises(ModelFileError, match="encode them as numbers"):
        save(broken, path)


@pytest.mark.parametrize("model", [SVC(), SVR(), SVC(kernel="precomputed")], ids=repr)
def test_support_vector_machines_whose_arrays_do_not_fit_are_refused(model, path):
    X = DATA.data @ DATA.data.T if model.kernel == "precomputed" else DATA.data
    model = model.fit(X, DATA.target)
    save(model, path)
    load(path)
    for name, value in [
        ("support_", model.support_[:-1]),
        ("support_", model.support_ + 10_000),
        ("_dual_coef_", model._dual_coef_[:, :-2]),
        ("_n_support", model._n_support + 5),
        ("_intercept_", model._intercept_[:0]),
    ]:
        broken = copy.deepcopy(model)
        setattr(broken, name, value)
        with pytest.raises(ModelFileError, match="do not fit together"):
            save(broken, path)


@pytest.mark.torch
@pytest.mark.parametrize("model", [dw.DCM(), dw.FastDCM(n_landmarks=20)], ids=repr)
def test_a_model_of_tensors_comes_back_as_one(model, path):
    torch = pytest.importorskip("torch")
    X = torch.as_tensor(DATA.data)
    model = model.fit(X, DATA.target, sample_domain=SITES)
    again = through_file(model, path)
    assert torch.equal(again.transform(X), model.transform(X))
    model.to("numpy")
    np.testing.assert_array_equal(
        through_file(model, path).transform(DATA.data), model.transform(DATA.data)
    )
