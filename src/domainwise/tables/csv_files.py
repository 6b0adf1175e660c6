"""Reading CSV files: encoding, separator and column names are detected; cells stay text.

``pyarrow.csv`` splits lines into fields, and detects damaged compressed files and lines with a
wrong number of fields. This module detects the encoding, the separator, and quotation marks that
are never closed. The types of columns are inferred later, from all cells.
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

from domainwise.base.process import csv_field_size
from domainwise.tables.errors import Argument, TableError

SEPARATORS = (",", "\t", ";", "|")
#: Name for a first column without a name, which is usually an index written by pandas or R. If
#: another column already has this name, ".1" is added.
UNNAMED = "Unnamed: 0"
#: Number of lines from which the separator is detected, and number of bytes to read at a time.
HEADER_LINES, BLOCK_BYTES = 20, 2**22
#: Bytes that are unlikely in Western European text: three consecutive non-ASCII bytes, or a byte
#: that cp1252 does not define.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")
#: Descriptions and file extensions of other formats, by the first four bytes of a file.
_OTHER_FORMATS = {b"PAR1": ("a Parquet", ".parquet"), b"PK\x03\x04": ("an Excel or zip", ".xlsx")}
_OTHER_FORMATS |= {b"\x1f\x8b\x08" + flag: ("a gzip", ".csv.gz") for flag in (b"\0", b"\x08")}
BYTE_ORDER_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose first lines have been read."""

    path: Path
    content: bytes | None  #: Content of the file; None if it is read in chunks.
    names: list[str]
    separator: str
    encoding: str
    n_header_lines: int  #: Number of lines up to and including the column names.
    has_odd_quotes: bool  #: Whether the number of quotation marks is odd.
    notes: tuple[str, ...]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read columns as record batches of text; empty cells are missing."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        invalid_rows: list[Any] = []

        def collect_row(row: Any) -> str:
            invalid_rows.append(row)
            return "error"

        read_options = arrow_csv.ReadOptions(
            column_names=self.names,
            skip_rows=self.n_header_lines,
            encoding=self.encoding,
            use_threads=False,
            block_size=BLOCK_BYTES if self.content is None else min(len(self.content) + 1, 2**30),
        )
        parse_options = arrow_csv.ParseOptions(
            delimiter=self.separator, newlines_in_values=True, invalid_row_handler=collect_row
        )
        convert_options = arrow_csv.ConvertOptions(
            # If a quotation mark is never closed, all later lines are in the last cell (see below).
            include_columns=list(dict.fromkeys([*columns, self.names[-1]])),
            column_types=dict.fromkeys(self.names, pyarrow.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        last_cell = None
        try:
            with _open(self.path) if self.content is None else io.BytesIO(self.content) as file:
                for batch in arrow_csv.open_csv(file, read_options, parse_options, convert_options):
                    if batch.num_rows:
                        last_cell = batch.column(self.names[-1])[-1].as_py()
                    yield batch.select(columns)
        except UnicodeDecodeError as error:
            raise _encoding_error(self.path, self.encoding, error) from None
        except (OSError, EOFError) as error:
            raise TableError(f"{self.path} is damaged: {error}. Export or copy it again") from None
        except pyarrow.ArrowInvalid as error:
            if not invalid_rows:
                text = f"{self.path} is not a valid CSV file: {str(error).splitlines()[0]}"
                raise TableError(f"{text}. Export it again") from None
            row = invalid_rows[0]
            raise TableError(
                f"{self.path}: line {row.number} has {row.actual_columns} fields, but there are "
                f"{len(self.names)} column names. Correct {row.text[:80]!r} (text that contains "
                f"{self.separator!r} needs double quotes)"
            ) from None
        if self.has_odd_quotes and last_cell is not None and "\n" in last_cell:
            where = f"{self.path}, near {last_cell[:40]!r}"
            raise TableError(f"{where}: a quotation mark is never closed. Close or remove it")


def open_csv(
    path: Path, encoding: str | None = None, *, fallback: str | None = None, read: str = "all"
) -> CsvFile:
    """Open a CSV file, and detect its encoding, separator and column names.

    ``encoding=None`` uses the byte order mark, or UTF-8 if the bytes are valid, or ``fallback``
    (the encoding of tables read earlier), or cp1252 if that is likely. ``read="all"`` reads all
    bytes into memory; "chunks" scans the file now and reads it later; "names" reads only its start.
    """
    if encoding is not None:
        try:
            encoding = {"utf-8": "utf-8-sig"}.get(codecs.lookup(encoding).name, encoding)
            "".encode(encoding)
        except LookupError:
            argument = Argument("encoding", encoding)
            raise TableError(argument, " is unknown; use utf-8 or cp1252, for example") from None
    codec = encoding or "utf-8"
    try:
        with _open(path) as file:
            content = file.read() if read == "all" else None
            source: Any = file if content is None else io.BytesIO(content)
            codec, has_odd_quotes, notes = _scan(source, path, encoding, fallback, read != "names")
            source.seek(0)
            stream = io.TextIOWrapper(source, encoding=codec, newline="")
            names, separator, n_header_lines = _read_header(stream, path)
            stream.detach()
    except UnicodeDecodeError as error:
        raise _encoding_error(path, codec, error) from None
    except (OSError, EOFError) as error:
        raise TableError(f"{path} cannot be read: {error}. Export or copy it again") from None
    encoding = "utf8" if codec == "utf-8-sig" else codec  # pyarrow skips a byte order mark
    return CsvFile(path, content, names, separator, encoding, n_header_lines, has_odd_quotes, notes)


def _encoding_error(path: Path, encoding: str, error: UnicodeDecodeError) -> TableError:
    """Return an error for a file with bytes that ``encoding`` does not define."""
    other_encoding = "cp1251" if codecs.lookup(encoding).name == "cp1252" else "cp1252"
    text = f"{path} is not encoded in {encoding.removesuffix('-sig')}: {error}. Try "
    return TableError(text, Argument("encoding", other_encoding))


def _open(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb")


def _scan(
    file: IO[bytes], path: Path, encoding: str | None, fallback: str | None, scan_to_end: bool
) -> tuple[str, bool, tuple[str, ...]]:
    """Return the encoding, whether the number of quotation marks is odd, and notes for the user."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_all_utf8, looks_western, has_nul, n_quotes, first_bytes = True, True, False, 0, b""
    while block := file.read(BLOCK_BYTES):
        first_bytes = first_bytes or block[:4]
        n_quotes += block.count(b'"')
        has_nul |= b"\0" in block
        is_all_utf8 = is_all_utf8 and _can_decode(decoder, block)
        looks_western = looks_western and (is_all_utf8 or NOT_WESTERN.search(block) is None)
        if not scan_to_end:
            break
    if first_bytes in _OTHER_FORMATS:
        description, extension = _OTHER_FORMATS[first_bytes]
        raise TableError(f"{path} is {description} file. Rename it to end in {extension}")
    bom_encodings = [e for e, boms in BYTE_ORDER_MARKS.items() if first_bytes.startswith(boms)]
    if encoding or bom_encodings:
        return encoding or bom_encodings[0], bool(n_quotes % 2), ()
    if has_nul:
        text = f"{path} contains NUL bytes. Export it as UTF-8 or, if it is UTF-16, pass "
        raise TableError(text, Argument("encoding", "utf-16-le"))
    if is_all_utf8:
        return "utf-8-sig", bool(n_quotes % 2), ()
    file.seek(0)
    lines: IO[bytes] = file
    if not scan_to_end:
        block = file.read(BLOCK_BYTES)
        is_truncated = len(block) == BLOCK_BYTES
        lines = io.BytesIO(block[: block.rfind(b"\n") + 1] if is_truncated else block)
    line_numbers: dict[bool, int] = {}  # of the first non-ASCII lines, by whether they are UTF-8
    for line_number, line in enumerate(lines, 1):
        if not line.isascii():
            is_utf8 = _can_decode(codecs.getincrementaldecoder("utf-8")(), line, final=True)
            line_numbers.setdefault(is_utf8, line_number)
            if len(line_numbers) == 2:
                raise TableError(
                    f"{path} mixes encodings: line {line_numbers[True]} is UTF-8, but "
                    f"line {line_numbers[False]} is not. Convert the file to UTF-8, or pass ",
                    Argument("encoding", "cp1252"),
                )
    if fallback is None and not looks_western:
        text = f"{path} is not UTF-8, and its encoding cannot be detected. Specify it, as in "
        raise TableError(text, Argument("encoding", "cp1251"))
    encoding = fallback or "cp1252"
    return encoding, bool(n_quotes % 2), (f"{path.name} is not UTF-8 and was read as {encoding}",)


def _can_decode(decoder: codecs.IncrementalDecoder, block: bytes, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


def _read_header(stream: IO[str], path: Path) -> tuple[list[str], str, int]:
    """Return column names, separator, and the number of lines up to and including the names."""
    lines: list[str] = []
    n_blank_lines = 0
    for line in stream:
        if line.strip():
            lines.append(line)
        elif not lines:
            n_blank_lines += 1
        if len(lines) == HEADER_LINES:
            break
    if not lines:
        raise TableError(f"{path} is empty. Pass a file with column names and rows")
    try:
        with csv_field_size(sum(map(len, lines)) + 1):  # a field may span several lines
            n_fields = {s: [len(row) for row in csv.reader(lines, delimiter=s)] for s in SEPARATORS}
            candidates = [s for s in SEPARATORS if n_fields[s][0] > 1] or ["\t"]
            # Prefer the same number of fields in all lines, then more fields.
            separator = max(candidates, key=lambda s: (len({*n_fields[s]}) == 1, n_fields[s][0]))
            reader = csv.reader(lines, delimiter=separator)
            names = next(reader)
    except csv.Error as error:
        raise TableError(f"{path} is not a valid CSV file: {error}. Export it again") from None
    unnamed_indices = [i for i, name in enumerate(names) if not name.strip()]
    if unnamed_indices not in ([], [0]):
        where = f"{path}: column {unnamed_indices[-1] + 1}"
        raise TableError(f"{where} has no name. Name all columns in the first line")
    if unnamed_indices:
        names[0] = unnamed_column_name(names[1:])
    return names, separator, n_blank_lines + reader.line_num


def unnamed_column_name(other_names: Sequence[str]) -> str:
    """Return a unique name for a first column without a name."""
    possible_names = [UNNAMED, *(f"{UNNAMED}.{i}" for i in range(1, len(other_names) + 1))]
    return next(name for name in possible_names if name not in other_names)


def is_unnamed(name: str) -> bool:
    """Whether this module or pandas gave this name to a column without a name."""
    return re.fullmatch(rf"{UNNAMED}(\.[0-9]+)?", name) is not None
