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
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from domainwise.base.process import csv_field_size
from domainwise.tables.errors import refuse
from domainwise.tables.names import complete_names

SEPARATORS = (",", "\t", ";", "|")
#: Number of lines from which the separator is detected, and number of bytes to read at a time.
HEADER_LINES, BLOCK_BYTES = 20, 2**22
#: Bytes that are unlikely in Western European text: three consecutive non-ASCII bytes, or a byte
#: that cp1252 does not define.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")
#: Descriptions and file extensions of other formats, by the first bytes of a file.
_OTHER_FORMATS = {b"PAR1": ("a Parquet", ".parquet"), b"PK\x03\x04": ("an Excel or zip", ".xlsx")}
_OTHER_FORMATS[b"\x1f\x8b\x08"] = ("a gzip", ".csv.gz")
BYTE_ORDER_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32")
BYTE_ORDER_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16")


class CsvFile:
    """A CSV file whose encoding, separator and column names are known.

    ``encoding=None`` uses the byte order mark, or UTF-8 if the bytes are valid, or ``fallback``
    (the encoding of tables read earlier), or cp1252 if that is likely. The whole file is scanned
    when it is opened. If it is not read ``in_chunks``, its bytes are kept in memory.
    """

    def __init__(
        self, path: Path, encoding: str | None, *, fallback: str | None, in_chunks: bool
    ) -> None:
        self.path, self.notes = path, tuple[str, ...]()
        self._content: bytes | None = None
        try:
            "".encode(encoding or "utf-8")  # some codecs, such as rot13, do not encode text
        except LookupError:
            refuse("unknown encoding", encoding=encoding)
        self._encoding = codecs.lookup(encoding or "utf-8").name
        if not in_chunks:
            with self._open() as file:
                self._content = file.read()
        with self._open() as file:
            self._scan(file, encoding is None, fallback)
            file.seek(0)
            codec = "utf-8-sig" if self._encoding == "utf-8" else self._encoding
            self._read_header(io.TextIOWrapper(file, encoding=codec, newline=""))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file, and raise a TableError for bytes that the encoding does not define."""
        open_file = gzip.open if self.path.name.lower().endswith(".gz") else open
        content = self._content
        try:
            with open_file(self.path, "rb") if content is None else io.BytesIO(content) as file:
                yield file
        except UnicodeDecodeError as error:
            other_codec = "cp1251" if self._encoding == "cp1252" else "cp1252"
            values = {"codec": self._encoding, "error": error, "encoding": other_codec}
            refuse("wrong encoding", path=self.path, **values)

    def _scan(self, file: IO[bytes], detect: bool, fallback: str | None) -> None:
        """Count quotation marks and, if ``detect`` is True, detect the encoding."""
        has_nul, looks_western, n_quotes, first_bytes = False, True, 0, b""
        line_numbers = dict[bool, int]()  # the first non-ASCII lines, by whether they are UTF-8
        for line_number, line in enumerate(file, 1):
            first_bytes = first_bytes or line[:4]
            n_quotes += line.count(b'"')
            has_nul |= b"\0" in line
            if not line.isascii():
                looks_western = looks_western and NOT_WESTERN.search(line) is None
                is_utf8 = line.decode("utf-8", "ignore").encode() == line
                line_numbers.setdefault(is_utf8, line_number)
        self._has_odd_quotes = bool(n_quotes % 2)
        for first, (description, extension) in _OTHER_FORMATS.items():
            if first_bytes.startswith(first):
                refuse("other format", path=self.path, format=description, extension=extension)
        marks = [mark for mark in BYTE_ORDER_MARKS if first_bytes.startswith(mark)]
        if detect and marks:
            self._encoding = BYTE_ORDER_MARKS[marks[0]]
        elif detect and has_nul:
            refuse("NUL bytes", path=self.path, encoding="utf-16-le")
        elif detect and len(line_numbers) == 2:
            lines = {"utf8": line_numbers[True], "other": line_numbers[False]}
            refuse("mixed encodings", path=self.path, encoding="cp1252", **lines)
        elif detect and False in line_numbers:
            if not (fallback or looks_western):
                refuse("undetected encoding", path=self.path, encoding="cp1251")
            self._encoding = fallback or "cp1252"
            self.notes = (f"{self.path.name} is not UTF-8 and was read as {self._encoding}",)

    def _read_header(self, stream: IO[str]) -> None:
        """Read column names, separator, and the number of lines up to and including the names."""
        n_blank_lines, first_line = 0, stream.readline()
        while first_line and not first_line.strip():
            n_blank_lines, first_line = n_blank_lines + 1, stream.readline()
        if not first_line:
            refuse("empty file", path=self.path)
        lines = [first_line, *islice(filter(str.strip, stream), HEADER_LINES - 1)]
        with csv_field_size(sum(map(len, lines)) + 1):  # a field may span several lines
            n_fields = {s: [len(row) for row in csv.reader(lines, delimiter=s)] for s in SEPARATORS}
            candidates = [s for s in SEPARATORS if n_fields[s][0] > 1] or ["\t"]
            # Prefer the same number of fields in all lines, then more fields.
            self._separator = max(
                candidates, key=lambda s: (len({*n_fields[s]}) == 1, n_fields[s][0])
            )
            reader = csv.reader(lines, delimiter=self._separator)
            self.names = complete_names(next(reader), self.path, "the first line")
        self._n_header_lines = n_blank_lines + reader.line_num

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Read columns as record batches of text; empty cells are missing."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        invalid_rows: list[Any] = []

        def collect_row(row: Any) -> str:
            invalid_rows.append(row)
            return "error"

        is_read = self._content is not None
        read_options = arrow_csv.ReadOptions(
            column_names=self.names,
            skip_rows=self._n_header_lines,
            encoding=self._encoding,
            use_threads=False,
            block_size=min(len(self._content or "") + 1, 2**30) if is_read else BLOCK_BYTES,
        )
        parse_options = arrow_csv.ParseOptions(
            delimiter=self._separator, newlines_in_values=True, invalid_row_handler=collect_row
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
            with self._open() as file:
                for batch in arrow_csv.open_csv(file, read_options, parse_options, convert_options):
                    if batch.num_rows:
                        last_cell = batch.column(self.names[-1])[-1].as_py()
                    yield batch.select(columns)
        except pyarrow.ArrowInvalid:
            if not invalid_rows:
                raise
            row = invalid_rows[0]
            values = {"separator": self._separator, "n_names": len(self.names)}
            refuse("wrong number of fields", path=self.path, row=row, **values)
        if self._has_odd_quotes and last_cell is not None and "\n" in last_cell:
            refuse("open quotation mark", path=self.path, cell=last_cell)
