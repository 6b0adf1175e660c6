"""The page of a comparison: one file, no network, in the style of the other pages."""

from __future__ import annotations

from domainwise.evaluation.compare import Comparison, Difference
from domainwise.plots import DomainScoresDisplay
from domainwise.report.page import Templates, TextCell, TextTable
from domainwise.report.svg import Picture, drawing, to_svg


def render_comparison(found: Comparison) -> str:
    """Make a complete HTML document."""
    return Templates("domainwise.evaluation").render(
        "compare.html.j2",
        styles=["style.css", "evaluate.css"],
        title=f"{found.names[1]} beside {found.names[0]}",
        verdict=found.verdict(),
        notes=found.notes,
        legend=found.legend(),
        methods=_table(*found.methods_table()),
        domains=_table(*found.domains_table()),
        picture=_picture(found, found.pairs[0]),
    )


def _table(columns: list[str], *rows: list[str]) -> TextTable:
    return TextTable(columns, [[TextCell(text) for text in row] for row in rows], [""] * len(rows))


def _picture(found: Comparison, pair: Difference) -> Picture:
    """Scores of both by domain."""
    (first, second), rows = found.names, pair.per_domain
    with drawing(9.0, 1.3 + 0.34 * len(rows)) as figure:
        DomainScoresDisplay(
            scores={
                f"{name}: {label}": {row["domain"]: row[part] for row in rows}
                for name, label, part in (
                    (second, pair.second, "second"),
                    (first, pair.first, "first"),
                )
            },
            label=found.measure.label,
            greater_is_better=found.measure.sign > 0,
        ).plot(figure.subplots())
        alt = f"{found.measure.label} of {pair.first} in {first} and {pair.second} in {second}: "
        alt += "; ".join(
            f"{row['domain']} {found.show(row['first'])} and {found.show(row['second'])}"
            for row in rows
        )
        caption = f"Each row is a left-out domain, the worst one in {second} at the top"
        return Picture(to_svg(figure, "both", alt), alt, caption, wide=True)
