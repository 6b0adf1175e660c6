"""Results folders of evaluations: writing finished jobs and scores, and reading and checking them.

``FOLDER/jobs/results.jsonl`` has a line for each finished job, with its arguments and selected
parameters. The predictions of a job are in a Parquet file in the same folder. This file is written
before the line, so that a job with a line is complete. The line contains the SHA-256 of the file,
and ``FOLDER/evaluation.json`` contains its own digest, so that changes to files are detected.

A folder may come from somebody else. All content is checked against the forms below (types and
allowed values), and nothing in the folder is imported or executed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np

from domainwise.base import files
from domainwise.base.arrays import Array
from domainwise.base.files import Plain, ResultsError, ResultStore, from_json
from domainwise.base.process import Row
from domainwise.evaluation.evaluation import Evaluation, describe_grid, prediction_columns
from domainwise.evaluation.faults import Fault
from domainwise.evaluation.jobs import SMALLER, Memo, MethodJob, job_key
from domainwise.evaluation.plan import Plan
from domainwise.evaluation.problem import Problem, require
from domainwise.evaluation.results import (
    DomainScore,
    Kind,
    LabelGain,
    MethodResult,
    Prediction,
    SiteColumns,
    merge_by_domain,
)
from domainwise.evaluation.sites import ValidationSize
from domainwise.held_out.folds import Split
from domainwise.held_out.scoring.measures import Measure
from domainwise.models.registry import Method
from domainwise.tables.errors import Argument, TableError, import_pandas

JOBS = "jobs"
RESULT_NAME = "evaluation.json"
#: Patterns of the names of prediction files, and of temporary files of interrupted processes.
PREDICTION_FILE = re.compile(r"\d{2,}-[a-z0-9-]*\.parquet")
UNFINISHED_FILE = re.compile(rf"\.[0-9a-f]{{12}}\.{PREDICTION_FILE.pattern}")

_Task = Literal["classification", "regression"]


# The content of evaluation.json and of the lines in results.jsonl; see from_json.
class _Calibration(TypedDict):
    promise: str
    n_domains: int
    of: str
    thresholds: list[float]
    coverage: float | None
    size: float | None


class _BetweenSites(TypedDict):
    true_range: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class _StoredMethod(MethodResult):
    """A method's result, with its scores as displayed."""

    per_domain: list[DomainScore]
    calibration: _Calibration | None
    between_sites: _BetweenSites | None


class _StoredMeasure(TypedDict):
    name: str
    label: str
    greater_is_better: bool


class _Scores(TypedDict):
    measure: _StoredMeasure
    domains: list[Hashable]
    best: str
    notes: list[str]
    left_out: dict[str, str]
    methods: list[_StoredMethod]


class _Facts(TypedDict):
    task: _Task
    rows: int
    rows_given: int
    columns: int
    domains: int
    seed: int
    classes: list[Hashable] | None
    decision: str | float
    positive: Hashable | None
    python: str
    versions: dict[str, str]
    quick: NotRequired[str]
    stopped: NotRequired[str]


class _Recipe(TypedDict):
    task: _Task
    scoring: str | None
    inner_scoring: str | None
    decision: str | float
    pos_label: Hashable | None
    seed: int
    grids: dict[str, dict[str, list[Any] | dict[str, Any]] | None]


class _Domain(TypedDict):
    name: str
    rows: int
    classes: NotRequired[list[int]]
    target: NotRequired[list[float]]


class _Column(TypedDict):
    name: str
    kind: Literal["number", "text"]
    missing: list[float]
    quantiles: NotRequired[list[Annotated[list[float], 5] | None]]
    deviation: NotRequired[float]
    categories: NotRequired[list[str]]
    shares: NotRequired[list[list[float] | None]]
    distance: float
    tells: float
    distance_at: int
    tells_at: int


class _WithoutLeaks(TypedDict):
    columns: list[str]
    scores: dict[str, float]


class _Differences(TypedDict, total=False):
    domains: list[_Domain]
    columns: list[_Column]
    others: int
    faults: list[Fault]
    without_leaks: _WithoutLeaks


class _Asked(TypedDict):
    target: str
    domain: str
    task: str
    features: list[str] | None
    drop: list[str] | None
    drop_domains: list[str] | None
    na: list[str] | None
    dates: str | None
    decimal: str | None
    encoding: str | None
    auto_drop: bool
    skip_rows: NotRequired[int | None]


class _Table(TypedDict):
    path: str
    sha256: str
    asked: _Asked


class _Content(_Scores):
    facts: _Facts
    label_gain: list[LabelGain]
    next_step: str
    domain_weights: list[float]
    domain_rows: list[int]
    validation_size: ValidationSize | None
    recommended: str
    plan: NotRequired[Plan | None]
    recipe: _Recipe | None
    differences: _Differences
    site_columns: NotRequired[SiteColumns | None]
    others: list[_Scores]
    title: NotRequired[str]
    table: NotRequired[_Table]
    estimators: NotRequired[list[str]]


class _SeenJob(TypedDict):
    method: str
    split: int
    part: NotRequired[Annotated[str, re.compile(rf"{Kind.HELD_OUT}|{Kind.SEEN}|{SMALLER}[12]")]]
    file: NotRequired[Annotated[str, PREDICTION_FILE]]
    sha256: NotRequired[str]
    seconds: float
    warnings: list[str]


class _Job(_SeenJob):
    worth: dict[str, list[float]]
    parameters: dict[str, Plain]
    settled: dict[str, Plain]
    candidates: int
    selected_on: str | None


class JobMemory:
    """The finished jobs of an evaluation, in memory."""

    chosen_by: str | None = None  #: measure for which an earlier session chose parameters

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.memo: dict[str, Memo] = {}  #: for each part of the jobs

    def append(self, rows: Sequence[Row]) -> None:
        """Add the rows of a job; they replace those of the same job from an earlier session."""
        new_keys = set(map(job_key, rows))
        self.rows = [*(row for row in self.rows if job_key(row) not in new_keys), *rows]

    def unfinished(self, jobs: Sequence[MethodJob]) -> list[MethodJob]:
        """Return the ``jobs`` that are not finished."""
        finished_keys = set(map(job_key, self.rows))
        return [job for job in jobs if not finished_keys.issuperset(job.row_keys)]


class JobFolder(JobMemory):
    """The finished jobs of an evaluation in a folder, including those from earlier sessions."""

    def __init__(self, store: ResultStore, problem: Problem, n_splits: int) -> None:
        super().__init__()
        self.store, self.problem = store, problem
        self.chosen_by = from_json(str, store.header.get("chosen_by"), f"{store.path}: chosen_by")
        code_by_domain = {str(name): code for code, name in enumerate(problem.domains.tolist())}
        for (method, split, _), row in _finished_jobs(store).items():
            values = {"method": method, "split": split + 1, "n_splits": n_splits}
            require(split < n_splits, "unknown split", ResultsError, path=store.path, **values)
            predictions = _read_predictions(store, row, code_by_domain, problem.classes)
            self.rows.append({**row, "predictions": predictions})

    def append(self, rows: Sequence[Row]) -> None:
        """Write the rows of a job to disk, predictions first."""
        lines = []
        for row in rows:
            line = {k: v for k, v in row.items() if k not in ("predictions", "settled_model")}
            if row.get("predictions"):
                method, split, part = job_key(row)
                # Different names may have the same slug, so a digest is added to changed names.
                slug = re.sub(r"[^a-z0-9]+", "-", method.lower())[:40].strip("-")
                slug += "" if slug == method else f"-{_digest(method.encode())[:8]}"
                slug += "" if part == Kind.HELD_OUT else f"--{part}"
                line["file"] = f"{split:02d}-{slug}.parquet"
                line["sha256"] = self._write_predictions(self.store.folder / line["file"], row)
            lines.append({"kind": "job", **line})
        self.store.append(lines)
        super().append(rows)

    def _write_predictions(self, path: Path, row: Row) -> str:
        """Write the predictions of a job, and return the SHA-256 of the file."""
        pandas = import_pandas()
        classes = None if self.problem.classes is None else self.problem.classes.tolist()
        frames = []
        for prediction in row["predictions"]:
            domain = str(self.problem.domains[prediction.domain])
            columns = prediction_columns(prediction, classes, all_outputs=True)
            if classes is not None:
                columns |= {name: columns[name].astype(str) for name in ("target", "prediction")}
            columns |= {"domain": domain, "kind": str(prediction.kind)}
            frames.append(pandas.DataFrame({"method": row["method"], **columns}))
        with files.replacing(path) as temporary_path:
            pandas.concat(frames).to_parquet(temporary_path, index=False)
            return _digest(temporary_path.read_bytes())


def stored_plan(folder: Path, requested: Mapping[str, Any]) -> Plan | None:
    """Return the plan in a folder if it was made from the same arguments; None otherwise."""
    store = ResultStore(folder / JOBS)
    if not store.path.is_file() or store.peek("requested") != dict(requested):
        return None
    return replace(Plan.read({"plan": store.peek("plan")}), is_decided=bool(requested["planned"]))


@contextmanager
def open_folder(
    folder: Path,
    problem: Problem,
    methods: Sequence[Method],
    splits: Sequence[Split],
    *,
    force: bool,
    **arguments: Any,
) -> Iterator[JobFolder]:
    """Start or continue an evaluation in a folder, and lock the folder while it runs.

    An error is raised if the folder contains jobs for another table, other methods or other
    ``arguments``. With ``force``, all jobs are first removed from the folder, but no other files.
    """
    require(not problem.measure.is_custom, "custom scorer")
    import_pandas()
    store = ResultStore(Path(folder) / JOBS)
    if (Path(folder) / RESULT_NAME).exists() and not store.path.exists() and not force:
        raise TableError(
            f"{folder} contains {RESULT_NAME}, but no finished fits. Choose another folder, or "
            "replace the results with ",
            Argument("force", True),
        )
    settings = {
        "table": _fingerprint(problem, splits)[:16],
        "methods": [method.key for method in methods],
        "grids": _digest("".join(_describe_method(m, problem) for m in methods).encode())[:16],
        "seed": problem.seed,
        **arguments,
    }
    with store.locked():
        # A quick evaluation is fast to repeat, so its results are replaced.
        if force or store.peek("quick") is True:
            store.clear(PREDICTION_FILE)
        for path in store.folder.iterdir():
            if UNFINISHED_FILE.fullmatch(path.name):
                path.unlink()
        try:
            store.open(repair=True, new_entries={"chosen_by": problem.measure.name}, **settings)
            job_folder = JobFolder(store, problem, len(splits))
        except ResultsError as error:
            message = f"{error}, or replace the results with "
            raise TableError(message, Argument("force", True)) from error
        yield job_folder


def write_evaluation(folder: Path, evaluation: Evaluation, **entries: Any) -> dict[str, Any]:
    """Write ``evaluation.json`` with additional entries and a digest, and return its content."""
    content = {**evaluation.to_dict(), **entries}
    content["digest"] = _content_digest(content)
    text = json.dumps(content, indent=2, ensure_ascii=False)
    files.write_text(Path(folder) / RESULT_NAME, text + "\n")
    return content


def read_content(folder: Path) -> tuple[dict[str, Any], _Content]:
    """Return the checked content of ``evaluation.json``, as it is, and converted to types."""
    path = Path(folder) / RESULT_NAME
    require(path.is_file(), "no results", ResultsError, folder=folder, name=RESULT_NAME)
    content = files.read_json(path)
    stored: _Content = from_json(_Content, content, str(path))
    is_unchanged = content.get("digest", _content_digest(content)) == _content_digest(content)
    require(is_unchanged, "changed results", ResultsError, path=path)
    facts, differences = stored["facts"], stored["differences"]
    domain_entries, n_classes = differences.get("domains", []), len(facts["classes"] or ())
    described_names, n_domains = {entry["name"] for entry in domain_entries}, len(domain_entries)

    def check(condition: bool, reason: str) -> None:
        require(condition, "damaged results", ResultsError, path=path, reason=reason)

    check((facts["task"] == "regression") == (n_classes == 0), "classes do not match the task")
    has_columns = bool(differences.get("columns"))
    is_complete = not has_columns or {"domains", "faults", "others"} <= {*differences}
    check(is_complete, "differences are incomplete")
    are_weights_valid = all(0 < weight <= 1 for weight in stored["domain_weights"])
    check(are_weights_valid, "a domain weight is not between 0 and 1")
    for entry in domain_entries:
        n_numbers, n_expected = len(entry.get("classes", entry.get("target", ()))), n_classes or 3
        reason = f"the target of domain {entry['name']} has {n_numbers} entries, not {n_expected}"
        check(n_numbers == n_expected, reason)
    for column in differences.get("columns", ()):
        shares = column.get("shares", ())
        check(
            ("quantiles" if column["kind"] == "number" else "shares") in column
            and {len(column["missing"]), len(column.get("quantiles", shares))} == {n_domains}
            and all(0 <= column[key] < n_domains for key in ("distance_at", "tells_at"))
            and all(len(row or ()) <= len(column.get("categories", ())) for row in shares),
            f"the entries of column {column['name']!r} do not match the {n_domains} domains",
        )
    results: _Scores
    for results in (stored, *stored["others"]):
        domains, methods = results["domains"], results["methods"]
        check(len({*map(str, domains)}) == len(domains), "a domain is listed twice")
        first_keys = [method.key for method in methods[:1]]
        check(first_keys == [results["best"]], "best is not the first method")
        for method in methods:
            has_same_domains = [entry.domain for entry in method.per_domain] == domains
            check(has_same_domains, f"{method.key} is not scored on the listed domains")
            has_score = any(np.isfinite(entry.score) for entry in method.per_domain)
            check(has_score, f"{method.key} has no score")
    is_described = not described_names or described_names.issuperset(map(str, stored["domains"]))
    check(is_described, "differences do not describe all scored domains")
    return content, stored


def read_evaluation(folder: Path) -> tuple[Evaluation, dict[str, Any]]:
    """Read an evaluation from a folder, and return it with the content of its file.

    Predictions are read only for methods in ``evaluation.main``.
    """
    content, stored = read_content(folder)
    evaluation = _build_evaluation(stored)
    # The gain from labels is stored for the main measure only.
    shared: Any = {**stored, "label_gain": [], "site_columns": None}
    evaluation.others = [_build_evaluation(shared | other) for other in stored["others"]]
    store = ResultStore(Path(folder) / JOBS)
    if not store.path.exists():
        evaluation.lacking = f"the results folder has no subfolder {JOBS}"
        return evaluation, content
    store.read()
    evaluation.lacking = f"their files are missing from the subfolder {JOBS}"
    domain_by_name = {str(name): name for name in evaluation.domains}
    main_keys = {result.key for result in evaluation.main}
    jobs = _finished_jobs(store)
    keys_to_read = {key for key, _, _ in jobs if key in main_keys}
    # Some predictions may be missing from a copied folder; everything else can still be shown.
    keys_to_read -= {k[0] for k, job in jobs.items() if not _predictions_path(store, job).exists()}
    if find_spec("pyarrow") is None:
        keys_to_read = set()
        evaluation.lacking = "reading them needs pyarrow, which is not installed"
    for (method, _, part), job in jobs.items():
        if part == Kind.HELD_OUT and method in keys_to_read:
            predictions = _read_predictions(store, job, domain_by_name, evaluation.classes)
            held_out = [p for p in predictions if p.kind == Kind.HELD_OUT]
            evaluation.records[method] = [*evaluation.records.get(method, ()), *held_out]
    evaluation.records = {key: merge_by_domain(r) for key, r in evaluation.records.items()}
    return evaluation, content


def _build_evaluation(content: _Content) -> Evaluation:
    """Create an evaluation from its stored content, without predictions."""
    measure, domains = content["measure"], content["domains"]
    sign = 1 if measure["greater_is_better"] else -1
    # Scores are listed by domain; all other fields are read unchanged.
    names = [f.name for f in fields(MethodResult) if f.metadata.get("key", f.name)]
    results = [
        MethodResult(
            **{name: getattr(method, name) for name in names},
            scores={entry.domain: sign * entry.score for entry in method.per_domain},
            seen={entry.domain: sign * entry.seen for entry in method.per_domain},
            errors={entry.domain: entry.error for entry in method.per_domain},
        )
        for method in content["methods"]
    ]
    differences: dict[str, Any] = {**content["differences"]}
    if "faults" in differences:
        differences["faults"] = files.to_json(differences["faults"])
    evaluation = Evaluation(
        results,
        domains,
        Measure(measure["name"], measure["label"], None, sign),
        content["left_out"],
        {**content["facts"]},
        content["notes"],
        next_step=content["next_step"],
        plan=content.get("plan"),
        differences=differences,
        site_columns=content.get("site_columns"),
        weights=dict(zip(domains, content["domain_weights"], strict=False)),
        row_counts=dict(zip(domains, content["domain_rows"], strict=False)),
    )
    calibrations = {method.key: method.calibration for method in content["methods"]}
    evaluation.set_calibration = {**(calibrations[evaluation.recommended_] or {})}
    # The gain from labels is not computed again, because that would need the scorer.
    evaluation.label_gain = content["label_gain"]
    return evaluation


def _finished_jobs(store: ResultStore) -> dict[tuple[str, int, str], Row]:
    """Rows of finished jobs by their :func:`job_key`; if a job was run again, its last row."""
    jobs = {}
    for job_number, row in enumerate(store.rows("job"), 1):
        if "error" not in row:
            form = _SeenJob if row.get("part") == Kind.SEEN else _Job
            row = from_json(form, row, f"{store.path}: job {job_number}")
            jobs[job_key(row)] = row
    return jobs


def _predictions_path(store: ResultStore, job: Row) -> Path:
    """Path of a job's predictions; the folder itself if the job has none."""
    return store.folder / job.get("file", "")


def _read_predictions(
    store: ResultStore, job: Row, domain_by_name: Mapping[str, Any], classes: Array | None
) -> list[Prediction]:
    """Read a job's predictions by domain and fold; ``domain_by_name`` converts stored domains."""
    if "file" not in job:
        return []
    path = _predictions_path(store, job)
    try:
        content = path.read_bytes()
        if job.get("sha256", (digest := _digest(content))) != digest:
            raise ResultsError(
                f"{path} was changed after it was written: its SHA-256 does not match the one in "
                f"{store.path.name}. Restore the file, or evaluate again"
            )
        frame = import_pandas().read_parquet(path)
        class_names = [] if classes is None else [str(name) for name in classes.tolist()]
        code_by_class = {name: code for code, name in enumerate(class_names)}
        predictions = []
        for (domain, kind), rows in frame.groupby(["domain", "kind"], sort=False):
            arrays: dict[str, Any] = {"row": rows["row"].astype(int).to_numpy()}
            for name in ("target", "prediction"):
                if classes is None:
                    arrays[name] = rows[name].to_numpy(dtype=np.float64)
                else:
                    arrays[name] = classes[[code_by_class[label] for label in rows[name]]]
            if "weight" in rows:
                arrays["weight"] = rows["weight"].to_numpy(dtype=np.float64)
            for output, prefix in (("probabilities", "probability_"), ("decisions", "decision_")):
                columns = [name for name in frame if name.startswith(prefix)]
                last_class = class_names[-1:] if output == "decisions" else []
                suffixes = [name.removeprefix(prefix) for name in columns]
                if suffixes not in ([], class_names, last_class):
                    raise ValueError(f"the columns {prefix}... do not match the classes")
                if columns:
                    array = rows[columns].to_numpy(dtype=np.float64)
                    arrays[output] = array[:, 0] if len(columns) == 1 else array
            place = {"domain": domain_by_name[domain], "kind": Kind(kind)}
            predictions.append(Prediction(**arrays, **place))
    except ResultsError:
        raise
    except ModuleNotFoundError as error:
        raise ImportError(
            f'reading predictions needs {error.name}: pip install "domainwise[cli]"'
        ) from None
    except (OSError, KeyError, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        raise ResultsError(
            f"{path} does not contain the expected predictions ({type(error).__name__}: {error}). "
            "Restore the file, or evaluate again"
        ) from error
    return predictions


def _describe_method(method: Method, problem: Problem) -> str:
    """Describe a method's grid and a custom model's parameters, without memory addresses."""
    description: list[Any] = [describe_grid(method.grid(problem.classification)), method.prepare]
    if method.kind == "own":
        model = method.build(problem.setting(1))
        description += [type(model).__name__, model.get_params()]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(description))


def _fingerprint(problem: Problem, splits: Sequence[Split]) -> str:
    """Digest of the rows, targets, domains and splits."""
    sha256, source = hashlib.sha256(), problem.full
    for X in (source.X, source.raw):
        if hasattr(X, "columns"):
            frame = X.to_pandas() if hasattr(X, "to_pandas") else X
            sha256.update("\0".join(map(str, frame.columns)).encode())
            for name in frame.columns:
                sha256.update(_to_bytes(frame[name].to_numpy()))
        else:
            sha256.update(_to_bytes(X))
    arrays = (source.y, source.domains, source.codes, problem.index, problem.classes)
    for array in (*arrays, *(() if source.weights is None else (source.weights,))):
        sha256.update(_to_bytes(array))
    for train, test in splits:
        sha256.update(_to_bytes(train) + _to_bytes(test))
    return sha256.hexdigest()


def _to_bytes(values: Any) -> bytes:
    """Convert an array to bytes for a digest; objects are first converted to text."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind in "biufM":
        return f"{array.shape}{array.dtype}".encode() + array.tobytes()
    return "\0".join(map(str, array.ravel().tolist())).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _content_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content of evaluation.json, independent of its formatting."""
    entries = {name: value for name, value in content.items() if name != "digest"}
    return _digest(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode())
