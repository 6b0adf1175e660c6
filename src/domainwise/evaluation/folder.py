"""An evaluation on disk: a line and a file of predictions per finished job, to go on from.

``FOLDER/jobs/results.jsonl`` says what was asked and what each job chose; a Parquet file beside it
holds the job's predictions, of rows left out and of folds inside their domain. The file is there
before the line, so that a line stands for a job that is whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.evaluation.differences import DomainProjection
from domainwise.evaluation.evaluation import AS_IT_IS, Evaluation, describe_grid, record_columns
from domainwise.evaluation.jobs import OUTSIDE
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import MethodResult, plain
from domainwise.jobs.runner import Row
from domainwise.jobs.store import ResultsError, ResultStore, replacing
from domainwise.models.method import Method
from domainwise.models.registry import TRIVIAL
from domainwise.scoring.measures import Measure
from domainwise.splits.folds import Split
from domainwise.tables.errors import Argument, TableError, import_pandas

JOBS = "jobs"
RESULT_NAME = "evaluation.json"


class JobFolder:
    """Finished jobs of an evaluation, those of earlier sessions included."""

    def __init__(self, store: ResultStore, problem: Problem) -> None:
        self.store, self.problem = store, problem
        self.chosen_by: str = store.header["chosen_by"]
        self.rows = [self._with_predictions(row) for row in _done(store).values()]

    def append(self, rows: Sequence[Row]) -> None:
        """Keep the rows of a job, in place of some of them that an earlier session had."""
        told = []
        for row in rows:
            words = {name: value for name, value in row.items() if name != "predictions"}
            if "error" not in row:
                words["file"] = f"{row['split']:02d}-{_slug(row['method'])}.parquet"
                self._write(self.store.folder / words["file"], row)
            told.append({"kind": "job", **words})
        self.store.append(told)
        new = {(row["method"], row["split"]) for row in rows}
        old = [row for row in self.rows if (row["method"], row["split"]) not in new]
        self.rows = [*old, *rows]

    def keep_projection(self, measure: str, projection: DomainProjection | None) -> None:
        """Keep what the pictures of the page need."""
        if projection is not None:
            told = {k: np.asarray(v).tolist() for k, v in asdict(projection).items()}
            self.store.append([{"kind": "projection", "measure": measure, **told}])

    def _write(self, path: Path, row: Row) -> None:
        pandas = import_pandas()
        names = None if self.problem.classes is None else self.problem.classes.tolist()
        frames = []
        for record in row["predictions"]:
            domain = str(plain(self.problem.domains[record["domain"]]))
            columns = record_columns({**record, "domain": domain}, names, both=True)
            if names is not None:
                told = {name: columns[name].astype(str) for name in ("target", "prediction")}
                columns |= told
            first = {"method": row["method"], "fold": record["fold"]}
            frames.append(pandas.DataFrame({**first, **columns}))
        with replacing(path) as temporary:
            pandas.concat(frames).to_parquet(temporary, index=False)

    def _with_predictions(self, row: Row) -> Row:
        codes = {str(name): code for code, name in enumerate(self.problem.domains.tolist())}
        records = _records(self.store.folder / row["file"], codes, self.problem.classes)
        return {**row, "predictions": records}


@contextmanager
def opened_folder(
    folder: Path,
    problem: Problem,
    methods: Sequence[Method],
    splits: Sequence[Split],
    *,
    force: bool,
    **asked: Any,
) -> Iterator[JobFolder]:
    """Begin, or go on with, what was asked there before; nobody else gets in meanwhile.

    Another table, other methods and another ``asked`` are refused; ``force`` removes what is there.
    """
    if problem.measure.own:
        raise ValueError("out: give scoring by name; a function cannot be told from another later")
    import_pandas()
    store = ResultStore(Path(folder) / JOBS)
    if (Path(folder) / RESULT_NAME).exists() and not store.path.exists() and not force:
        raise TableError(f"{folder} holds other results; use ", Argument("force", True), " or out")
    run = {
        "table": _fingerprint(problem, splits)[:16],
        "methods": [method.key for method in methods],
        "grids": _digest("".join(_described(m, problem) for m in methods).encode())[:16],
        "seed": problem.seed,
        **asked,
    }
    with store.locked():
        # Files that a killed process was writing have other names until they are whole.
        for path in store.folder.glob("*.parquet" if force else ".*.parquet"):
            path.unlink()
        if force:
            store.path.write_bytes(b"")
        try:
            store.open(mend=True, more={"chosen_by": problem.measure.name}, **run)
        except ResultsError as error:
            words = f"{error}; go on there with the same table and the same arguments, or use "
            raise TableError(words, Argument("force", True)) from error
        yield JobFolder(store, problem)


def read_evaluation(folder: Path, *, every: bool = False) -> tuple[Evaluation, dict[str, Any]]:
    """Return what was found, for showing it again, and all that is stored beside it.

    Predictions are those of the best method and the best plain one, or of ``every`` method.
    """
    path = Path(folder) / RESULT_NAME
    try:
        stored = json.loads(path.read_text("utf-8"))
        found = _read(stored)
        found.others = [_read({**stored, **other}) for other in stored.get("others", ())]
    except FileNotFoundError:
        raise ResultsError(f"{folder} holds no {RESULT_NAME}: nothing was evaluated") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error!r}") from None
    store = ResultStore(Path(folder) / JOBS)
    found.lacking = f"the folder has no {JOBS} with its predictions"
    if store.path.exists():
        store.read()
        for row in store.rows("projection"):
            if row["measure"] == found.measure.name:
                told = {name: row[name] for name in DomainProjection.__dataclass_fields__}
                arrays = ("Z", "target", "domain", "before", "after")
                told |= {name: np.asarray(told[name]) for name in arrays}
                found.projection = DomainProjection(**told)
        names, classes = {str(name): name for name in found.domains}, stored["facts"]["classes"]
        shown = [result.key for result in (found.best, found.baseline) if result is not None]
        # The best that gives probabilities has a calibration to show.
        told = {m["key"]: m["calibration"] or {} for m in stored["methods"]}
        sure = [m for m in told if m != TRIVIAL and told[m].get("of") == "probabilities"]
        shown += sure[:1]
        done = _done(store)
        # A folder that was copied without predictions shows what is left.
        gone = {m for (m, _), job in done.items() if not (store.folder / job["file"]).exists()}
        if not every and find_spec("pyarrow") is None:
            gone, found.lacking = set(shown), "they are read by pyarrow, which is not installed"
        for (method, split), job in done.items():
            if method not in gone and (every or method in shown):
                records = _records(store.folder / job["file"], names, classes and np.array(classes))
                outside = [{**r, "split": split} for r in records if r["fold"] == OUTSIDE]
                found.records.setdefault(method, []).extend(outside)
    return found, stored


def _read(stored: Mapping[str, Any]) -> Evaluation:
    told = stored["measure"]
    sign = 1 if told["greater_is_better"] else -1

    def number(value: float | None) -> float:
        return float("nan") if value is None else float(value)

    def scores(method: Row, name: str) -> dict[Any, float]:
        return {row["domain"]: sign * number(row[name]) for row in method["per_domain"]}

    def ends(method: Row) -> dict[Any, tuple[float, float]]:
        told = {row["domain"]: row["ends"][::sign] for row in method["per_domain"]}
        return {d: (sign * number(low), sign * number(high)) for d, (low, high) in told.items()}

    results = [
        MethodResult(
            **{name: method[name] for name in (*AS_IT_IS, "seconds")},
            scores=scores(method, "score"),
            within=scores(method, "within"),
            seen=scores(method, "seen"),
            ends=ends(method),
            around={k: (number(v[0]), number(v[1])) for k, v in method["around"].items()},
            warnings=tuple(method["warnings"]),
        )
        for method in stored["methods"]
    ]
    return Evaluation(
        results,
        stored["domains"],
        Measure(told["name"], told["label"], None, sign),
        stored["left_out"],
        stored["facts"],
        stored["notes"],
        next_step=stored["next_step"],
        differences=stored["differences"],
        calibration=next(m["calibration"] for m in stored["methods"] if m["key"] == stored["best"]),
    )


def _done(store: ResultStore) -> dict[tuple[str, int], Row]:
    """Jobs that were finished, by method and split; of one that was done again the last."""
    return {(r["method"], r["split"]): r for r in store.rows("job") if "error" not in r}


def _records(path: Path, domains: Mapping[str, Any], classes: Array | None) -> list[Row]:
    """Predictions that a job has left, by domain and fold; ``domains`` are by name in the file."""
    try:
        frame = import_pandas().read_parquet(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from error
    named = {} if classes is None else {str(name): i for i, name in enumerate(classes.tolist())}
    records = []
    for (domain, fold), part in frame.groupby(["domain", "fold"], sort=False):
        told = {name: part[name].to_numpy() for name in ("target", "prediction")}
        if classes is not None:
            told = {k: classes[[named[name] for name in names]] for k, names in told.items()}
        first = {"row": part["row"].to_numpy(), "domain": domains[domain], "fold": int(fold)}
        values = {"probabilities": "probability_", "decisions": "decision_"}
        records.append({**first, **told, **{k: _values(part, v) for k, v in values.items()}})
    return records


def _values(frame: Any, prefix: str) -> Array | None:
    names = [name for name in frame.columns if name.startswith(prefix)]
    if not names:
        return None
    values = frame[names].to_numpy(dtype=np.float64)
    return values[:, 0] if len(names) == 1 else values


def _slug(name: str) -> str:
    """A name of a file: words of the method's name, and what tells it from one like it."""
    plain_name = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return plain_name if plain_name == name else f"{plain_name}-{_digest(name.encode())[:8]}"


def _described(method: Method, problem: Problem) -> str:
    """Grid of a method, and what a caller's own is, without where it lies in memory."""
    told: list[Any] = [describe_grid(method.grid(problem.classification)), method.prepare]
    if method.kind == "own":
        model = method.build(problem.setting(1))
        told += [type(model).__name__, model.get_params()]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(told))


def _fingerprint(problem: Problem, splits: Sequence[Split]) -> str:
    """Tell whether rows, targets, domains and splits are the same."""
    whole = hashlib.sha256()
    for X in (problem.X, problem.given):
        if hasattr(X, "columns"):
            frame = X.to_pandas() if hasattr(X, "to_pandas") else X
            whole.update("\0".join(map(str, frame.columns)).encode())
            for name in frame.columns:
                whole.update(_bytes(frame[name].to_numpy()))
        else:
            whole.update(_bytes(X))
    for values in (problem.y, problem.domains, problem.codes, problem.index, problem.classes):
        whole.update(_bytes(values))
    for train, test in splits:
        whole.update(_bytes(train) + _bytes(test))
    return whole.hexdigest()


def _bytes(values: Any) -> bytes:
    array = np.ascontiguousarray(values)
    if array.dtype.kind in "biufM":
        return f"{array.shape}{array.dtype}".encode() + array.tobytes()
    return "\0".join(map(str, array.ravel().tolist())).encode()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
