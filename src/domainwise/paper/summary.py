"""Summarize a results file: means, comparisons with the paper, paired tests and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domainwise.jobs.runner import Row
from domainwise.jobs.store import ResultStore
from domainwise.paper.methods import METHODS
from domainwise.paper.protocols import METRICS, SETTINGS, TABLES, Case, Metric, Table
from domainwise.paper.trials import INVARIANCE
from domainwise.scoring.statistics import Paired, Ranking, Summary, compare, rank_methods, summarise

LEVEL = 0.05  #: significance level of paired tests
#: Methods that can be ranked over data sets.
RANKED = ("majority", "svm", "kpca", "coir", "dica", "dcm", "invariant")


@dataclass(frozen=True)
class CellView:
    """A cell in a table: our score and the paper's."""

    ours: Summary
    paper: Sequence[float] | None  #: mean and standard deviation
    within_sd: bool | None  #: whether our mean is within one sd of the paper's, if comparable
    is_best: bool

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.paper is None else self.ours.mean - self.paper[0]


@dataclass(frozen=True)
class MethodView:
    """A row in the table of a case."""

    key: str
    label: str
    cells: Mapping[str, CellView]
    scores: Mapping[int, float]  #: scores by repeat, in the ranking metric
    paired_test: Paired | None  #: DCM or FastDCM against the method; None for DCM itself
    seconds: float | None
    paper_seconds: float | None
    peak_mib: float | None
    invariance: Mapping[str, float]  #: empty if it was not measured


@dataclass(frozen=True)
class CaseView:
    """A case in one setting."""

    case: Case
    setting: str
    stand_in: bool  #: whether other data replace the paper's
    methods: Sequence[MethodView]
    n_repeats: int
    n_train: tuple[int, int]  #: smallest and largest number of source rows
    rule: str  #: how parameters were tuned, without the number of candidates

    @property
    def metrics(self) -> list[Metric]:
        """Metrics of the case; the first one ranks the methods."""
        return [METRICS[key] for key in self.case.metrics]

    @property
    def primary(self) -> Metric:
        """The metric that ranks the methods."""
        return self.metrics[0]

    @property
    def title(self) -> str:
        """Title of the case, marked if its data are a stand-in."""
        return self.case.title + (" (stand-in)" if self.stand_in else "")

    def advantage(self, method: MethodView) -> float:
        """Return by how much DCM or FastDCM is better than a method; 0 if not significant."""
        test = method.paired_test
        if test is None or test.p_value is None or test.p_value >= LEVEL:
            return 0.0
        return test.difference if self.primary.greater_is_better else -test.difference

    def best_methods(self) -> list[MethodView]:
        """Return all methods that have the best mean."""
        key = self.primary.key
        return [
            method for method in self.methods if key in method.cells and method.cells[key].is_best
        ]

    def best(self) -> MethodView | None:
        """Return the first method with the best mean; None if there is none."""
        return next(iter(self.best_methods()), None)

    def find(self, key: str) -> MethodView | None:
        """Return the method with this key; None if it was not run."""
        return next((method for method in self.methods if method.key == key), None)


@dataclass(frozen=True)
class TableView:
    """A table in the paper with the cases that were run."""

    table: Table
    cases: Sequence[CaseView]

    def in_setting(self, setting: str) -> list[CaseView]:
        """Return the cases in one setting, in the paper's order."""
        return [case for case in self.cases if case.setting == setting]


@dataclass(frozen=True)
class RunSummary:
    """Everything that the report shows, computed from a results file."""

    header: Row
    sessions: Sequence[Row]
    tables: Sequence[TableView]
    rankings: Mapping[str, Ranking]
    projections: Sequence[Row]
    spectrum: Row | None
    long_runs: Mapping[str, Row]
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
    rows_by_case: dict[tuple[str, str], dict[str, dict[int, Row]]] = {}
    failures: dict[tuple[str, str, int, str], Row] = {}
    for row in store.rows("result"):
        key = (row["case"], row["setting"], row["repeat"], row["method"])
        if row["status"] != "ok":
            failures[key] = row
            continue
        failures.pop(key, None)
        method_rows = rows_by_case.setdefault((row["case"], row["setting"]), {})
        method_rows.setdefault(row["method"], {})[row["repeat"]] = row
    timed_rows = (row for row in store.rows("timing") if row["status"] == "ok")
    timings = {(row["case"], row["method"]): row for row in timed_rows}
    is_quick = store.header.get("profile") == "quick"
    views_by_table = {
        table.key: [
            _case_view(case.quick() if is_quick else case, setting, table, case_rows, timings)
            for case in table.cases
            for setting in SETTINGS
            if (case_rows := rows_by_case.get((case.key, setting)))
        ]
        for table in TABLES.values()
    }
    tables = [TableView(TABLES[key], cases) for key, cases in views_by_table.items() if cases]
    return RunSummary(
        header=store.header,
        sessions=store.rows("session"),
        tables=tables,
        rankings={s: ranking for s in SETTINGS if (ranking := _ranking(tables, s))},
        projections=store.rows("projection"),
        spectrum=next(reversed(store.rows("spectrum")), None),
        long_runs={row["case"]: row for row in store.rows("long_run")},
        failures=list(failures.values()),
    )


def _case_view(
    case: Case,
    setting: str,
    table: Table,
    case_rows: Mapping[str, Mapping[int, Row]],
    timings: Mapping[tuple[str, str], Row],
) -> CaseView:
    method_rows = {key: dict(sorted(case_rows[key].items())) for key in METHODS if key in case_rows}
    scores: dict[str, dict[str, dict[int, float]]] = {}  # by metric and method
    summaries: dict[str, dict[str, Summary]] = {}
    best_means: dict[str, float] = {}
    for key in case.metrics:
        scores[key] = {
            name: {i: row["metrics"][key] for i, row in repeats.items() if key in row["metrics"]}
            for name, repeats in method_rows.items()
        }
        summaries[key] = {n: summarise(list(s.values())) for n, s in scores[key].items() if s}
        means = [ours.mean for name, ours in summaries[key].items() if METHODS[name].competes]
        choose_best = max if METRICS[key].greater_is_better else min
        best_means[key] = choose_best(filter(np.isfinite, means), default=np.nan)
    ranking_scores = scores[case.metrics[0]]
    methods = []
    for name, repeats in method_rows.items():
        method = METHODS[name]
        dcm_key = "fastdcm" if method.landmark_rule and name != "fastdcm" else "dcm"
        is_paired = dcm_key in ranking_scores and name != dcm_key
        pair = ranking_scores.get(dcm_key, {}), ranking_scores[name]
        timing, paper_numbers = timings.get((case.key, name), {}), case.paper.get(name, {})
        if setting != "paper":
            timing, paper_numbers = {}, {}
        cells = {}
        for key in case.metrics:
            if ours := summaries[key].get(name):
                paper, is_within = paper_numbers.get(key), None
                if paper is not None and not table.stand_in:
                    is_within = abs(ours.mean - paper[0]) <= paper[1]
                is_best = bool(np.isclose(ours.mean, best_means[key], rtol=1e-9, atol=0.0))
                cells[key] = CellView(ours, paper, is_within, method.competes and is_best)
        invariances = [row["invariance"] for row in repeats.values() if row.get("invariance")]
        methods.append(
            MethodView(
                key=name,
                label=method.name(case.task),
                cells=cells,
                scores=ranking_scores[name],
                paired_test=compare(*pair) if is_paired else None,
                seconds=timing.get("seconds"),
                paper_seconds=paper_numbers.get("seconds"),
                peak_mib=timing.get("peak_mib"),
                invariance={
                    key: float(np.mean([invariance[key] for invariance in invariances]))
                    for key in (INVARIANCE if invariances else ())
                },
            )
        )
    all_rows = [row for repeats in method_rows.values() for row in repeats.values()]
    row_counts = [row["n_train"] for row in all_rows]
    return CaseView(
        case=case,
        setting=setting,
        stand_in=bool(table.stand_in),
        methods=methods,
        n_repeats=max(map(len, method_rows.values())),
        n_train=(min(row_counts), max(row_counts)),
        rule=all_rows[0]["selection"]["rule"].rsplit(", ", 1)[0] if setting == "tuned" else "",
    )


def _ranking(tables: Sequence[TableView], setting: str) -> Ranking | None:
    """Rank methods over data sets, averaging the ranks over the cases of each data set."""
    cases = [case for table in tables for case in table.in_setting(setting)]
    names = [name for name in RANKED if all(case.find(name) is not None for case in cases)]
    if not cases or len(names) < 2:
        return None
    ranks_by_source: dict[str, list[np.ndarray]] = {}
    for case in cases:
        sign = 1.0 if case.primary.greater_is_better else -1.0
        means = {method.key: method.cells[case.primary.key].ours.mean for method in case.methods}
        signed_means = np.array([[sign * means[name] for name in names]])
        case_ranks = rank_methods(signed_means, names).average_ranks
        ranks_by_source.setdefault(case.case.source, []).append(case_ranks)
    negative_ranks = [-np.mean(source_ranks, axis=0) for source_ranks in ranks_by_source.values()]
    return rank_methods(np.array(negative_ranks), [METHODS[name].label for name in names])
