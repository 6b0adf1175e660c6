"""Errors for tables that cannot be used, with the arguments to change, and text for messages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.resources import files
from string import Formatter
from typing import Any, NamedTuple, NoReturn

from domainwise.base.messages import listed, needs_extra, quoted

PROBLEMS: dict[str, str] = tomllib.loads(
    (files("domainwise.tables") / "problems.toml").read_text(encoding="utf-8")
)


class Argument(NamedTuple):
    """An argument in an error message; the command line shows the corresponding option instead."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


MessageParts = tuple[str | Argument, ...]


class TableError(ValueError):
    """Raised for a table that cannot be used; the message consists of ``parts``."""

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts


def problem(kind: str, /, **values: Any) -> MessageParts:
    """Return a text of ``problems.toml`` with these values.

    In the texts, ``{decimal!a}`` is an :class:`Argument`, and ``{name!r}`` is a name or a list of
    names in quotation marks.

    >>> TableError(*problem("dates", dates=["month"]))
    TableError("contains dates or times. Convert them to numbers with dates=['month']")
    """
    parts: list[str | Argument] = []
    for text, key, form, conversion in Formatter().parse(PROBLEMS[kind]):
        value = Formatter().get_field(key, (), values)[0] if key else ""
        if conversion == "r":
            value = describe_names(value) if isinstance(value, (list, dict)) else quoted(str(value))
        value = Argument(str(key), value) if conversion == "a" else value
        parts += [text, value if isinstance(value, Argument) else format(value, form or "")]
    return tuple(parts)


def describe(kind: str, /, **values: Any) -> str:
    """Return a text of ``problems.toml`` for a note."""
    return "".join(map(str, problem(kind, **values)))


def refuse(kind: str, /, **values: Any) -> NoReturn:
    """Raise a TableError with a text of ``problems.toml``."""
    raise TableError(*problem(kind, **values)) from None


def check(condition: object, kind: str, /, **values: Any) -> None:
    """Raise a TableError with a text of ``problems.toml`` unless the condition is true."""
    if not condition:
        refuse(kind, **values)


class ColumnError(TableError):
    """Raised for columns that cannot be used; ``problems`` maps names to descriptions."""

    def __init__(self, problems: Mapping[str, MessageParts]) -> None:
        parts: list[str | Argument] = []
        for name, text in problems.items():
            parts += [f"column {quoted(str(name))} ", *text, ".\n"]
        subject = "This column" if len(problems) == 1 else f"{len(problems)} columns"
        remedy = Argument("drop", list(problems)), " or ", Argument("auto_drop", True)
        super().__init__(*parts, f"{subject} cannot be used. To continue without, pass ", *remedy)
        self.problems = dict(problems)

    def __reduce__(self) -> Any:
        return ColumnError, (self.problems,)


def import_pandas() -> Any:
    """Return pandas; if it is not installed, the error message names the extra to install."""
    with needs_extra("reading tables", "cli"):
        return import_module("pandas")


def describe_names(names: Iterable[Any], max_names: int = 8) -> str:
    """List at most ``max_names`` names for a message.

    >>> describe_names(["a", "b"])
    "'a', 'b'"
    """
    return listed([quoted(str(name)) for name in names], max_names, ", ")


def sentence(note: str) -> str:
    """Return a note as a sentence; a name at its start, such as that of a file, is unchanged.

    >>> sentence("columns left out: a"), sentence("t.csv is not UTF-8")
    ('Columns left out: a.', 't.csv is not UTF-8.')
    """
    starts_with_word = note.split(" ", 1)[0].isalpha()
    return f"{note[0].upper() if starts_with_word else note[0]}{note[1:]}."
