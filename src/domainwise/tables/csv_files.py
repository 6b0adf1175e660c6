"""CSV files: their encoding, separator and names, and their cells as text.

Fields are split, and ragged lines and damaged compression found, by ``pyarrow.csv``. It guesses
neither encoding nor separator, and takes a quotation mark that is never closed for the end of the
file: these are detected here. What the cells mean is decided later, from all of them.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from domainwise.tables.errors import Argument, TableError

#: Separators that are looked for.
SEPARATORS = (",", "\t", ";", "|")
#: What a nameless first column, in which pandas and R write row numbers, is called; pandas adds
#: ".1" where that name is taken by those of an earlier file.
ROW_NUMBERS = "Unnamed: 0"
#: Lines that decide between separators, and bytes read at a time.
LOOKED_AT, BLOCK = 20, 2**22
#: Three neighbours beyond ASCII, or bytes without a meaning: not the Western letters of cp1252.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")
_OTHER_KINDS = {b"PAR1": ("a Parquet", ".parquet"), b"PK\x03\x04": ("an Excel or zip", ".xlsx")}
_OTHER_KINDS |= {b"\x1f\x8b\x08" + flag: ("a gzip", ".csv.gz") for flag in (b"\0", b"\x08")}


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first lines were read."""

    path: Path
    data: bytes | None  #: All of it, or None where it is read piece by piece.
    names: list[str]
    separator: str
    encoding: str
    n_lines: int  #: Lines up to the one with the names.
    odd_quotes: bool  #: Whether the number of quotation marks is odd.
    notes: tuple[str, ...]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read columns as record batches of text; empty cells are missing."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        wrong: list[Any] = []

        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        # The last column shows whether a quotation mark has swallowed the lines that follow.
        wanted = list(dict.fromkeys([*columns, self.names[-1]]))
        options = dict(
            read_options=arrow_csv.ReadOptions(
                column_names=self.names,
                skip_rows=self.n_lines,
                encoding=self.encoding,
                use_threads=False,
                block_size=BLOCK if self.data is None else min(len(self.data) + 1, 2**30),
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(self.names, pyarrow.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        last = None
        try:
            with _open(self.path) if self.data is None else io.BytesIO(self.data) as file:
                for batch in arrow_csv.open_csv(file, **options):
                    if batch.num_rows:
                        last = batch.column(self.names[-1])[-1].as_py()
                    yield batch.select(columns)
        except UnicodeDecodeError as error:
            raise TableError(f"{self.path} is not {self.encoding}: {error}") from None
        except (OSError, EOFError) as error:
            raise TableError(f"{self.path} is damaged: {error}") from None
        except pyarrow.ArrowInvalid as error:
            if not wrong:
                reason = str(error).splitlines()[0]
                raise TableError(f"{self.path} is not a CSV file: {reason}") from None
            row = wrong[0]
            raise TableError(
                f"{self.path}, line {row.number}: {row.actual_columns} fields, but the first line "
                f"names {len(self.names)} columns. Correct {row.text[:80]!r} (text that contains "
                f"{self.separator!r} needs double quotes around it)"
            ) from None
        if self.odd_quotes and last is not None and "\n" in last:
            raise TableError(f"{self.path}: a quotation mark is never closed, near {last[:40]!r}")


def open_csv(
    path: Path, encoding: str | None = None, *, fallback: str | None = None, read: str = "all"
) -> CsvFile:
    """Open a CSV file and find out how it is written.

    Without ``encoding`` a byte order mark's word is taken; then UTF-8 if all bytes are, or
    ``fallback``, that of earlier tables, or cp1252 where that is likely. ``read="all"`` reads the
    file once and keeps it; "pieces" to its end, and again piece by piece; "names" its beginning.
    """
    if encoding is not None:
        try:
            encoding = {"utf-8": "utf-8-sig"}.get(codecs.lookup(encoding).name, encoding)
            "".encode(encoding)
        except LookupError:
            raise TableError(
                Argument("encoding", encoding), " is unknown; use utf-8, cp1252, …"
            ) from None
    try:
        with _open(path) as file:
            data = file.read() if read == "all" else None
            detected, odd, notes = _scan(
                _source(data, file), path, encoding, fallback, to_end=read != "names"
            )
            if data is None:
                file.seek(0)
            text = io.TextIOWrapper(_source(data, file), encoding=detected, newline="")
            names, separator, n_lines = _header(text, path)
            text.detach()
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not {error.encoding}: {error}") from None
    except (OSError, EOFError) as error:
        raise TableError(f"{path} cannot be read: {error}") from None
    encoding = "utf8" if detected == "utf-8-sig" else detected  # pyarrow skips the mark of UTF-8
    return CsvFile(path, data, names, separator, encoding, n_lines, odd, notes)


def _open(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb")


def _source(data: bytes | None, file: IO[bytes]) -> Any:
    return file if data is None else io.BytesIO(data)


def _scan(
    file: IO[bytes], path: Path, given: str | None, fallback: str | None, to_end: bool
) -> tuple[str, bool, tuple[str, ...]]:
    """Encoding, whether quotation marks are odd, and notes: from all bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    utf8, foreign, zeros, quotes, start = True, False, False, 0, b""
    rest, number = b"", 0
    lines: dict[bool, int] = {}  # first line beyond ASCII that is UTF-8, and first that is not
    while block := file.read(BLOCK):
        start = start or block[:4]
        quotes += block.count(b'"')
        zeros |= b"\0" in block
        if utf8:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                utf8 = False
        foreign = foreign or (not utf8 and NOT_WESTERN.search(block) is not None)
        if given is None and len(lines) < 2 and not (rest + block).isascii():
            *whole, rest = (rest + block).split(b"\n")
            for place, line in enumerate([*whole, rest] if len(block) < BLOCK else whole, 1):
                if not line.isascii():
                    lines.setdefault(_is_utf8(line), number + place)
        else:
            whole, rest = [b""] * block.count(b"\n"), b""
        number += len(whole)
        if not to_end:
            break
    if start in _OTHER_KINDS:
        kind, ending = _OTHER_KINDS[start]
        raise TableError(f"{path} is {kind} file: give it a name that ends in {ending}")
    odd = bool(quotes % 2)
    if given is not None:
        return given, odd, ()
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return "utf-32", odd, ()
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16", odd, ()
    if zeros:
        raise TableError(
            f"{path} holds zero bytes: it is damaged, or name its ",
            Argument("encoding", "utf-16-le"),
        )
    if utf8:
        return "utf-8-sig", odd, ()
    if len(lines) == 2:
        raise TableError(
            f"{path} mixes encodings: line {lines[True]} is UTF-8, line {lines[False]} is not. "
            "Convert the file to UTF-8, or read all of it by one encoding with ",
            Argument("encoding", "cp1252"),
        )
    if fallback is None and foreign:
        raise TableError(
            f"{path} is not UTF-8, and its encoding is not clear. Name it, for example ",
            Argument("encoding", "cp1251"),
        )
    guess = fallback or "cp1252"
    return guess, odd, (f"{path.name} is not UTF-8 and was read as {guess}",)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _header(text: IO[str], path: Path) -> tuple[list[str], str, int]:
    """Column names, separator, and the number of lines up to the names."""
    lines: list[str] = []
    blank = 0
    for line in text:
        if line.strip():
            lines.append(line)
        elif not lines:
            blank += 1
        if len(lines) == LOOKED_AT:
            break
    if not lines:
        raise TableError(f"{path} is empty")
    limit = csv.field_size_limit(max(map(len, lines)) + 1)  # the wrong mark makes a line one field
    try:
        rows = {mark: list(csv.reader(lines, delimiter=mark)) for mark in SEPARATORS}
        # A separator that cuts all lines alike, as often as any; none of them in a single column.
        cutting = [mark for mark in SEPARATORS if len(rows[mark][0]) > 1] or ["\t"]
        separator = max(cutting, key=lambda m: (len({*map(len, rows[m])}) == 1, len(rows[m][0])))
        reader = csv.reader(lines, delimiter=separator)
        names = next(reader)
    except csv.Error as error:
        raise TableError(f"{path} is not a CSV file: {error}") from None
    finally:
        csv.field_size_limit(limit)
    nameless = [i for i, name in enumerate(names) if not name.strip()]
    if nameless not in ([], [0]):
        raise TableError(
            f"{path}: column {nameless[-1] + 1} has no name; the first line must name all columns"
        )
    if nameless:
        names[0] = row_numbers_name(names[1:])
    return names, separator, blank + reader.line_num


def row_numbers_name(others: Sequence[str]) -> str:
    """Return the name of a nameless first column beside others."""
    numbered = [ROW_NUMBERS, *(f"{ROW_NUMBERS}.{i}" for i in range(1, len(others) + 1))]
    return next(name for name in numbered if name not in others)


def holds_row_numbers(name: str) -> bool:
    """Whether this is what a column without a name is called, here or by pandas."""
    return re.fullmatch(rf"{ROW_NUMBERS}(\.[0-9]+)?", name) is not None
