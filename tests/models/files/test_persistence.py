"""Loaded models give identical predictions, and loading a file never runs code from it."""

import contextlib
import copy
import importlib
import io
import json
import os
import pickle
import warnings
import zipfile

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

import domainwise as dw
from domainwise import API
from domainwise.datasets import make_synthetic
from domainwise.models.files.persistence import (
    FORMAT,
    ModelFileError,
    digest,
    load,
    read_info,
    save,
)
from domainwise.models.files.types import OWN, PARTS, SKLEARN, TRUSTED, localize, nodes
from domainwise.selection import (
    DCMCV,
    DomainConformal,
    FastDCMCV,
    InvariantSearchCV,
    LeaveDomainsOut,
)

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
    ExtraTreesClassifier(n_estimators=3, max_depth=4),
    RandomForestClassifier(n_estimators=3, max_depth=4),
    dw.InvariantSVC(),
    dw.InvariantSVC(probability=True),
    dw.InvariantSVC(solver="fast"),
    InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0, 10.0], "domain_weight": [0.1]}),
    dw.InvariantRidgeClassifierCV(gammas=[0.1], alphas=[1.0]),
    DomainConformal(LogisticRegression(), calibration="split"),
]
REGRESSORS = [
    SVR(),
    Ridge(),
    KernelRidge(),
    TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
    HistGradientBoostingRegressor(max_iter=4),
    HistGradientBoostingRegressor(max_iter=4, loss="absolute_error"),
    DummyRegressor(),
    ExtraTreesRegressor(n_estimators=3, max_depth=4),
    dw.InvariantRidgeCV(gammas=[0.1], alphas=[1.0]),
    DomainConformal(Ridge()),
    dw.InvariantSVR(),
    dw.InvariantSVR(solver="fast"),
]


def fitted(model, y=DATA.target, X=DATA.data):
    with warnings.catch_warnings(), config_context(enable_metadata_routing=True):
        warnings.simplefilter("ignore")
        try:
            return clone(model).fit(X, y, sample_domain=SITES)
        except TypeError:  # no step accepts sample_domain
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
def test_a_loaded_projection_with_a_predictor_is_identical(projection, y, path):
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
def test_a_loaded_predictor_is_identical(predictor, path):
    y = CONTINUOUS if any(predictor is each for each in REGRESSORS) else DATA.target + 0
    if y is not CONTINUOUS:
        y = y.copy()
        y[:9] = 2  # scikit-learn uses other types for three classes than for two
    model = fitted(make_pipeline(MinMaxScaler(), predictor), y)
    again = through_file(model, path)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            expected = getattr(model, method)(DATA.data)
            np.testing.assert_array_equal(getattr(again, method)(DATA.data), expected)


def test_loaded_calibration_is_identical(path):
    known = LogisticRegression().fit(DATA.data, DATA.target)
    frozen = DomainConformal(FrozenEstimator(known), calibration="split")
    model = frozen.fit(DATA.data, DATA.target, sample_domain=SITES)
    again = through_file(model, path)
    expected = model.predict_set(DATA.data, coverage=0.8)
    np.testing.assert_array_equal(again.predict_set(DATA.data, coverage=0.8), expected)
    assert again.promise_ == "guaranteed"
    assert again.calibration_domains_.tolist() == sorted(set(SITES))


def test_text_labels_and_column_names_are_loaded(path):
    frame = pandas.DataFrame(DATA.data, columns=[f"x{i}" for i in range(DATA.data.shape[1])])
    y = np.where(DATA.target == DATA.target[0], "ill", "well")
    model = fitted(dw.DCM(), y, frame)
    again = through_file(model, path)
    assert again.classes_.tolist() == ["ill", "well"]
    assert again.domains_.tolist() == ["east", "north", "south", "west"]
    assert again.feature_names_in_.tolist() == list(frame.columns)


def test_partial_fit_works_after_loading(path):
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
    """A type that has not been reviewed."""


@pytest.mark.parametrize(
    "model, message",
    [
        (
            dw.DCM(kernel=linear_kernel),
            r"contains .*linear_kernel\. Model files.*Replace functions",
        ),
        (make_pipeline(dw.DCM(target_kernel=linear_kernel)), "contains .*linear_kernel"),
        (SVC(kernel=lambda X, Y: X @ Y.T), r"<lambda>\. Model files"),
        (Own(), r"contains .*Own. Model files may contain only"),
        (fitted(KNeighborsClassifier()), "KNeighborsClassifier"),
        (object(), "cannot be saved|no model"),
    ],
)
def test_what_cannot_be_loaded_safely_is_not_saved(model, message, path):
    with pytest.raises(ModelFileError, match=message):
        save(model, path)
    assert not list(path.parent.iterdir())


def test_a_routing_request_that_refers_to_its_owner_is_reported(path):
    with config_context(enable_metadata_routing=True):
        model = SVC().set_fit_request(sample_weight=True)
        with pytest.raises(ModelFileError, match="set_fit_request"):
            save(model, path)


def test_a_failed_save_leaves_an_existing_file_unchanged(path):
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
    """Change a model file; ``change(members)`` edits a dict of bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with contextlib.suppress(KeyError, TypeError, ValueError):  # no header, or invalid JSON
        header = json.loads(members["domainwise.json"])
        members["domainwise.json"] = json.dumps(
            header | {"sha256": digest(members, header["info"])}
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    path.write_bytes(buffer.getvalue())


def edit_json(name, edit):
    def change(members):
        value = json.loads(members[name])
        edit(value)
        members[name] = json.dumps(value).encode()

    return change


def attributes(schema):
    """Return the attributes of the object at the root of a model file."""
    return schema["content"]["content"]


def test_a_pickle_is_rejected_and_not_run(path):
    trap_ran = path.parent / "trap_ran"
    for protocol in (0, 2, 5):
        path.write_bytes(pickle.dumps(Trap(trap_ran), protocol=protocol))
        with pytest.raises(ModelFileError, match="pickle|not a model file"):
            load(path)
    path.write_bytes(b"not a model")
    with pytest.raises(ModelFileError, match="not a model file"):
        load(path)
    assert not trap_ran.exists()


@pytest.mark.parametrize("length", [0, 1, 10, 1000, -1, -30])
def test_a_truncated_file_is_rejected(length, path):
    save(fitted(dw.DCM()), path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelFileError, match="empty|not a model file|damaged"):
        load(path)


def test_a_flipped_byte_is_detected_anywhere(path):
    save(fitted(dw.DCM()), path)
    content = path.read_bytes()
    for position in range(40, len(content) - 40, len(content) // 25):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        # Some bytes of a zip archive, such as dates, have no effect.
        try:
            again = load(path)
        except ModelFileError:
            continue
        assert repr(again) == repr(dw.DCM())


def test_a_file_from_a_later_version_is_rejected(path):
    save(dw.DCM(), path)
    rewritten(path, edit_json("domainwise.json", lambda header: header.update(format=FORMAT + 1)))
    for read in (load, read_info):
        with pytest.raises(ModelFileError, match="pip install --upgrade"):
            read(path)


def test_a_header_without_versions_is_rejected(path):
    save(dw.DCM(), path)
    rewritten(path, edit_json("domainwise.json", lambda header: header.pop("versions")))
    for read in (load, read_info):
        with pytest.raises(ModelFileError, match="its header contains no versions"):
            read(path)


def test_another_scikit_learn_version_causes_a_warning(path):
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
                "content": '["trap_ran"]',
            },
        },
        {"__loader__": "MethodNode", "__module__": "sklearn.svm._classes", "__class__": "SVC"},
        {"__loader__": "PartialNode", "__module__": "functools", "__class__": "partial"},
        # A listed type that would be built by a call.
        {
            "__loader__": "ConstructorFromReduceNode",
            "__module__": "sklearn.svm._classes",
            "__class__": "SVC",
        },
        {"__loader__": ["ObjectNode"], "__module__": "os", "__class__": "system"},
        {"__loader__": "NdArrayNode", "__module__": "os", "__class__": "system", "type": "numpy"},
        {
            "__loader__": "TreeNode",
            "__module__": "sklearn.neighbors._kd_tree",
            "__class__": "KDTree",
        },
    ],
    ids=lambda node: f"{node['__loader__']}-{node['__class__']}",
)
def test_any_other_type_is_rejected_before_anything_is_built(node, path, monkeypatch):
    save(dw.DCM(), path)
    rewritten(path, edit_json("schema.json", lambda s: attributes(s).update(gamma=node)))
    monkeypatch.setattr(skops_io, "loads", lambda *_, **__: pytest.fail("skops was asked to load"))
    with pytest.raises(ModelFileError, match=node["__class__"]):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.pop("schema.json"),
        lambda members: members.pop("domainwise.json"),
        lambda members: members.update({"schema.json": b"{"}),
        lambda members: members.update({"schema.json": b"[" * 100_000}),
        lambda members: members.update({"schema.json": b"[]"}),
        lambda members: members.update({"domainwise.json": b"[]"}),
        edit_json("domainwise.json", lambda header: header.update(format="new")),
        edit_json("domainwise.json", lambda header: header.update(format=float("inf"))),
        edit_json("schema.json", lambda schema: schema.update(protocol=0)),
        edit_json("schema.json", lambda schema: schema.update(protocol="x")),
        edit_json("schema.json", lambda schema: schema.update(content={})),
        lambda members: members.pop(next(name for name in members if name.endswith(".npy"))),
    ],
)
def test_missing_or_invalid_members_are_rejected(change, path):
    save(fitted(dw.DCM()), path)
    rewritten(path, change)
    with pytest.raises(ModelFileError, match="damaged|not written by domainwise"):
        load(path)


def test_a_compressed_archive_is_rejected_before_it_is_unpacked(path):
    save(dw.DCM(), path)
    rewritten(path, lambda members: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        load(path)


def test_an_array_that_is_a_pickle_is_rejected_and_not_run(path):
    trap_ran = path.parent / "trap_ran"
    save(fitted(dw.DCM()), path)
    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap(trap_ran)], dtype=object), allow_pickle=True)

    def change(members):
        for name in members:
            if name.endswith(".npy"):
                members[name] = buffer.getvalue()

    rewritten(path, change)
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)
    assert not trap_ran.exists()


def test_skops_loads_its_own_files_with_the_trusted_types(path):
    model = fitted(make_pipeline(StandardScaler(), dw.DCM(), ExtraTreesClassifier(2)))
    skops_io.dump(model, path)
    again = skops_io.load(path, trusted=dw.trusted_types())
    np.testing.assert_array_equal(again.predict(DATA.data), model.predict(DATA.data))


def test_a_plain_skops_file_is_rejected(path):
    skops_io.dump(dw.DCM(), path)
    with pytest.raises(ModelFileError, match="not written by domainwise"):
        load(path)


def test_a_file_that_does_not_exist_is_named(path):
    with pytest.raises(ModelFileError, match="does not exist"):
        load(path)
    with pytest.raises(ModelFileError, match="folder"):
        load(path.parent)


# ---- files that skops accepts ---------------------------------------------------------------


def json_node(value):
    content = json.dumps(value)
    return dict(__loader__="JsonNode", __module__="builtins", __class__="str", content=content)


def list_node(*content, **more):
    names = dict(__loader__="ListNode", __module__="builtins", __class__="list")
    return {**names, "content": list(content), **more}


def add_sparse(members):
    buffer = io.BytesIO()
    sparse.save_npz(buffer, sparse.csr_matrix(np.zeros((100_000, 10))))  # compressed
    members["s.npz"] = buffer.getvalue()
    names = dict(__loader__="SparseMatrixNode", __module__="sklearn.svm._classes", __class__="SVC")
    set_gamma({**names, "type": "scipy", "file": "s.npz"})(members)


def set_gamma(node):
    return edit_json("schema.json", lambda schema: attributes(schema).update(gamma=node))


def repeated_file(members):
    name = next(name for name in members if name.endswith(".npy"))
    names = dict(__loader__="NdArrayNode", __module__="numpy", __class__="ndarray", type="numpy")
    set_gamma(list_node(*({**names, "file": name, "__id__": i} for i in range(9))))(members)


def nested(depth):
    node = list_node(__id__=0)
    for level in range(1, depth):
        node = list_node(node, {**list_node(), "__id__": level - 1}, __id__=level)
    return node


@pytest.mark.parametrize(
    "change",
    [
        # An array without data: the file can declare any size.
        set_gamma(
            {
                "__loader__": "ConstructorFromReduceNode",
                "__module__": "numpy",
                "__class__": "ndarray",
                "content": list_node(json_node([1000, 1000])),
            }
        ),
        # Any scikit-learn estimator, and any NumPy function.
        set_gamma(
            {
                "__loader__": "ObjectNode",
                "__module__": "sklearn.neighbors._classification",
                "__class__": "KNeighborsClassifier",
            }
        ),
        set_gamma({"__loader__": "FunctionNode", "__module__": "numpy", "__class__": "add"}),
        # A compressed archive inside the archive, declared as another type.
        add_sparse,
        # One array used many times, and nested lists with 2^depth references.
        repeated_file,
        set_gamma(nested(9)),
    ],
    ids=["sized", "estimator", "function", "sparse", "repeated", "nested"],
)
def test_files_that_skops_would_load_are_rejected(change, path):
    save(fitted(dw.DCM()), path)
    rewritten(path, change)
    rewritten(path, edit_json("schema.json", localize))  # with the modules that skops needs
    assert skops_io.load(path, trusted=TRUSTED).gamma is not None
    with pytest.raises(ModelFileError):
        load(path)


def test_a_list_that_contains_itself_is_rejected(path):
    save(dw.DCM(), path)
    rewritten(path, set_gamma(list_node(list_node(__id__=7), __id__=7)))
    with pytest.raises(
        ModelFileError, match="the identifier of an object does not match its array file"
    ):
        load(path)


def test_an_error_about_another_format_says_what_to_do(path):
    for number, advice in ((3, "Fit the model again"), (99, "pip install --upgrade")):
        save(dw.DCM(), path)
        rewritten(
            path, edit_json("domainwise.json", lambda header, n=number: header.update(format=n))
        )
        for read in (load, read_info):
            with pytest.raises(ModelFileError, match=f"in format {number}, but .*{advice}"):
                read(path)


def test_files_name_own_types_without_modules(path):
    save(fitted(make_pipeline(StandardScaler(), dw.FastDCM(n_landmarks=20))), path)
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
    own = {n["__class__"] for n in nodes(schema) if n["__module__"].startswith("domainwise")}
    assert {"FastDCM", "Kernel", "NystromMap"} <= own
    assert {n["__module__"] for n in nodes(schema) if n["__class__"] in own} == {"domainwise"}


def test_type_names_are_unique():
    names = [name for names in (*API.values(), *PARTS.values()) for name in names.split()]
    assert len(names) == len(set(names))
    assert {"DCM", "Moments"} <= OWN.keys()
    assert not {"Evaluation", "evaluate", "load"} & OWN.keys()


@pytest.mark.parametrize("content", [3, [], {}, {"content": []}])
def test_content_that_is_not_a_dict_is_rejected_with_a_message(content, path):
    save(dw.DCM(), path)
    rewritten(path, edit_json("schema.json", lambda schema: schema.update(content=content)))
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)


def test_files_are_reproducible_and_every_listed_type_exists(path):
    model = fitted(make_pipeline(StandardScaler(), dw.FastDCM(n_landmarks=20), SVC()))
    contents = []
    for _ in range(2):
        save(copy.deepcopy(model), path)
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]
    own = ((module, name) for name, module in OWN.items())
    for module, names in (*own, *SKLEARN.items()):
        for name in names.split():
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


# ---- values that compiled code would use ----------------------------------------------------


def assert_rejected(model, path, message, monkeypatch):
    """Check that a model is not saved and, if other code has saved it, not loaded."""
    with pytest.raises(ModelFileError, match=message):
        save(model, path)
    with monkeypatch.context() as patch:
        patch.setattr("domainwise.models.files.values.check_values", lambda model: None)
        patch.setattr(
            "domainwise.models.files.persistence._method_errors", lambda model, methods: {}
        )
        save(model, path)
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize(
    "field, value", [("left", 10_000), ("right", 0), ("feature_idx", 99), ("feature_idx", -1)]
)
def test_boosted_trees_with_invalid_indices_are_rejected(field, value, path, monkeypatch):
    model = fitted(HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5))
    model._predictors[0][0].nodes[field][0] = value
    assert_rejected(model, path, "a tree refers to nodes, features", monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model._predictors[0].pop(),
        lambda model: setattr(model, "n_trees_per_iteration_", 10**9),
        lambda model: setattr(model, "_baseline_prediction", np.array([[np.nan, 0, 0]])),
        lambda model: setattr(model._bin_mapper, "is_categorical_", np.zeros(1, np.uint8)),
        lambda model: setattr(model, "_in_fit", True),
        lambda model: setattr(model, "predict", 3),
    ],
)
def test_boosting_with_inconsistent_attributes_is_rejected(change, path, monkeypatch):
    y = DATA.target.copy()
    y[:9] = 2
    model = fitted(HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5), y)
    change(model)
    assert_rejected(model, path, "are inconsistent|shadows a class attribute", monkeypatch)


def test_trees_with_categorical_splits_are_reported(path):
    model = fitted(HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5))
    model._predictors[0][0].nodes["is_categorical"][0] = 1
    with pytest.raises(ModelFileError, match="Encode categories as numbers"):
        save(model, path)


def array_of(field):
    """Return a function that changes one field of the first tree's nodes in a file."""

    def change(value):
        def edit(members):
            for name in members:
                if name.endswith(".npy"):
                    array = np.load(io.BytesIO(members[name]))
                    if array.dtype.names and field in array.dtype.names:
                        array[field][0] = value
                        buffer = io.BytesIO()
                        np.save(buffer, array)
                        members[name] = buffer.getvalue()

        return edit

    return change


def first_tree(schema):
    return next(node for node in nodes(schema) if node["__loader__"] == "TreeNode")


@pytest.mark.parametrize(
    "change",
    [
        array_of("left_child")(10_000),
        array_of("right_child")(0),
        array_of("right_child")(-1),
        array_of("feature")(99),
        array_of("feature")(-5),
        edit_json(
            "schema.json",
            lambda s: first_tree(s)["content"]["content"].update(node_count=json_node(10**6)),
        ),
        edit_json(
            "schema.json",
            lambda s: first_tree(s)["__reduce__"]["args"]["content"].__setitem__(2, json_node(99)),
        ),
        edit_json(
            "schema.json",
            lambda s: first_tree(s)["__reduce__"]["args"]["content"].__setitem__(0, json_node(99)),
        ),
    ],
)
def test_trees_are_checked_before_they_are_built(change, path):
    save(fitted(ExtraTreesClassifier(n_estimators=2, random_state=0)), path)
    load(path)
    rewritten(path, change)
    with pytest.raises(
        ModelFileError, match="a tree refers to nodes, features or values|are inconsistent"
    ):
        load(path)


@pytest.mark.parametrize(
    "model",
    [SVC(), SVR(), SVC(kernel="precomputed"), SVC(probability=True)],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_support_vector_machines_with_inconsistent_arrays_are_rejected(model, path, monkeypatch):
    X = DATA.data @ DATA.data.T if model.kernel == "precomputed" else DATA.data
    y = DATA.target.copy()
    y[:9] = 2
    model = model.fit(X, y)
    save(model, path)
    load(path)
    cases = [
        ("support_", model.support_[:-1]),
        ("support_", model.support_ + 10_000),
        ("support_", model.support_ - 10_000),
        ("support_vectors_", np.zeros((3, 1))),
        ("_dual_coef_", model._dual_coef_[:, :-2]),
        ("_dual_coef_", model._dual_coef_.astype(np.float32)),
        ("_dual_coef_", model._dual_coef_ * np.nan),
        ("_n_support", model._n_support + 5),
        ("_intercept_", model._intercept_[:0]),
        ("_probA", np.zeros(1 if isinstance(model, SVC) else 2)),
        ("_probB", np.zeros(2)),
        ("_sparse", True),
        ("_impl", "one_class"),
        ("shape_fit_", (1, 1)),
        ("n_features_in_", 10**6),
    ]
    for name, value in cases:
        broken = copy.deepcopy(model)
        setattr(broken, name, value)
        assert_rejected(broken, path, "are inconsistent|shadows a class attribute", monkeypatch)


@pytest.mark.parametrize(
    "name, value",
    [
        ("_n_features_outs", [1, 3]),
        ("categories_", [np.array([2.0, 1.0, 3.0]), np.array(["a", "b", "c"])]),
        ("_drop_idx_after_grouping", np.array([5, None], dtype=object)),
    ],
)
def test_an_encoder_with_a_wrong_number_of_columns_is_rejected(name, value, path, monkeypatch):
    model = OneHotEncoder(sparse_output=False).fit([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert through_file(model, path).transform([[1.0, 2.0]]).tolist() == [[1, 0, 0, 0, 1, 0]]
    setattr(model, name, value)
    assert_rejected(model, path, "are inconsistent", monkeypatch)


@pytest.mark.parametrize(
    "encoder", [OneHotEncoder(drop="first"), OneHotEncoder(min_frequency=2), OneHotEncoder()]
)
def test_loaded_encoders_are_identical(encoder, path):
    X = np.array([["a", "x"], ["a", "y"], ["b", "y"], ["c", "y"]], dtype=object)
    again = through_file(encoder.fit(X), path)
    np.testing.assert_array_equal(again.transform(X).toarray(), encoder.transform(X).toarray())


@pytest.mark.parametrize(
    "model, message",
    [
        (make_pipeline(SVC(), memory="cache"), "Pipeline has a cache folder.* Use memory=None"),
        (ExtraTreesClassifier(n_jobs=10**6), "n_jobs=1000000"),
    ],
)
def test_arguments_with_effects_outside_the_model_are_rejected(model, message, path, monkeypatch):
    assert_rejected(model, path, message, monkeypatch)


@pytest.mark.torch
@pytest.mark.parametrize("model", [dw.DCM(), dw.FastDCM(n_landmarks=20)], ids=repr)
def test_a_loaded_model_fitted_to_tensors_is_identical(model, path):
    torch = pytest.importorskip("torch")
    X = torch.as_tensor(DATA.data)
    model = model.fit(X, DATA.target, sample_domain=SITES)
    again = through_file(model, path)
    assert torch.equal(again.transform(X), model.transform(X))
    model.to("numpy")
    np.testing.assert_array_equal(
        through_file(model, path).transform(DATA.data), model.transform(DATA.data)
    )


# ---- files that were changed ----------------------------------------------------------------


def changed_without_digest(path, change):
    """Change the members of a model file, but not its digest."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_changed_number_is_detected(path):
    save(fitted(make_pipeline(StandardScaler(), SVC())), path)

    def change(members):
        name = next(name for name in members if name.endswith(".npy"))
        members[name] = members[name][:-1] + b"\x01"

    changed_without_digest(path, change)
    with pytest.raises(ModelFileError, match="changed after it was written"):
        load(path)


def test_a_changed_description_is_detected(path):
    save(fitted(dw.DCM()), path, info={"schema": ["a", "b"], 10: 1, 2: (3,)})
    assert load(path) is not None
    name = "domainwise.json"
    changed_without_digest(
        path, lambda members: members.update({name: members[name].replace(b'"a"', b'"c"')})
    )
    with pytest.raises(ModelFileError, match="changed after it was written"):
        load(path)


def test_inconsistent_attributes_are_rejected_when_a_file_is_loaded(path):
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()))
    save(model, path)
    assert read_info(path)["works"] == ["predict", "predict_proba", "decision_function"]
    small = io.BytesIO()
    np.save(small, model[-1].coef_[:, :2])
    before = model[-1].coef_.tobytes()

    def change(members):
        name = next(n for n, content in members.items() if content.endswith(before))
        members[name] = small.getvalue()

    rewritten(path, change)
    with pytest.raises(ModelFileError, match="its attributes are inconsistent"):
        load(path)


def test_a_model_that_cannot_predict_artificial_rows_is_saved(path):
    categories = np.array([["a"], ["b"]] * 30, dtype=object)
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(categories, np.arange(60) % 2)
    save(model, path)
    assert read_info(path)["works"] == []
    assert load(path).predict([["a"]]).shape == (1,)
    save(dw.DCM(), path)
    assert read_info(path)["works"] == []


@pytest.mark.parametrize("model", [None, "text", {"a": 1}, [dw.DCM()], np.ones(3)])
def test_objects_that_are_not_estimators_are_not_saved(model, path):
    with pytest.raises(ModelFileError, match="it is neither an estimator nor a pipeline"):
        save(model, path)
    assert not path.exists()
