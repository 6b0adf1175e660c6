"""The page of a comparison: one file, no network, in the style of the other pages."""

from __future__ import annotations

from domainwise.evaluation.compare import Comparison
from domainwise.plots import DomainScoresDisplay
from domainwise.report.page import Templates, TextCell, TextTable
from domainwise.report.svg import Picture, drawing, to_svg


def render_comparison(found: Comparison) -> str:
    """Make a complete HTML document."""
    first, second = found.names
    methods, domains = (
        TextTable(head, [[TextCell(text) for text in row] for row in rows], [""] * len(rows))
        for head, *rows in found.tables()
    )
    rows, parts = found.pairs[0].per_domain, ((second, "second"), (first, "first"))
    with drawing(9.0, 1.3 + 0.34 * len(rows)) as figure:
        DomainScoresDisplay(
            scores={name: {row["domain"]: row[part] for row in rows} for name, part in parts},
            label=found.measure.label,
            greater_is_better=found.measure.sign > 0,
        ).plot(figure.subplots())
        alt = f"{found.measure.label} by domain in {first} and in {second}, {found.pairs[0].method}"
        caption = f"{found.pairs[0].method}: the domain that is worst in {second} is at the top"
        picture = Picture(to_svg(figure, "both", alt), alt, caption, wide=True)
    return Templates("domainwise.evaluation").render(
        "compare.html.j2",
        styles=["style.css", "evaluate.css"],
        title=f"{second} beside {first}",
        found=found,
        methods=methods,
        domains=domains,
        picture=picture,
    )
