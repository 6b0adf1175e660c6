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
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from domainwise.base.process import csv_field_size
from domainwise.tables.errors import check, refuse
from domainwise.tables.names import complete_names

SEPARATORS = (",", "\t", ";", "|")
#: Number of lines from which the separator is detected, and number of bytes to read at a time.
HEADER_LINES, BLOCK_BYTES = 20, 2**24
#: Bytes that are unlikely in Western European text: three consecutive non-ASCII bytes, or a byte
#: that cp1252 does not define.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")
#: File extensions of other formats, by the first bytes of a file.
OTHER_FORMATS = {b"PAR1": ".parquet", b"PK\x03\x04": ".xlsx", b"\x1f\x8b\x08": ".csv.gz"}
BYTE_ORDER_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32")
BYTE_ORDER_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16")


class CsvFile:
    """A CSV file whose encoding, separator and column names are known.

    ``encoding=None`` uses the byte order mark, or UTF-8 if the bytes are valid, or ``fallback``
    (the encoding of tables read earlier), or cp1252 if that is likely. The whole file is scanned
    when it is opened.
    """

    def __init__(self, path: Path, encoding: str | None, *, fallback: str | None) -> None:
        self.path, self.notes = path, tuple[str, ...]()
        open_file: Any = gzip.open if path.name.lower().endswith(".gz") else open
        self._open = partial(open_file, path, "rb")
        try:
            "".encode(encoding or "utf-8")  # some codecs, such as rot13, do not encode text
        except LookupError:
            refuse("unknown encoding", encoding=encoding)
        self._encoding = codecs.lookup(encoding or "utf-8").name
        with self._open() as file:
            self._scan(file, encoding is None, fallback)
            file.seek(0)
            codec = "utf-8-sig" if self._encoding == "utf-8" else self._encoding
            self._read_header(io.TextIOWrapper(file, encoding=codec, newline=""))

    def _scan(self, file: IO[bytes], detect: bool, fallback: str | None) -> None:
        """Find the last quotation mark and, if ``detect`` is True, detect the encoding."""
        has_nul, looks_western, self._last_quoted, first_bytes = False, True, b"", b""
        line_numbers = dict[bool, int]()  # the first non-ASCII lines, by whether they are UTF-8
        for line_number, line in enumerate(file, 1):
            first_bytes = first_bytes or line[:4]
            has_nul |= b"\0" in line
            self._last_quoted = line if b'"' in line else self._last_quoted
            if not line.isascii():
                looks_western = looks_western and NOT_WESTERN.search(line) is None
                is_utf8 = line.decode("utf-8", "ignore").encode() == line
                line_numbers.setdefault(is_utf8, line_number)
        extensions = [
            OTHER_FORMATS[first] for first in OTHER_FORMATS if first_bytes.startswith(first)
        ]
        check(not extensions, "other format", path=self.path, extension=extensions)
        marks = [mark for mark in BYTE_ORDER_MARKS if first_bytes.startswith(mark)]
        if not detect or marks:
            self._encoding = BYTE_ORDER_MARKS[marks[0]] if detect else self._encoding
            return
        check(not has_nul, "NUL bytes", path=self.path, encoding="utf-16-le")
        if False in line_numbers:
            lines = {"utf8": line_numbers.get(True), "other": line_numbers[False]}
            is_one = len(line_numbers) == 1
            check(is_one, "mixed encodings", path=self.path, encoding="cp1252", **lines)
            is_known = fallback or looks_western
            check(is_known, "undetected encoding", path=self.path, encoding="cp1251")
            self._encoding = fallback or "cp1252"
            self.notes = (f"{self.path.name} is not UTF-8 and was read as {self._encoding}",)

    def _read_header(self, stream: IO[str]) -> None:
        """Read column names, separator, and the number of lines up to and including the names."""
        numbered_lines = ((i, line) for i, line in enumerate(stream) if line.strip())
        lines_by_number = dict(islice(numbered_lines, HEADER_LINES))
        check(lines_by_number, "empty file", path=self.path)
        n_blank_lines, lines = min(lines_by_number), [*lines_by_number.values()]
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
        # The last quotation mark must not begin a cell, because this cell would not end.
        before, quote, _ = self._last_quoted.rpartition(b'"')
        is_open = quote and before.rstrip(b"\0")[-1:] in (b"", b"\r", self._separator.encode())
        line = self._last_quoted.decode("utf-8", "replace").strip()
        check(not is_open, "open quotation mark", path=self.path, line=line)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Read columns as record batches of text; empty cells are missing."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        location = {"column_names": self.names, "skip_rows": self._n_header_lines}
        read_options = arrow_csv.ReadOptions(
            **location, encoding=self._encoding, use_threads=False, block_size=BLOCK_BYTES
        )
        parse_options = arrow_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert_options = arrow_csv.ConvertOptions(
            include_columns=list(dict.fromkeys(columns)),
            column_types=dict.fromkeys(self.names, pyarrow.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        try:
            with self._open() as file:
                yield from arrow_csv.open_csv(file, read_options, parse_options, convert_options)
        except pyarrow.ArrowInvalid as error:
            refuse("invalid line", path=self.path, error=error, separator=self._separator)
