"""The page: templates filled with the summary and the pictures. One file, no network."""

from __future__ import annotations

from typing import Any

from domainwise.jobs.statistics import PAIRED_CAVEAT
from domainwise.paper.methods import METHODS
from domainwise.paper.printed import PROVENANCE
from domainwise.paper.report import findings, plots, words
from domainwise.paper.report.layout import case_caption, case_table, legend
from domainwise.paper.report.summary import CaseView, RunSummary, TableView
from domainwise.report.page import Templates

_SETTINGS = {"paper": "With the paper's parameters", "tuned": "Tuned on source domains only"}


def render(run: RunSummary) -> str:
    """Make the report of a run.

    Parameters
    ----------
    run : RunSummary
        From :func:`domainwise.paper.report.summary.summarise_run`.

    Returns
    -------
    str
        A complete HTML document.
    """
    return Templates("domainwise.paper.report").render(
        "reproduce.html.j2",
        styles=["style.css"],
        title="The paper's tables, reproduced",
        quick=run.quick,
        what=[*words.what_was_run(run), *words.unfinished(run)],
        close=words.how_close(run),
        wins=words.who_wins(run),
        sure=words.how_sure(run),
        sections=[_section(table) for table in run.tables],
        rankings=[
            plots.ranking_plot(ranking, setting, f"rank-{setting}")
            for setting, ranking in run.rankings.items()
            if ranking.n_datasets > 1
        ],
        projections=[
            plots.projection_plot(row, f"projection-{row['method']}")
            for row in sorted(run.projections, key=lambda row: list(METHODS).index(row["method"]))
        ],
        spectrum=None if run.spectrum is None else plots.spectrum_plot(run.spectrum, "spectrum"),
        findings=_findings(run),
        legend=legend(run),
        caveat=PAIRED_CAVEAT,
        provenance=PROVENANCE,
        facts=_facts(run),
        failures=run.failures,
    )


def _section(table: TableView) -> dict[str, Any]:
    """One table of the paper: its cases by setting, then pictures of all of them."""
    paper = table.in_setting("paper")
    return {
        "table": table.table,
        "headline": words.headline(table),
        "settings": [
            (title, [_case(case) for case in cases])
            for setting, title in _SETTINGS.items()
            if (cases := table.in_setting(setting))
        ],
        "times": plots.drawn(plots.time_plot(case, _id("time", case)) for case in paper),
        "invariance": plots.drawn(plots.invariance_plot(case, _id("inv", case)) for case in paper),
    }


def _case(case: CaseView) -> dict[str, Any]:
    return {
        "title": case.title,
        "caption": case_caption(case),
        "rule": case.rule,
        "table": case_table(case),
        "picture": plots.box_plot(case, _id("box", case)),
    }


def _findings(run: RunSummary) -> dict[str, Any] | None:
    if run.quick:
        return None
    return {
        "column": findings.svm_column(run),
        "within": findings.reproduced(run),
        "outside": findings.not_reproduced(run),
        "ridges": findings.ridge_paths(run),
        "reasons": [reason.split("**")[1:] for reason in findings.reasons(run)],
    }


def _facts(run: RunSummary) -> list[tuple[str, str]]:
    header = run.header
    machine = header.get("machine", {})
    facts = [
        ("domainwise", str(header.get("domainwise"))),
        ("Python", str(header.get("python"))),
        *[(name, str(version)) for name, version in header.get("versions", {}).items()],
        ("machine", f"{machine.get('processor')}, {machine.get('cores')} cores"),
        ("system", str(machine.get("system"))),
        ("root seed", str(header.get("root_seed"))),
        ("size of the run", str(header.get("profile"))),
        ("begun", str(header.get("started"))),
    ]
    if run.sessions:
        facts.append(("continued", words.count(len(run.sessions), "time")))
    return facts


def _id(kind: str, case: CaseView) -> str:
    name = f"{kind}-{case.case.key}-{case.setting}"
    return "".join(c if c.isalnum() else "-" for c in name)
