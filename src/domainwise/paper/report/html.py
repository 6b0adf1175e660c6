"""The page: templates filled with the summary and the pictures. One file, no network."""

from __future__ import annotations

from domainwise.jobs.statistics import PAIRED_CAVEAT
from domainwise.paper.printed import PROVENANCE
from domainwise.paper.report import findings, layout, plots, words
from domainwise.paper.report.summary import RunSummary
from domainwise.report.page import Templates

_SETTINGS = {"paper": "With the paper's parameters", "tuned": "Tuned on source domains only"}


def render(run: RunSummary) -> str:
    """Make the report of a run: a complete HTML document."""
    return Templates("domainwise.paper.report").render(
        "reproduce.html.j2",
        styles=["style.css"],
        title="The paper's tables, reproduced",
        run=run,
        settings=_SETTINGS,
        words=words,
        layout=layout,
        plots=plots,
        findings=findings,
        caveat=PAIRED_CAVEAT,
        provenance=PROVENANCE,
        facts=_facts(run),
    )


def _facts(run: RunSummary) -> list[tuple[str, object]]:
    header = run.header
    machine = header.get("machine", {})
    facts = [
        ("domainwise", header.get("domainwise")),
        ("Python", header.get("python")),
        *header.get("versions", {}).items(),
        ("machine", f"{machine.get('processor')}, {machine.get('cores')} cores"),
        ("system", machine.get("system")),
        ("root seed", header.get("root_seed")),
        ("size of the run", header.get("profile")),
        ("begun", header.get("started")),
    ]
    if run.sessions:
        facts.append(("continued", words.count(len(run.sessions), "time")))
    return facts
