"""Building blocks of HTML pages: templates, style sheets, tables and pictures."""

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

from domainwise.base.process import figure_style
from domainwise.evaluation.plots.style import ACCENT, draw_names_as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TextCell(NamedTuple):
    """A table cell: text, whether it is bold, and a CSS class such as "outside" ("" for none)."""

    text: str
    bold: bool = False
    css_class: str = ""


@dataclass(frozen=True)
class TextTable:
    """Column headings and rows of a table; the first cell of each row names the row.

    ``row_classes`` contains a CSS class for each row, such as "variant", or an empty string.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[TextCell]]
    row_classes: Sequence[str]

    def without_empty_columns(self) -> TextTable:
        """Return the same table without columns that contain only dashes."""
        cells_by_column = zip(*self.rows, strict=True)
        has_values = [any(cell.text != "–" for cell in cells) for cells in cells_by_column]
        rows = [list(compress(row, has_values)) for row in self.rows]
        return TextTable(list(compress(self.columns, has_values)), rows, self.row_classes)


def render_page(package: str, template: str, *, styles: Sequence[str], **variables: object) -> str:
    """Fill a template from the ``templates`` folder of a package, or of ``domainwise.evaluation``.

    The style sheets are inserted into the head of the page, in the given order. The only
    script that the page lets a browser run is ``tables.js``.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(name: str) -> str:
        """Read a template, style sheet or script."""
        folders = [files(module) / "templates" for module in (package, "domainwise.evaluation")]
        path = next(folder / name for folder in folders if (folder / name).is_file())
        return path.read_text(encoding="utf-8")

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
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        **variables,
    )


#: Colors in figure.mplstyle that :func:`to_svg` replaces with the page's colors.
INK, FAINT = "#010203", "#040506"


@dataclass(frozen=True)
class Picture:
    """A figure on the page, with a description for screen readers and a caption."""

    svg: str
    alt: str
    caption: str
    wide: bool = False


@contextmanager
def drawing(width: float, height: float, **options: Any) -> Iterator[Figure]:
    """Yield a figure of this size in inches, in the report's style, without using pyplot."""
    from matplotlib.figure import Figure

    with figure_style("domainwise.evaluation.figure"):
        yield Figure(figsize=(width, height), layout="constrained", **options)


def to_svg(figure: Figure, name: str, alt: str) -> str:
    """Return inline SVG without a fixed size, in the page's colors.

    IDs are prefixed with ``name``, which must be unique on the page. ``alt`` describes the figure
    for screen readers.
    """
    draw_names_as_text(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    # Matplotlib's CSS rules would apply to the whole page.
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = svg.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    # The accent color of lines and points is too pale for text.
    svg = re.sub(rf"(<text[^>]*fill: ){ACCENT}", r"\1var(--accent)", svg)
    view_box = re.search(r'viewBox="[^"]+"', svg)
    assert view_box is not None
    opening_tag = (
        f'<svg {view_box.group()} xmlns="http://www.w3.org/2000/svg"'
        ' xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
        f' aria-label="{html.escape(alt)}" stroke-linejoin="round">'
    )
    return opening_tag + svg[svg.index(">") + 1 :].strip()
