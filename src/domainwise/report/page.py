"""A page: templates, styles and tables that every report is made of. One file, no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined


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


class Templates:
    """Those in the folder ``templates`` of a package, which may extend those of this one."""

    def __init__(self, package: str) -> None:
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
        raise FileNotFoundError(f"no template {name}")

    def render(self, name: str, *, styles: Sequence[str], **values: object) -> str:
        """Fill a template; the style sheets stand in the page's head, in this order.

        The only script that a browser may run is the one that sorts tables.
        """
        style = "\n".join(self.read(sheet) for sheet in styles)
        script = self.read("tables.js")
        allowed = b64encode(sha256(script.encode()).digest()).decode()
        page = self._environment.get_template(name)
        return page.render(style=style, script=script, allowed=allowed, **values)
