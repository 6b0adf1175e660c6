"""Matplotlib figures as inline SVG that follows the page's colours, light or dark."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.figure import Figure

from domainwise.plots.style import ACCENT, draw_names_as_text

#: Drawn with these, as figure.mplstyle says, and replaced by the page's own colours afterwards.
INK, FAINT = "#010203", "#040506"


@dataclass(frozen=True)
class Picture:
    """A figure for the page: the drawing, words instead of it, and a caption below it."""

    svg: str
    alt: str
    caption: str
    wide: bool = False


@contextmanager
def drawing(width: float, height: float, **options: Any) -> Iterator[Figure]:
    """A figure of this size in inches, in the report's style, outside pyplot's global state."""
    with mpl.rc_context():
        # The user's own style sheet has no business here.
        mpl.rcdefaults()
        mpl.style.use("domainwise.report.figure")
        yield Figure(figsize=(width, height), layout="constrained", **options)


def to_svg(figure: Figure, name: str, alt: str) -> str:
    """Inline SVG: no size of its own, page colours, an accessible name.

    Ids are prefixed with ``name``, which is unique on the page; ``alt`` says what is shown, for
    those who do not see it.
    """
    draw_names_as_text(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # This rule would reach the whole page.
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = text.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    # Marks may be pale, words may not.
    text = re.sub(rf"(<text[^>]*fill: ){ACCENT}", r"\1var(--accent)", text)
    view = re.search(r'viewBox="[^"]+"', text)
    assert view is not None
    head = (
        f'<svg {view.group()} xmlns="http://www.w3.org/2000/svg"'
        ' xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
        f' aria-label="{html.escape(alt)}" stroke-linejoin="round">'
    )
    return head + text[text.index(">") + 1 :].strip()
