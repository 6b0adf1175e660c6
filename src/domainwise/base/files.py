"""Results files with one JSON object per line, and files that are replaced in one step.

The first line of a results file is a header with schema, versions, machine and seed. Every other
line has a ``kind``: ``result``, ``timing``, ``projection``, ``spectrum``, ``long_run``, ``job``,
or ``session``, which a resumed run writes first. Each line is flushed when it is written, so an
interrupted run can be resumed. A file in any other form is refused and left unchanged.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, field, fields, is_dataclass
from enum import Enum, EnumType
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from domainwise import __version__
from domainwise.base.process import Row

#: Version of the format: increase it when the meaning of a line changes.
SCHEMA = 1
FILE_NAME = "results.jsonl"
#: Maximum size of a JSON file; larger files are refused.
MAX_BYTES = 2**30


class ResultsError(ValueError):
    """Raised if a results file or folder cannot be used; the message gives the reason."""


DAMAGED = "The file is damaged or was written by another version of domainwise. Create it again"
#: Absolute values of numbers in files must be smaller than these limits.
LIMITS = {int: 2**63, float: 1e200}
#: A value of a parameter or an option: a scalar, None, or a list of these (read as a tuple).
Plain = NewType("Plain", object)
_SCALARS = (str, int, float, bool)


def stored(key: str | None, form: Any = None, **options: Any) -> Any:
    """A dataclass field with another name in JSON (None: not stored), or read as another type."""
    return field(**options, metadata={"key": key, "form": form})


def to_json(value: Any, of_nonfinite: Callable[[float], Any] = lambda value: None) -> Any:
    """Convert dataclasses, arrays, enums and numbers to JSON values.

    ``of_nonfinite`` replaces NaN and infinity.
    """
    if is_dataclass(value) and not isinstance(value, type):
        keys = {field.name: field.metadata.get("key", field.name) for field in fields(value)}
        value = {key: getattr(value, name) for name, key in keys.items() if key and name[0] != "_"}
    if isinstance(value, Mapping):
        return {name: to_json(entry, of_nonfinite) for name, entry in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [to_json(entry, of_nonfinite) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return of_nonfinite(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(form: Any, value: Any, location: str) -> Any:
    """Convert JSON values to a type; raise ResultsError if they do not match.

    The type is a dataclass or a TypedDict (further entries are ignored, and those with a default
    may be missing), ``int``, ``float`` (None is NaN), ``str``, ``bool``, ``Hashable`` (any of
    these), :class:`Plain`, an enum, ``Literal``, a string annotated with a pattern, or a list,
    tuple, mapping or union of types. ``LIMITS`` bounds numbers.

    >>> from_json(dict[str, list[int | None]], {"rows": [3, None]}, "x")
    {'rows': [3, None]}
    >>> from_json(dict[str, int], {"rows": "3"}, "x")
    Traceback (most recent call last):
    ...
    domainwise.base.files.ResultsError: x, rows: expected int, got str '3'. The file is damaged...
    """
    origin, arguments = get_origin(form) or form, get_args(form)

    def require(is_match: bool, expected_text: str) -> None:
        if not is_match:
            got_text = type(value).__name__
            if isinstance(value, (str, list)):
                is_text = isinstance(value, str)
                got_text += f" {value!r:.40}" if is_text else f" of {len(value)} entries"
            raise ResultsError(f"{location}: expected {expected_text}, got {got_text}. {DAMAGED}")

    if form is Any or (value is None and (form in (float, Plain) or NoneType in arguments)):
        return float("nan") if form is float else value
    if origin in (Union, UnionType):
        forms = [argument for argument in arguments if argument is not NoneType]
        matches = (f for f in forms if (get_origin(f) or f) is type(value))
        return from_json(next(matches, forms[0]), value, location)
    if origin in (Annotated, NotRequired):
        converted = from_json(arguments[0], value, location)
        for rule in getattr(form, "__metadata__", ()):  # a number of entries, or a pattern
            if isinstance(rule, int):
                require(len(value) == rule, f"a list of {rule} entries")
            else:
                is_match = rule.fullmatch(value) is not None
                require(is_match, f"a string of the form {rule.pattern}")
        return converted
    if is_dataclass(form) or is_typeddict(form):
        require(isinstance(value, dict), "a mapping")
        entries = {}
        for name, key, entry_form, is_required in _entries(form):
            if key in value:
                entries[name] = from_json(entry_form, value[key], f"{location}, {key}")
            elif is_required:
                raise ResultsError(f"{location}: the entry {key!r} is missing. {DAMAGED}")
        return form(**(entries if is_dataclass(form) else value | entries))
    if origin in (dict, Mapping):
        require(isinstance(value, dict), "a mapping")
        places = ((key, entry, f"{location}, {key[:40]}") for key, entry in value.items())
        return {key: from_json(arguments[1], entry, place) for key, entry, place in places}
    if origin in (list, tuple, Sequence) or (form is Plain and isinstance(value, list)):
        n_entries = len(arguments) if origin is tuple and arguments[-1] is not ... else None
        text = "a list" if n_entries is None else f"a list of {n_entries} entries"
        require(isinstance(value, list) and n_entries in (None, len(value)), text)
        entry_forms = arguments if n_entries else (*(arguments or (Plain,))[:1] * len(value),)
        pairs = enumerate(zip(entry_forms, value, strict=True))
        values = [from_json(f, entry, f"{location}[{i}]") for i, (f, entry) in pairs]
        return tuple(values) if origin is tuple or form is Plain else values
    if origin is Literal or isinstance(form, EnumType):
        choices = arguments or [choice.value for choice in form]
        require(isinstance(value, str) and value in choices, f"one of {sorted(choices)}")
        return value if arguments else form(value)
    types = {float: (int, float), Hashable: _SCALARS, Plain: _SCALARS}.get(form, (form,))
    require(type(value) in types, " or ".join(allowed.__name__ for allowed in types))
    limit = LIMITS.get(type(value))
    text = f"a number with an absolute value below {limit}"
    require(limit is None or abs(value) < limit, text)
    return float(value) if form is float else value


@cache
def _entries(form: Any) -> list[tuple[str, str, Any, bool]]:
    """Name, key in JSON and form of each entry, and whether it is required."""
    hints = get_type_hints(form, include_extras=True)
    if is_typeddict(form):
        names = form.__required_keys__
        return [
            (n, n, h, n in names and get_origin(h) is not NotRequired) for n, h in hints.items()
        ]
    entries = []
    for f in fields(form):
        key, entry_form = f.metadata.get("key", f.name), f.metadata.get("form") or hints[f.name]
        is_required = f.default is MISSING and f.default_factory is MISSING
        if key is not None:
            entries.append((f.name, key, entry_form, is_required))
    return entries


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; refuse a file with NaN or infinite numbers."""
    try:
        n_bytes = path.stat().st_size
        content = None if n_bytes > MAX_BYTES else _parse_json(path.read_bytes(), only_finite=True)
    except OSError as error:
        reason = error.strerror or error
        raise ResultsError(f"{path} cannot be read: {reason}. Check the path") from error
    if content is None:
        problem = "is too large to be" if n_bytes > MAX_BYTES else "is damaged or is not"
        raise ResultsError(f"{path} {problem} a JSON file from domainwise. Choose another file")
    return content


def _parse_json(text: str | bytes, *, only_finite: bool = False) -> Any:
    """Parse JSON; return None if it is invalid or nested too deeply.

    With ``only_finite``, NaN and infinite numbers are invalid.
    """

    def parse_number(number_text: str) -> float:
        if only_finite and not math.isfinite(float(number_text)):
            raise ValueError(number_text)
        return float(number_text)

    try:
        return json.loads(text, parse_constant=parse_number, parse_float=parse_number)
    except (ValueError, RecursionError):
        return None


class ResultStore:
    """A results file in a folder: reads existing rows and appends new ones.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from domainwise.base.files import ResultStore
    >>> store = ResultStore(Path(tempfile.mkdtemp()))
    >>> store.open(root_seed=0, profile="quick")
    >>> store.append([{"kind": "result", "method": "dcm"}])
    >>> [row["method"] for row in store.rows("result")]
    ['dcm']
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE_NAME
        self.header: Row = {}
        self._rows: list[Row] = []

    def read(self) -> None:
        """Read and check the file.

        Raises ResultsError if it is missing or damaged, or if another version wrote it.
        """
        if not self.path.is_file():
            raise ResultsError(
                f"{self.folder} contains no {FILE_NAME}: no run was saved there. Check the path"
            )
        try:
            *lines, unfinished_line = self.path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            message = f"{self.path} cannot be read: {error}. Choose another folder"
            raise ResultsError(message) from error
        rows = [*map(_parse_json, lines), *([None] if unfinished_line else [])]
        for line_number, row in enumerate(rows, 1):
            if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
                raise ResultsError(
                    f"{self.path} is damaged: line {line_number} is cut off or is not a result. "
                    "Delete this line and those after it to resume, or choose another folder"
                )
        if not rows or rows[0]["kind"] != "header":
            raise ResultsError(
                f"{self.path} does not begin with a domainwise header. Choose another folder"
            )
        self.header, *self._rows = rows
        for name, current_value in (("schema", SCHEMA), ("domainwise", __version__)):
            if self.header.get(name) != current_value:
                raise ResultsError(
                    f"{self.path} was written by another version ({name} {self.header.get(name)!r} "
                    f"instead of {current_value!r}). Choose another folder"
                )

    def open(self, *, repair: bool = False, new_entries: Row | None = None, **run: Any) -> None:
        """Create the file, or open it to resume the same run.

        ``run`` contains JSON values that identify the run; ``new_entries`` contains further entries
        for the header or session line. ``repair`` removes an incomplete last line, which a killed
        process may have left; only a process that holds the lock may use it. If the folder
        cannot be used, ResultsError is raised and nothing is changed.
        """
        prepare_folder(self.folder)
        is_new = not self.path.exists()
        if repair and not is_new:
            with self.path.open("rb+") as stream:
                is_new = not stream.truncate(stream.read().rfind(b"\n") + 1)
        entries = {"domainwise": __version__, **run, **(new_entries or {})}
        if is_new:
            self.header = {"kind": "header", "schema": SCHEMA, **entries}
            self._write([self.header], mode="a" if repair else "x")
            return
        self.read()
        for name, value in run.items():
            if self.header.get(name) != value:
                raise ResultsError(
                    f"the results in {self.path} were computed with {name} "
                    f"{self.header.get(name)!r}, but this run has {value!r}. Use the same data "
                    "and arguments to resume that run, or choose another folder"
                )
        self.append([{"kind": "session", **entries}])

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows, and wait until they are on disk."""
        rows = list(rows)
        self._write(rows, mode="a")
        self._rows.extend(rows)

    def _write(self, rows: list[Row], mode: str) -> None:
        with self.path.open(mode, encoding="utf-8") as stream:
            stream.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            stream.flush()
            os.fsync(stream.fileno())

    def rows(self, kind: str | None = None) -> list[Row]:
        """Return all rows that were read or written so far, or those of one kind."""
        return [row for row in self._rows if kind is None or row.get("kind") == kind]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs from using the folder until the context or the process ends."""
        prepare_folder(self.folder)
        with self.path.open("ab") as stream:
            try:
                if sys.platform == "win32":
                    import msvcrt

                    # A locked byte can be neither read nor written, so lock one past the end.
                    os.lseek(stream.fileno(), 1 << 30, os.SEEK_SET)
                    msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    import fcntl

                    fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ResultsError(
                    f"another run is writing to {self.path}. Wait until it has finished, or choose "
                    "another folder"
                ) from error
            yield

    def peek(self, name: str) -> Any:
        """Return a header entry, regardless of the version that wrote the file; None if missing."""
        header = _parse_json(self.path.read_bytes().partition(b"\n")[0])
        return header.get(name) if isinstance(header, dict) else None

    def clear(self, name_pattern: re.Pattern[str]) -> None:
        """Empty the file, and delete files that its rows name, if the names match the pattern."""
        rows = [_parse_json(line) for line in self.path.read_bytes().splitlines()]
        if rows and (not isinstance(rows[0], dict) or "domainwise" not in rows[0]):
            raise ResultsError(
                f"{self.path} is not a domainwise results file and was left unchanged. Choose "
                "another folder"
            )
        for row in rows:
            if isinstance(row, dict) and name_pattern.fullmatch(name := str(row.get("file"))):
                (self.folder / name).unlink(missing_ok=True)
        self.path.write_bytes(b"")


def prepare_folder(folder: Path) -> None:
    """Create the folder, or check that it is writable and either empty or a results folder."""
    if folder.exists() and not folder.is_dir():
        raise ResultsError(f"{folder} is a file, not a folder. Choose a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        has_other_files = any(folder.iterdir()) and not (folder / FILE_NAME).exists()
    except OSError as error:
        reason = error.strerror or error
        raise ResultsError(f"{folder} cannot be used: {reason}. Choose another folder") from error
    if has_other_files:
        raise ResultsError(
            f"{folder} is not empty and contains no {FILE_NAME}. Choose an empty folder"
        )
    if not os.access(folder, os.W_OK):
        raise ResultsError(f"{folder} is not writable. Choose another folder")


def real_path(path: str | Path) -> Path:
    """Return the target of a path with symbolic links, which may form a loop."""
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename the new file to ``path`` at the end.

    If an error occurs, if the process is killed, or if another process has written the file in the
    meantime, the file at ``path`` is not changed. A symbolic link remains a link: its target is
    replaced. The temporary name ends with the name of ``path``.
    """
    path = real_path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist. Create it to write {path.name}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Choose a file name")
    temporary_path, initial_state = _temporary_path(path), _state(path)
    try:
        yield temporary_path
        with open(temporary_path, "rb") as file:
            os.fsync(file.fileno())
        with _lock_if_unchanged(path, initial_state):
            os.replace(temporary_path, path)
    finally:
        temporary_path.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step; if the process is interrupted, the old file remains."""
    with replacing(path) as temporary_path:
        temporary_path.write_text(text, encoding="utf-8")


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``path``, and rename it to ``path`` at the end.

    The old folder at ``path`` is removed, unless an error occurs. As in :func:`replacing`, a folder
    that another process has written is not replaced, and a symbolic link remains a link.
    """
    path = real_path(path)
    new_path, old_path, initial_state = _temporary_path(path), _temporary_path(path), _state(path)
    new_path.mkdir()
    try:
        yield new_path
        with _lock_if_unchanged(path, initial_state):
            if path.exists():
                os.rename(path, old_path)
            os.rename(new_path, path)
        _remove(old_path)
    finally:
        if old_path.exists() and not path.exists():
            os.rename(old_path, path)
        _remove(new_path)


def _remove(folder: Path) -> None:
    """Rename and then remove a folder, so that no process sees it partly deleted."""
    if folder.exists():
        renamed_folder = _temporary_path(folder)
        os.rename(folder, renamed_folder)
        shutil.rmtree(renamed_folder, ignore_errors=True)


@contextmanager
def _lock_if_unchanged(path: Path, initial_state: tuple[int, int] | None) -> Iterator[None]:
    """Lock the parent folder if the system supports it; raise an error if ``path`` has changed."""
    descriptor = None
    with suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(path.parent, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        if _state(path) not in (None, initial_state):
            raise FileExistsError(
                f"another process wrote {path} in the meantime, so it was not overwritten. "
                "Choose another path"
            )
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _state(path: Path) -> tuple[int, int] | None:
    """Return the inode and modification time, which change if a file or folder is replaced."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return None


def _temporary_path(path: Path) -> Path:
    end = os.fsencode(path.name)[-240:].decode(errors="ignore")  # names have at most 255 bytes
    return path.with_name(f".{uuid.uuid4().hex[:12]}.{end}")
