"""Change saved models at random and load them: ``make fuzz``, or this file with --count.

Every change is made of its number alone: ``--first 1234 --count 1`` runs that one again.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

import domainwise as dw
from domainwise.datasets import make_synthetic
from domainwise.models.files.persistence import ModelFileError, digest
from domainwise.models.files.types import nodes

sys.path.insert(0, str(Path(__file__).parent))
from watched import watch

DATA = make_synthetic(n_domains=3, n_per_domain=20, random_state=0)
CLASSES = DATA.target.copy()
CLASSES[:9] = 2
CATEGORIES = np.round(DATA.data[:, :2]) % 3
HEADS = [
    SVC(probability=True, random_state=0),
    SVC(kernel="poly"),
    HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5),
    ExtraTreesClassifier(n_estimators=2, max_depth=4, random_state=0),
    DummyClassifier(strategy="most_frequent"),
    CalibratedClassifierCV(SVC(), cv=2, method="isotonic"),
    make_pipeline(dw.DCM(), LinearDiscriminantAnalysis()),
    make_pipeline(dw.FastDCM(n_landmarks=10), LogisticRegression()),
    dw.InvariantSVC(solver="fast"),
]
NUMERIC_HEADS = [
    SVR(),
    make_pipeline(dw.KPCA(n_components=2), Ridge()),
    ExtraTreesRegressor(n_estimators=2, max_depth=4, random_state=0),
    DummyRegressor(),
    dw.InvariantRidgeCV(gammas=[0.1], alphas=[1.0]),
]
#: Values that something might take for a length, an index, a truth value or a name.
STRANGE = [-1, 0, 1, 2, 255, 2**31, 2**40, 10**30, 0.5, -1e308, 1e308, np.nan, np.inf, True, None]
STRANGE_JSON = [*STRANGE, "", "precomputed", "auto", "\x1b[2J", [], [1], {}, {"a": 1}, "x" * 1000]


def seeds():
    """Files of fitted models, and rows to try each on."""
    encoded = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), slice(0, 2)),
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), slice(2, 4)),
    )
    wide = np.hstack([DATA.data[:, :2], CATEGORIES])
    cases = [(head, DATA.data, CLASSES) for head in HEADS]
    cases += [(head, DATA.data, DATA.data[:, 0]) for head in NUMERIC_HEADS]
    cases += [(make_pipeline(encoded, SVC()), wide, CLASSES)]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model, X, y in cases:
            with config_context(enable_metadata_routing=True):
                try:
                    model.fit(X, y, sample_domain=DATA.sample_domain)
                except TypeError:  # no step asks for domains
                    model.fit(X, y)
            path = Path(folder) / "model.skops"
            dw.save(model, path)
            with zipfile.ZipFile(path) as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
            yield parts, np.vstack([X[:7], X[:1] * 1e6])


def archive_of(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def changed_array(content, rng):
    """A .npy file with other values, another shape or another type."""
    array = np.load(io.BytesIO(content)).copy()
    kind = rng.integers(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind <= 2 and array.size:
            field = array[rng.choice(array.dtype.names)] if array.dtype.names else array
            places = rng.integers(0, array.size, size=rng.integers(1, 4))
            value = STRANGE[rng.integers(len(STRANGE))] if field.dtype.kind in "biuf" else b"7"
            try:
                field.flat[places] = field.dtype.type(-7 if value is None else value)
            except (TypeError, ValueError, OverflowError):
                field.flat[places] = np.iinfo(field.dtype).max if field.dtype.kind in "iu" else 0
        elif kind == 3 and array.ndim:
            axis = int(rng.integers(array.ndim))
            length = int(rng.choice([0, 1, array.shape[axis] - 1, array.shape[axis] * 2]))
            array = (
                np.take(array, np.arange(max(length, 0)), axis=axis, mode="clip")
                if array.size
                else array
            )
        elif kind == 4:
            array = array.ravel() if array.ndim != 1 else array[None]
        elif not array.dtype.names:
            try:
                array = array.astype(
                    rng.choice(["int8", "int32", "float32", "U3", "S2", "c16", "V0"])
                )
            except (TypeError, ValueError):
                array = np.zeros(0)
    buffer = io.BytesIO()
    np.save(buffer, array)
    if rng.random() < 0.05:
        return buffer.getvalue().replace(b"'shape': (", b"'shape': (99", 1)
    return buffer.getvalue()


def changed_schema(content, rng):
    """The description with another value, another type, or parts in other places."""
    schema = json.loads(content)
    found = list(nodes(schema))
    node = found[rng.integers(len(found))]
    plain = [each for each in found if each["__loader__"] == "JsonNode"]
    holders = [
        each["content"] for each in found if each["__loader__"] == "DictNode" and each["content"]
    ]
    kind = rng.integers(8)
    if kind <= 3:
        value = STRANGE_JSON[rng.integers(len(STRANGE_JSON))]
        plain[rng.integers(len(plain))]["content"] = json.dumps(value)
    elif kind == 4:
        other = found[rng.integers(len(found))]
        node.update({name: other[name] for name in ("__module__", "__class__", "__loader__")})
    elif kind == 5:
        holder = holders[rng.integers(len(holders))]
        del holder[rng.choice(list(holder))]
    elif kind == 6:
        one, two = (holders[rng.integers(len(holders))] for _ in range(2))
        name, source = rng.choice(list(one)), rng.choice(list(two))
        one[name] = json.loads(json.dumps(two[source]))
    else:
        node["__id__"] = found[rng.integers(len(found))].get("file", 3)
    return json.dumps(schema).encode()


def changed(parts, rng):
    """A model file with one to three changes."""
    parts = dict(parts)
    for _ in range(rng.integers(1, 4)):
        name = rng.choice([name for name in parts if name.endswith(".npy")])
        # A change may find nothing to change after another one.
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if rng.random() < 0.5:
                parts[name] = changed_array(parts[name], rng)
            else:
                parts["schema.json"] = changed_schema(parts["schema.json"], rng)
    # As one would who knows the format: with a digest that is right.
    header = json.loads(parts["domainwise.json"])
    header["sha256"] = digest(parts, header["info"])
    parts["domainwise.json"] = json.dumps(header).encode()
    content = archive_of(parts)
    if rng.random() < 0.1:
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        content = bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.3 else damaged)
    return content


def use(model, X):
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        if hasattr(model, method):
            getattr(model, method)(X)


def main(count, first=0):
    """Run so many changes; return what became of them and what must not happen."""
    models = list(seeds())

    def case(number):
        rng = np.random.default_rng(number)
        parts, X = models[number % len(models)]
        content = changed(parts, rng)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / "m.skops"
            path.write_bytes(content)
            try:
                model = dw.load(path)
            except ModelFileError:
                return len(content), "refused"
            try:
                use(model, X)
            except MemoryError:
                raise
            except Exception as error:
                return len(content), f"raises {type(error).__name__} when used: {error}"
        return len(content), "works"

    return watch(count, case, first=first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes, failures = main(arguments.count, arguments.first)
    print(f"{arguments.count} changed models in {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    print("\n".join(failures))
    raise SystemExit(bool(failures))
