"""Parts of HTML reports: templates, styles, tables and pictures. One file, no network."""

from __future__ import annotations

import html
import io
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from domainwise.plots.style import ACCENT, draw_names_as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TextCell(NamedTuple):
    """One cell: text, weight, and a CSS class for colour ("within", "outside" or "")."""

    text: str
    bold: bool = False
    mark: str = ""


@dataclass(frozen=True)
class TextTable:
    """Headings and rows; the first cell of a row is its name.

    ``kinds`` has a CSS class for each row, such as "variant", or an empty string.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[TextCell]]
    kinds: Sequence[str]

    def without_empty_columns(self) -> TextTable:
        """The same table without columns that hold only dashes."""
        filled = [
            any(cell.text != "–" for cell in column) for column in zip(*self.rows, strict=True)
        ]
        rows = [list(compress(row, filled)) for row in self.rows]
        return TextTable(list(compress(self.columns, filled)), rows, self.kinds)


def render_page(package: str, template: str, *, styles: Sequence[str], **values: object) -> str:
    """Fill a template of a package (folder ``templates``), which may extend those of this one.

    The style sheets are put into the page's head, in this order. The only script that a browser may
    run is the one that sorts tables.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(name: str) -> str:
        """Text of a template, style sheet or script."""
        folders = (files(part) / "templates" for part in (package, "domainwise.report"))
        paths = [folder / name for folder in folders if (folder / name).is_file()]
        return paths[0].read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = read("tables.js")
    return environment.get_template(template).render(
        style="\n".join(map(read, styles)),
        script=script,
        allowed=b64encode(sha256(script.encode()).digest()).decode(),
        **values,
    )


#: Colours in figure.mplstyle, which are replaced by the colours of the page after drawing.
INK, FAINT = "#010203", "#040506"


@dataclass(frozen=True)
class Picture:
    """A figure for the page: the drawing, a description of it, and a caption below it."""

    svg: str
    alt: str
    caption: str
    wide: bool = False


@contextmanager
def drawing(width: float, height: float, **options: Any) -> Iterator[Figure]:
    """A figure of this size in inches, in the report's style, outside pyplot's global state."""
    import matplotlib as mpl
    import matplotlib.style
    from matplotlib.figure import Figure

    with mpl.rc_context():
        # The style sheet of the user is not used here.
        mpl.rcdefaults()
        mpl.style.use("domainwise.report.figure")
        yield Figure(figsize=(width, height), layout="constrained", **options)


def to_svg(figure: Figure, name: str, alt: str) -> str:
    """Return inline SVG without a fixed size, with page colours and an accessible name.

    Ids are prefixed with ``name``, which is unique on the page; ``alt`` describes the figure for
    readers who do not see it.
    """
    draw_names_as_text(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    # This rule would apply to the whole page.
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = text.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    # Marks may be pale, text must be readable.
    text = re.sub(rf"(<text[^>]*fill: ){ACCENT}", r"\1var(--accent)", text)
    view = re.search(r'viewBox="[^"]+"', text)
    assert view is not None
    head = (
        f'<svg {view.group()} xmlns="http://www.w3.org/2000/svg"'
        ' xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
        f' aria-label="{html.escape(alt)}" stroke-linejoin="round">'
    )
    return head + text[text.index(">") + 1 :].strip()
