"""Summarize a results file: means, comparisons with the paper, paired tests and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domainwise.base.files import ResultStore
from domainwise.base.process import Row
from domainwise.held_out.scoring.statistics import Paired, compare
from reproduction.methods import METHODS
from reproduction.protocols import METRICS, SETTINGS, TABLES, Case, Metric, Table
from reproduction.ranks import Ranking, Summary, rank_methods, summarize
from reproduction.trials import INVARIANCE_MEASURES

LEVEL = 0.05  #: significance level of all tests
MAX_ERRORS = 2.0  #: means that differ by at most so many standard errors agree
MIN_REPEATS = 5  #: a mean over fewer repeats is not compared with the paper's
#: Methods that are ranked over data sets, if they were run in every case.
RANKED_METHODS = ("majority", "svm", "kpca", "coir", "dica", "dcm", "invariant")


@dataclass(frozen=True)
class CellView:
    """A cell in a table: our mean and the paper's, with standard deviations."""

    our_summary: Summary
    paper_mean_sd: Sequence[float] | None
    #: Our mean minus the paper's in standard errors of this difference; None if the means are not
    #: comparable.
    n_errors: float | None
    is_best: bool

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return self.our_summary.mean - self.paper_mean_sd[0] if self.paper_mean_sd else None

    @property
    def agrees(self) -> bool | None:
        """Whether the means differ by at most two standard errors; None if not comparable."""
        return None if self.n_errors is None else abs(self.n_errors) <= MAX_ERRORS


@dataclass(frozen=True)
class MethodView:
    """A row in the table of a case."""

    key: str
    label: str
    cells: Mapping[str, CellView]  #: by metric
    scores: Mapping[int, float]  #: by repeat, in the primary metric
    paired_test: Paired | None  #: DCM or FastDCM against the method; None for DCM
    seconds: float | None  #: CPU time
    paper_seconds: float | None
    peak_mib: float | None
    invariance: Mapping[str, float]  #: empty if it was not measured


@dataclass(frozen=True)
class CaseView:
    """A case in one setting, and its results."""

    case: Case
    setting: str
    stand_in: bool  #: whether other data replace the paper's
    methods: Sequence[MethodView]
    n_repeats: int
    n_train_range: tuple[int, int]  #: smallest and largest number of source rows
    tuning_rule: str  #: without the number of candidates; empty in the paper setting

    @property
    def metrics(self) -> list[Metric]:
        """Metrics of the case; the first one ranks the methods."""
        return [METRICS[key] for key in self.case.metrics]

    @property
    def primary_metric(self) -> Metric:
        """The metric that ranks the methods."""
        return self.metrics[0]

    @property
    def title(self) -> str:
        """Title of the case, marked if its data are substitutes."""
        return self.case.title + (" (substitute data)" if self.stand_in else "")

    def advantage(self, method: MethodView) -> float:
        """Return by how much DCM or FastDCM is better than a method; 0 if not significant."""
        test = method.paired_test
        if test is None or test.p_value is None or test.p_value >= LEVEL:
            return 0.0
        return test.difference if self.primary_metric.greater_is_better else -test.difference

    def best_methods(self) -> list[MethodView]:
        """Return all methods that have the best mean."""
        key = self.primary_metric.key
        return [m for m in self.methods if (cell := m.cells.get(key)) is not None and cell.is_best]

    def best_method(self) -> MethodView | None:
        """Return the first method with the best mean; None if there are no scores."""
        return next(iter(self.best_methods()), None)

    def find_method(self, key: str) -> MethodView | None:
        """Return the method with this key; None if it was not run."""
        return next((method for method in self.methods if method.key == key), None)


@dataclass(frozen=True)
class TableView:
    """A table in the paper, and the cases that were run."""

    table: Table
    cases: Sequence[CaseView]

    def cases_in(self, setting: str) -> list[CaseView]:
        """Return the cases in one setting, in the paper's order."""
        return [case for case in self.cases if case.setting == setting]


@dataclass(frozen=True)
class RunSummary:
    """Everything that the report shows, computed from a results file."""

    header: Row
    sessions: Sequence[Row]
    tables: Sequence[TableView]
    rankings: Mapping[str, Ranking]  #: by setting
    projections: Sequence[Row]
    spectrum: Row | None
    long_runs: Mapping[str, Row]  #: by case
    failures: Sequence[Row]

    @property
    def quick(self) -> bool:
        """Whether this is a quick run, which is too small to draw conclusions from."""
        return bool(self.header.get("profile") == "quick")

    def cases(self, setting: str | None = None) -> list[CaseView]:
        """Return the cases of all tables in a setting; None means all settings."""
        cases = [case for table in self.tables for case in table.cases]
        return [case for case in cases if setting in (None, case.setting)]


def summarise_run(store: ResultStore) -> RunSummary:
    """Summarize the results that a store has read."""
    rows_by_case: dict[tuple[str, str], dict[str, dict[int, Row]]] = {}  # then by method, repeat
    failures_by_key: dict[tuple[str, str, int, str], Row] = {}
    for row in store.rows("result"):
        key = (row["case"], row["setting"], row["repeat"], row["method"])
        if row["status"] != "ok":
            failures_by_key[key] = row
            continue
        failures_by_key.pop(key, None)
        rows_by_method = rows_by_case.setdefault((row["case"], row["setting"]), {})
        rows_by_method.setdefault(row["method"], {})[row["repeat"]] = row
    timed_rows = (row for row in store.rows("timing") if row["status"] == "ok")
    timings = {(row["case"], row["method"]): row for row in timed_rows}
    is_quick = store.header.get("profile") == "quick"
    tables = []
    for table in TABLES.values():
        cases = [
            _case_view(case.quick() if is_quick else case, setting, table, case_rows, timings)
            for case in table.cases
            for setting in SETTINGS
            if (case_rows := rows_by_case.get((case.key, setting)))
        ]
        tables += [TableView(table, cases)] if cases else []
    return RunSummary(
        header=store.header,
        sessions=store.rows("session"),
        tables=tables,
        rankings={key: ranking for key in SETTINGS if (ranking := _rank(tables, key))},
        projections=store.rows("projection"),
        spectrum=next(reversed(store.rows("spectrum")), None),
        long_runs={row["case"]: row for row in store.rows("long_run")},
        failures=list(failures_by_key.values()),
    )


def _case_view(
    case: Case,
    setting: str,
    table: Table,
    case_rows: Mapping[str, Mapping[int, Row]],
    timings: Mapping[tuple[str, str], Row],
) -> CaseView:
    """Summarize the rows of a case in one setting, given by method and repeat."""
    method_keys = [key for key in METHODS if key in case_rows]
    rows_by_method = {key: dict(sorted(case_rows[key].items())) for key in method_keys}
    scores: dict[str, dict[str, dict[int, float]]] = {}  # by metric, method and repeat
    summaries: dict[str, dict[str, Summary]] = {}
    best_means: dict[str, float] = {}
    for key in case.metrics:
        scores[key] = {
            name: {i: row["metrics"][key] for i, row in rows.items() if key in row["metrics"]}
            for name, rows in rows_by_method.items()
        }
        summaries[key] = {name: summarize(list(s.values())) for name, s in scores[key].items() if s}
        means = [summary.mean for name, summary in summaries[key].items() if METHODS[name].competes]
        choose_best = max if METRICS[key].greater_is_better else min
        best_means[key] = choose_best(filter(np.isfinite, means), default=np.nan)
    primary_scores = scores[case.metrics[0]]
    methods = []
    for name, rows in rows_by_method.items():
        method = METHODS[name]
        dcm_key = "fastdcm" if method.landmark_rule and name != "fastdcm" else "dcm"
        has_test = dcm_key in primary_scores and name != dcm_key
        paired_scores = primary_scores.get(dcm_key, {}), primary_scores[name]
        timing, paper_numbers = timings.get((case.key, name), {}), case.paper_numbers.get(name, {})
        if setting != "paper":
            timing, paper_numbers = {}, {}
        cells = {}
        for key in case.metrics:
            if summary := summaries[key].get(name):
                paper_mean_sd, n_errors = paper_numbers.get(key), None
                if paper_mean_sd is not None and not table.stand_in and summary.n >= MIN_REPEATS:
                    n_errors = standard_errors(summary, paper_mean_sd, case.repeats)
                has_best_mean = bool(np.isclose(summary.mean, best_means[key], rtol=1e-9, atol=0.0))
                is_best = method.competes and has_best_mean
                cells[key] = CellView(summary, paper_mean_sd, n_errors, is_best)
        invariances = [row["invariance"] for row in rows.values() if row.get("invariance")]
        methods.append(
            MethodView(
                key=name,
                label=method.label_for(case.task),
                cells=cells,
                scores=primary_scores[name],
                paired_test=compare(*paired_scores) if has_test else None,
                seconds=timing.get("seconds"),
                paper_seconds=paper_numbers.get("seconds"),
                peak_mib=timing.get("peak_mib"),
                invariance={
                    key: float(np.mean([invariance[key] for invariance in invariances]))
                    for key in (INVARIANCE_MEASURES if invariances else ())
                },
            )
        )
    all_rows = [row for rows in rows_by_method.values() for row in rows.values()]
    source_row_counts = [row["n_train"] for row in all_rows]
    rule = all_rows[0]["selection"]["rule"] if setting == "tuned" else ""
    return CaseView(
        case=case,
        setting=setting,
        stand_in=bool(table.stand_in),
        methods=methods,
        n_repeats=max(map(len, rows_by_method.values())),
        n_train_range=(min(source_row_counts), max(source_row_counts)),
        tuning_rule=rule.rsplit(", ", 1)[0],
    )


def standard_errors(ours: Summary, paper: Sequence[float], paper_repeats: int) -> float:
    """Return our mean minus the paper's, in standard errors of this difference.

    >>> round(standard_errors(Summary(66.72, 4.42, 20), (70.31, 4.91), 20), 1)
    -2.4
    """
    error = np.hypot(ours.deviation / ours.n**0.5, paper[1] / paper_repeats**0.5)
    return float((ours.mean - paper[0]) / error) if error > 0 else float(ours.mean != paper[0])


def _rank(tables: Sequence[TableView], setting: str) -> Ranking | None:
    """Rank methods over data sets, averaging the ranks over the cases of each data set."""
    cases = [case for table in tables for case in table.cases_in(setting)]
    method_keys = [key for key in RANKED_METHODS if all(case.find_method(key) for case in cases)]
    if not cases or len(method_keys) < 2:
        return None
    ranks_by_dataset: dict[str, list[np.ndarray]] = {}
    for case in cases:
        metric = case.primary_metric
        sign = 1.0 if metric.greater_is_better else -1.0
        means = {method.key: method.cells[metric.key].our_summary.mean for method in case.methods}
        signed_means = np.array([[sign * means[key] for key in method_keys]])
        case_ranks = rank_methods(signed_means, method_keys).average_ranks
        ranks_by_dataset.setdefault(case.case.source, []).append(case_ranks)
    mean_ranks = np.array([np.mean(ranks, axis=0) for ranks in ranks_by_dataset.values()])
    return rank_methods(-mean_ranks, [METHODS[key].label for key in method_keys])
