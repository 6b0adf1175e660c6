"""The tables and the words as a Markdown file."""

from __future__ import annotations

from domainwise.paper.report import findings, words
from domainwise.paper.report.layout import TextCell, case_caption, case_table, legend
from domainwise.paper.report.summary import CaseView, RunSummary, TableView

_TIMES = (
    "Times: CPU seconds of one fit and prediction, in a process of its own; MiB: its peak memory,"
    " Python and data included; blank where not measured."
)
_SETTING_TITLES = {"paper": "The paper's parameters", "tuned": "Tuned on source domains"}


def to_markdown(run: RunSummary) -> str:
    """Everything a reader of the repository needs: command, seed, words, tables, caveats."""
    parts = ["# The paper's tables, reproduced", "", _how_made(run), ""]
    parts += [f"- {sentence}" for sentence in words.in_short(run)]
    if not run.quick:
        parts += ["", "## What reproduces, what does not, and why", "", *_findings(run)]
    parts += ["", "## Tables", "", legend(run), _TIMES]
    for table in run.tables:
        parts += ["", *_table(table)]
    parts += ["", "## Machine and versions", "", *_environment(run), ""]
    return "\n".join(parts)


def _how_made(run: RunSummary) -> str:
    keys = [table.table.key for table in run.tables]
    name = keys[0] if len(keys) == 1 else "all"
    command = f"domainwise reproduce {name}" + (" --quick" if run.quick else "")
    return (
        f"Made by `{command} --seed {run.header.get('root_seed')}`; do not edit. The numbers of the"
        " paper are those of its LaTeX source."
    )


def _findings(run: RunSummary) -> list[str]:
    lines = []
    column = findings.svm_column(run)
    if column:
        lines += [column, ""]
    for title, entries in (
        ("Within one of the paper's standard deviations", findings.reproduced(run)),
        (
            "Outside (difference ours − paper, and in the paper's standard deviations)",
            findings.not_reproduced(run),
        ),
        ("Why", findings.reasons(run)),
        ("What the ridge is worth (1e-5 / 1e-3 / ∞)", findings.ridge_paths(run)),
    ):
        if entries:
            lines += [f"{title}:", "", *(f"- {entry}" for entry in entries), ""]
    return lines[:-1]


def _table(table: TableView) -> list[str]:
    lines = [f"### {table.table.title}", "", table.table.about]
    if table.table.stand_in:
        lines += ["", f"**Stand-in data.** {table.table.stand_in}"]
    for setting, title in _SETTING_TITLES.items():
        cases = table.in_setting(setting)
        if not cases:
            continue
        lines += ["", f"#### {title}"]
        for case in cases:
            lines += ["", *_case(case)]
    return lines


def _case(case: CaseView) -> list[str]:
    layout = case_table(case)
    selection = f". Selection: {case.rule}." if case.rule else ""
    lines = [f"**{case.title}**: {case_caption(case)}{selection}", ""]
    lines.append("| " + " | ".join(layout.columns) + " |")
    lines.append("|---" + "|---:" * (len(layout.columns) - 1) + "|")
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in layout.rows]
    return lines


def _cell(cell: TextCell) -> str:
    return f"**{cell.text}**" if cell.bold and cell.text else cell.text


def _environment(run: RunSummary) -> list[str]:
    header = run.header
    machine = header.get("machine", {})
    versions = header.get("versions", {})
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [
        f"domainwise {header.get('domainwise')}, Python {header.get('python')}, {listed};"
        f" {machine.get('processor')}, {machine.get('cores')} cores,"
        f" {machine.get('system')}; begun {header.get('started')}"
        + (f", continued {words.count(len(run.sessions), 'time')}" if run.sessions else "")
        + "."
    ]
