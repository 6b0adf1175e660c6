"""Write what can be made from a results file: Markdown, HTML, and the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainwise.jobs.atomic import write_text
from domainwise.jobs.store import ResultsError, ResultStore
from domainwise.paper.report import words
from domainwise.paper.report.console import print_run
from domainwise.paper.report.markdown import to_markdown
from domainwise.paper.report.summary import CaseView, RunSummary, summarise_run

if TYPE_CHECKING:
    from rich.console import Console

MARKDOWN_NAME = "REPRODUCTION.md"
HTML_NAME = "report.html"


@dataclass(frozen=True)
class Published:
    """The summary of a run and the files made from it."""

    run: RunSummary
    markdown: Path
    html: Path | None

    def print(self, console: Console) -> None:
        """Print the tables, and where to look."""
        print_run(self.run, console)
        console.print(f"\ntables: {self.markdown}", soft_wrap=True)
        if self.html is not None:
            console.print(f"report: [bold]{self.html}[/] (open it in a browser)", soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Everything in the tables, for machines."""
        return {
            "header": self.run.header,
            "cases": [_case_json(case) for case in self.run.cases()],
            "summary": words.in_short(self.run),
            "failures": [
                {key: row[key] for key in ("case", "setting", "repeat", "method", "error")}
                for row in self.run.failures
            ],
            "files": [str(path) for path in (self.markdown, self.html) if path is not None],
        }


def publish(folder: Path, *, html: bool = True) -> Published:
    """Read a results folder and write the Markdown tables and the HTML report into it.

    The report needs the extra ``report``. Results that cannot be read, or hold nothing yet, raise a
    ResultsError.
    """
    store = ResultStore(folder)
    store.read()
    run = summarise_run(store)
    if not run.tables:
        raise ResultsError(f"{store.path} holds no finished result yet")
    markdown = folder / MARKDOWN_NAME
    write_text(markdown, to_markdown(run))
    page = None
    if html:
        from domainwise.paper.report.html import render

        page = folder / HTML_NAME
        write_text(page, render(run))
    return Published(run, markdown, page)


def _case_json(case: CaseView) -> dict[str, Any]:
    return {
        "case": case.case.key,
        "setting": case.setting,
        "stand_in": case.stand_in,
        "repeats": case.n_repeats,
        "methods": {
            method.key: {
                "metrics": {
                    key: {
                        "mean": cell.ours.mean,
                        "sd": cell.ours.deviation if cell.ours.n > 1 else None,
                        "n": cell.ours.n,
                        "paper": cell.paper,
                        "within_one_paper_sd": cell.within,
                    }
                    for key, cell in method.cells.items()
                },
                "p_value": None if method.paired is None else method.paired.p_value,
                "seconds": method.seconds,
                "paper_seconds": method.paper_seconds,
                "peak_mib": method.peak_mib,
            }
            for method in case.methods
        },
    }
