"""Change plans and files of sites at random and use them: ``make fuzz``, or this file with --count.

Every change is made of its number alone: ``--first 1234 --count 1`` runs that one again. Digests
are made to fit again, as one would who knows the format.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from domainwise.federated import (
    DisclosureError,
    Plan,
    PlanError,
    SiteFileError,
    fit,
    merge,
    moments,
    statistics,
)
from domainwise.tables.errors import TableError

sys.path.insert(0, str(Path(__file__).parent))
from watched import watch

REFUSALS = (SiteFileError, PlanError, DisclosureError, TableError)
#: Values that something might take for a count, a length, a mean or a name.
STRANGE = [-1, 0, 1, 2, 255, 2**31, 2**62, 0.5, -1e308, 1e308, 1e-308, np.nan, np.inf, 1e6]
STRANGE_JSON = [*STRANGE[:-3], 2**80, True, None, "", "auto", "\x1b[2J", [], [1], {}, {"a": 1}]


def make_frame(seed, n=120):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.3 * seed, 1.0, (n, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=rng.choice(["x", "y"], n))
    frame.loc[:30, "b"] = np.nan
    return frame.assign(ward=rng.choice(["u", "v"], n), ill=X[:, 0] > 0, value=X[:, 0] + 5)


FRAMES = {name: make_frame(i) for i, name in enumerate(("north", "south"))}
CASES = [
    {"target": "ill", "drop": ["value"]},
    {"target": "value", "drop": ["ill"], "method": "fastdcm", "n_features": 5},
    {"target": "ill", "drop": ["value"], "n_features": 4, "gammas": (0.3,),
     "second_moments": "classes", "centres": {name: [-2.0, 2.0] for name in "abc"}},
]  # fmt: skip


def seeds():
    """Plans, merged plans, and files of both rounds of two sites."""
    accepted = {"accept_disclosure": True}
    for options in CASES:
        plan = Plan.of_table(FRAMES["north"], domain="ward", **options)
        first = [statistics(f, plan, site=s, **accepted) for s, f in FRAMES.items()]
        merged = merge(plan, first)
        yield plan, merged, first, [moments(f, merged, site=s, **accepted) for s, f in
                                    FRAMES.items()]  # fmt: skip


def places(value, path=()):
    """Every place in nested lists and objects."""
    found = [path] if path else []
    if isinstance(value, dict):
        return found + [p for name in value for p in places(value[name], (*path, name))]
    if isinstance(value, list):
        return found + [p for i in range(len(value)) for p in places(value[i], (*path, i))]
    return found


def changed_json(value, rng):
    """The same with another value, one dropped, or one put in the place of another."""
    value = json.loads(json.dumps(value))
    every = places(value)
    path = every[rng.integers(len(every))]
    holder = value
    for name in path[:-1]:
        holder = holder[name]
    kind = rng.integers(8)
    if kind == 0:
        del holder[path[-1]]
    elif kind == 1:
        other, source = value, every[rng.integers(len(every))]
        for name in source:
            other = other[name]
        holder[path[-1]] = json.loads(json.dumps(other))
    elif kind == 2 and isinstance(holder[path[-1]], (int, float)):
        holder[path[-1]] = holder[path[-1]] * float(rng.choice([1e6, -1.0, 1e-6, 0.5, 1e300]))
    else:
        holder[path[-1]] = STRANGE_JSON[rng.integers(len(STRANGE_JSON))]
    return value


def changed_array(array, rng):
    """Other values, another scale, another shape or another type."""
    array, kind = array.copy(), rng.integers(8)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind <= 2 and array.size:
            at = rng.integers(0, array.size, size=rng.integers(1, 4))
            with contextlib.suppress(OverflowError, ValueError):
                array.flat[at] = array.dtype.type(STRANGE[rng.integers(len(STRANGE))])
        elif kind == 3:
            factor = float(rng.choice([1e6, -1.0, 1e-6, 0.0, 1e300, 2.0]))
            array = (array * factor).astype(array.dtype)
        elif kind == 4 and array.ndim:
            axis = int(rng.integers(array.ndim))
            length = int(rng.choice([0, 1, array.shape[axis] - 1, array.shape[axis] * 2]))
            places = np.arange(max(length, 0)) % max(array.shape[axis], 1)
            array = np.take(array, places, axis=axis) if array.size else array
        elif kind == 5:
            array = array.ravel() if array.ndim != 1 else array[None]
        elif kind == 6:
            array = array.astype(rng.choice([np.int64, np.float64]))
        elif array.size:
            array = rng.permutation(array.ravel()).reshape(array.shape)
    return array


def changed_file(file, rng):
    """A site's file with one to three changes, and a digest that fits."""
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.6:
            name = str(rng.choice(list(file.arrays)))
            arrays = {**file.arrays, name: changed_array(file.arrays[name], rng)}
            if rng.random() < 0.05:
                arrays.pop(name)
            file = replace(file, arrays=arrays)
        else:
            about = {"site": file.site, "kind": file.kind, "content": file.content}
            about = changed_json(about, rng)
            # A kind, a site or a content that is missing cannot be written at all.
            file = replace(file, **{"site": None, "kind": "", "content": {}, **about})
    return file


def written(file, folder, rng):
    """The bytes of a file; sometimes some are wrong."""
    path = Path(folder) / "north.npz"
    with np.errstate(invalid="ignore"):
        file.save(path)
    content = path.read_bytes()
    if rng.random() < 0.1:
        damaged = bytearray(content)
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        content = bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.3 else damaged)
        path.write_bytes(content)
    return path, len(content)


def changed_plan(plan, rng):
    """The bytes of a plan with one to three changes, and a hash that fits."""
    values = plan.as_dict()
    for _ in range(rng.integers(1, 4)):
        values = changed_json(values, rng)
    text = json.dumps(values, sort_keys=True)
    return json.dumps({**values, "hash": hashlib.sha256(text.encode()).hexdigest()}).encode()


def main(count, first=0):
    """Run so many changes; return what became of them and what must not happen."""
    every = list(seeds())

    def case(number):
        rng = np.random.default_rng(number)
        plan, merged, one, two = every[number % len(every)]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = rng.integers(4)
            if kind < 3:
                file = changed_file((one if kind == 0 else two)[0], rng)
                try:
                    path, size = written(file, folder, rng)
                except (TypeError, ValueError):
                    return 1000, "cannot be written"
                try:
                    if kind == 0:
                        check_plan(merge(plan, [path, one[1]]))
                    else:
                        check_model(fit(merged, [path, two[1]]))
                except REFUSALS as error:
                    return size, named(error, path.name, file)
                return size, "works"
            content = changed_plan(merged if rng.random() < 0.6 else plan, rng)
            path = Path(folder) / "plan.json"
            path.write_bytes(content)
            try:
                read = Plan.load(path)
                make = statistics if read.merged is None else moments
                make(FRAMES["north"], read, site="north").save(Path(folder) / "file.npz")
            except REFUSALS:
                return len(content), "plan refused"
            return len(content), "plan works"

    return watch(count, case, first=first)


def named(error, name, file):
    """Refusals say which file they are about."""
    words = str(error)
    if not any(str(word) in words for word in (name, repr(file.site), "no file of", "site")):
        raise AssertionError(f"the message names no file: {words}")
    return "refused"


def check_plan(plan):
    """A plan that was merged has finite numbers, and can be written and read."""
    buffer = io.StringIO()
    json.dump(plan.as_dict(), buffer, allow_nan=False)
    for nystrom in plan.maps:
        if not np.isfinite(nystrom.landmarks).all():
            raise AssertionError("the plan has infinite numbers")


def check_model(model):
    """A model that was fitted predicts finite numbers."""
    predicted = model.predictions(model.schema.prepare(FRAMES["south"]))
    if not np.isfinite(predicted.select_dtypes("number").to_numpy(dtype=float)).all():
        raise AssertionError("the model predicts infinite numbers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes, failures = main(arguments.count, arguments.first)
    seconds = time.monotonic() - start
    print(f"{arguments.count} changed site files in {seconds:.0f} s: {dict(outcomes)}")
    print("\n".join(failures))
    raise SystemExit(bool(failures))
