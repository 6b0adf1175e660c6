"""What HTML reports are made of: templates, styles, tables and pictures. One file, no network."""

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
from typing import TYPE_CHECKING, Any, NamedTuple

from domainwise.plots.style import ACCENT, draw_names_as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TextCell(NamedTuple):
    """One cell: text, weight, and a class for colour ("within", "outside" or "")."""

    text: str
    bold: bool = False
    mark: str = ""


@dataclass(frozen=True)
class TextTable:
    """Headings and rows; the first cell of a row is its name.

    The kinds are a class for each row, such as "variant", or empty.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[TextCell]]
    kinds: Sequence[str]

    def without_empty_columns(self) -> TextTable:
        """The same table without columns that hold only dashes."""
        some = [i for i in range(len(self.columns)) if any(r[i].text != "–" for r in self.rows)]
        rows = [[row[i] for i in some] for row in self.rows]
        return TextTable([self.columns[i] for i in some], rows, self.kinds)


class Templates:
    """Those in the folder ``templates`` of a package, which may extend those of this one."""

    def __init__(self, package: str) -> None:
        from jinja2 import Environment, FunctionLoader, StrictUndefined

        self._folders = [files(name) / "templates" for name in (package, "domainwise.report")]
        self._environment = Environment(
            loader=FunctionLoader(self.read),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def read(self, name: str) -> str:
        """Return the text of a template or style sheet."""
        for folder in self._folders:
            if (folder / name).is_file():
                return (folder / name).read_text(encoding="utf-8")
        raise FileNotFoundError(f"there is no template {name}")

    def render(self, name: str, *, styles: Sequence[str], **values: object) -> str:
        """Fill a template; the style sheets stand in the page's head, in this order.

        The only script that a browser may run is the one that sorts tables.
        """
        style = "\n".join(self.read(sheet) for sheet in styles)
        script = self.read("tables.js")
        allowed = b64encode(sha256(script.encode()).digest()).decode()
        page = self._environment.get_template(name)
        return page.render(style=style, script=script, allowed=allowed, **values)


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
    import matplotlib as mpl
    import matplotlib.style
    from matplotlib.figure import Figure

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
