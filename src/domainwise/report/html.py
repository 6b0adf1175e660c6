"""The page: templates filled with the summary and the pictures. One file, no network."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from domainwise.experiments.methods import METHODS
from domainwise.experiments.paper import PROVENANCE
from domainwise.experiments.stats import PAIRED_CAVEAT
from domainwise.report import honesty, plots, words
from domainwise.report.layout import TextTable, case_caption, case_table, legend
from domainwise.report.summary import CaseView, RunSummary, TableView
from domainwise.report.svg import Picture

_SETTINGS = {
    "paper": ("With the paper's parameters", "paper"),
    "tuned": ("Tuned on source domains only", "tuned"),
}


@dataclass(frozen=True)
class CaseSection:
    """One case on the page."""

    title: str
    caption: str
    table: TextTable
    rule: str
    picture: Picture | None


@dataclass(frozen=True)
class SettingSection:
    """The cases of a table in one setting."""

    title: str
    cases: list[CaseSection]


@dataclass(frozen=True)
class TableSection:
    """One table of the paper on the page."""

    key: str
    title: str
    about: str
    stand_in: str
    headline: str
    settings: list[SettingSection]
    times: list[Picture] = field(default_factory=list)
    invariance: list[Picture] = field(default_factory=list)


def environment() -> Environment:
    """Templates of this package; other commands' reports extend ``base.html.j2``."""
    return Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(run: RunSummary) -> str:
    """Make the report of a run.

    Parameters
    ----------
    run : RunSummary
        From :func:`domainwise.report.summary.summarise_run`.

    Returns
    -------
    str
        A complete HTML document.
    """
    template = environment().get_template("reproduce.html.j2")
    return template.render(
        title="The paper's tables, reproduced",
        style=_read("style.css"),
        quick=run.quick,
        what=[*words.what_was_run(run), *words.unfinished(run)],
        close=words.how_close(run),
        wins=words.who_wins(run),
        sure=words.how_sure(run),
        tables=[_section(table) for table in run.tables],
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
        honest=_honest(run),
        legend=legend(run),
        caveat=PAIRED_CAVEAT,
        provenance=PROVENANCE,
        facts=_facts(run),
        failures=run.failures,
    )


def _section(table: TableView) -> TableSection:
    settings = []
    for setting, (title, _) in _SETTINGS.items():
        cases = table.in_setting(setting)
        if cases:
            settings.append(SettingSection(title, [_case(case) for case in cases]))
    paper = table.in_setting("paper")
    return TableSection(
        key=table.table.key,
        title=table.table.title,
        about=table.table.about,
        stand_in=table.table.stand_in,
        headline=words.headline(table),
        settings=settings,
        times=plots.drawn(plots.time_plot(case, _id("time", case)) for case in paper),
        invariance=plots.drawn(plots.invariance_plot(case, _id("inv", case)) for case in paper),
    )


def _case(case: CaseView) -> CaseSection:
    rules = [rule for method in case.methods for rule in method.rules]
    return CaseSection(
        title=case.case.title + (" (stand-in)" if case.stand_in else ""),
        caption=case_caption(case),
        table=case_table(case),
        rule=rules[0].rsplit(", ", 1)[0] if case.setting == "tuned" and rules else "",
        picture=plots.box_plot(case, _id("box", case)),
    )


def _honest(run: RunSummary) -> dict[str, Any] | None:
    if run.quick:
        return None
    return {
        "column": honesty.svm_column(run),
        "within": honesty.reproduced(run),
        "outside": honesty.not_reproduced(run),
        "ridges": honesty.ridge_paths(run),
        "reasons": [reason.split("**")[1:] for reason in honesty.reasons(run)],
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


def _read(name: str) -> str:
    return (files("domainwise.report") / "templates" / name).read_text(encoding="utf-8")
