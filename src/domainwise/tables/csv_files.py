"""Reading CSV files: encoding, separator and column names are detected; cells stay text.

``pyarrow.csv`` splits lines into fields, and detects damaged compressed files and lines with a
wrong number of fields. This module detects the encoding, the separator, and quotation marks that
are never closed.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from domainwise.base.process import csv_field_size
from domainwise.tables.errors import Argument, TableError, quoted
from domainwise.tables.names import unnamed_column_name

SEPARATORS = (",", "\t", ";", "|")
#: Number of lines from which the separator is detected, and number of bytes to read at a time.
HEADER_LINES, BLOCK_BYTES = 20, 2**22
#: Bytes that are unlikely in Western European text: three consecutive non-ASCII bytes, or a byte
#: that cp1252 does not define.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")
#: Descriptions and file extensions of other formats, by the first bytes of a file.
_OTHER_FORMATS = {b"PAR1": ("a Parquet", ".parquet"), b"PK\x03\x04": ("an Excel or zip", ".xlsx")}
_OTHER_FORMATS[b"\x1f\x8b\x08"] = ("a gzip", ".csv.gz")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def open_csv(
    path: Path, encoding: str | None = None, *, fallback: str | None = None, in_chunks: bool = False
) -> tuple[list[str], tuple[str, ...], Callable[[list[str]], Iterator[Any]]]:
    """Return the column names, notes for the user, and a function that reads columns in batches.

    ``encoding=None`` uses the byte order mark, or UTF-8 if the bytes are valid, or ``fallback``
    (the encoding of tables read earlier), or cp1252 if that is likely. The whole file is scanned
    now. If it is not read ``in_chunks``, its bytes are kept in memory.
    """
    codec = "utf-8"
    try:
        if encoding is not None:
            codec = {"utf-8": "utf-8-sig"}.get(codecs.lookup(encoding).name, encoding)
            "".encode(codec)
        with _open(path) as file:
            content = None if in_chunks else file.read()
            source: Any = file if content is None else io.BytesIO(content)
            detected, has_odd_quotes, notes = _scan(source, path, encoding is None, fallback)
            codec = detected if encoding is None else codec
            source.seek(0)
            stream = io.TextIOWrapper(source, encoding=codec, newline="")
            header = _read_header(stream, path)
            stream.detach()
    except LookupError:
        argument = Argument("encoding", encoding)
        raise TableError(argument, " is unknown; use utf-8 or cp1252, for example") from None
    except UnicodeDecodeError as error:
        raise _encoding_error(path, codec, error) from None
    codec = "utf8" if codec == "utf-8-sig" else codec  # pyarrow skips a byte order mark
    return header[0], notes, partial(_read_batches, path, content, codec, header, has_odd_quotes)


def _read_batches(
    path: Path,
    content: bytes | None,
    encoding: str,
    header: tuple[list[str], str, int],
    has_odd_quotes: bool,
    columns: list[str],
) -> Iterator[Any]:
    """Read columns as record batches of text; empty cells are missing.

    ``content`` is that of the file; None reads the file in chunks.
    """
    import pyarrow
    from pyarrow import csv as arrow_csv

    names, separator, n_header_lines = header
    invalid_rows: list[Any] = []

    def collect_row(row: Any) -> str:
        invalid_rows.append(row)
        return "error"

    read_options = arrow_csv.ReadOptions(
        column_names=names,
        skip_rows=n_header_lines,
        encoding=encoding,
        use_threads=False,
        block_size=BLOCK_BYTES if content is None else min(len(content) + 1, 2**30),
    )
    parse_options = arrow_csv.ParseOptions(
        delimiter=separator,
        newlines_in_values=True,
        invalid_row_handler=collect_row,
    )
    convert_options = arrow_csv.ConvertOptions(
        # If a quotation mark is never closed, all later lines are in the last cell (see below).
        include_columns=list(dict.fromkeys([*columns, names[-1]])),
        column_types=dict.fromkeys(names, pyarrow.string()),
        strings_can_be_null=True,
        null_values=[""],
    )
    last_cell = None
    try:
        with _open(path) if content is None else io.BytesIO(content) as file:
            for batch in arrow_csv.open_csv(file, read_options, parse_options, convert_options):
                if batch.num_rows:
                    last_cell = batch.column(names[-1])[-1].as_py()
                yield batch.select(columns)
    except UnicodeDecodeError as error:
        raise _encoding_error(path, encoding, error) from None
    except pyarrow.ArrowInvalid:
        if not invalid_rows:
            raise
        row = invalid_rows[0]
        raise TableError(
            f"{path}: line {row.number} has {row.actual_columns} fields, but there are "
            f"{len(names)} column names. Correct {quoted(row.text)} (text that contains "
            f"{separator!r} needs double quotes)"
        ) from None
    if has_odd_quotes and last_cell is not None and "\n" in last_cell:
        where = f"{path}, near {quoted(last_cell)}"
        raise TableError(f"{where}: a quotation mark is never closed. Close or remove it")


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
    file: IO[bytes], path: Path, detect: bool, fallback: str | None
) -> tuple[str, bool, tuple[str, ...]]:
    """Return the encoding, whether the number of quotation marks is odd, and notes for the user.

    If ``detect`` is False, the encoding is known, and the first result has no meaning.
    """
    has_nul, looks_western, n_quotes, first_bytes = False, True, 0, b""
    line_numbers: dict[bool, int] = {}  # of the first non-ASCII lines, by whether they are UTF-8
    for line_number, line in enumerate(file, 1):
        first_bytes = first_bytes or line[:4]
        n_quotes += line.count(b'"')
        has_nul |= b"\0" in line
        if not line.isascii():
            looks_western = looks_western and NOT_WESTERN.search(line) is None
            is_utf8 = line.decode("utf-8", "ignore").encode() == line
            line_numbers.setdefault(is_utf8, line_number)
    for magic_number, (description, extension) in _OTHER_FORMATS.items():
        if first_bytes.startswith(magic_number):
            raise TableError(f"{path} is {description} file. Rename it to end in {extension}")
    marks = [mark for mark in BYTE_ORDER_MARKS if first_bytes.startswith(mark)]
    encoding, notes = BYTE_ORDER_MARKS[marks[0]] if marks else "utf-8-sig", tuple[str, ...]()
    if detect and not marks and (has_nul or False in line_numbers):
        text = f"{path} is not UTF-8, and its encoding cannot be detected. Specify it, as in "
        remedy = "cp1251"
        if has_nul:
            text = f"{path} contains NUL bytes. Export it as UTF-8 or, if it is UTF-16, pass "
            remedy = "utf-16-le"
        elif len(line_numbers) == 2:
            text = f"{path} mixes encodings: line {line_numbers[True]} is UTF-8, but line "
            text += f"{line_numbers[False]} is not. Convert the file to UTF-8, or pass "
            remedy = "cp1252"
        if has_nul or len(line_numbers) == 2 or not (fallback or looks_western):
            raise TableError(text, Argument("encoding", remedy))
        encoding = fallback or "cp1252"
        notes = (f"{path.name} is not UTF-8 and was read as {encoding}",)
    return encoding, bool(n_quotes % 2), notes


def _read_header(stream: IO[str], path: Path) -> tuple[list[str], str, int]:
    """Return column names, separator, and the number of lines up to and including the names."""
    n_blank_lines, first_line = 0, stream.readline()
    while first_line and not first_line.strip():
        n_blank_lines, first_line = n_blank_lines + 1, stream.readline()
    if not first_line:
        raise TableError(f"{path} is empty. Pass a file with column names and rows")
    lines = [first_line, *islice(filter(str.strip, stream), HEADER_LINES - 1)]
    try:
        with csv_field_size(sum(map(len, lines)) + 1):  # a field may span several lines
            n_fields = {s: [len(row) for row in csv.reader(lines, delimiter=s)] for s in SEPARATORS}
            candidates = [s for s in SEPARATORS if n_fields[s][0] > 1] or ["\t"]
            # Prefer the same number of fields in all lines, then more fields.
            separator = max(candidates, key=lambda s: (len({*n_fields[s]}) == 1, n_fields[s][0]))
            reader = csv.reader(lines, delimiter=separator)
            names = next(reader)
    except csv.Error as error:
        raise ValueError(error) from None
    unnamed_indices = [i for i, name in enumerate(names) if not name.strip()]
    if unnamed_indices not in ([], [0]):
        where = f"{path}: column {unnamed_indices[-1] + 1}"
        raise TableError(f"{where} has no name. Name all columns in the first line")
    if unnamed_indices:
        names[0] = unnamed_column_name(names[1:])
    return names, separator, n_blank_lines + reader.line_num
