"""Reading and writing tables: CSV, Parquet, Feather and Excel, in memory or in chunks.

Cells are read as they are written: those of CSV files are text. Their meaning is determined later,
by a :class:`~domainwise.tables.schema.Schema`.

``pyarrow.csv`` splits lines into fields, and detects damaged compressed files and lines with a
wrong number of fields. This module detects the encoding, the separator, and quotation marks that
are never closed.

python-calamine reads Excel workbooks, and ignores macros, formulas and links. A workbook is a zip
archive; its unpacked size and the area that its cells span are checked before. Errors in cells,
which calamine returns as empty cells, are read here.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote
from xml.etree import ElementTree

from domainwise.base.files import replacing
from domainwise.base.messages import listed, needs_extra, quoted
from domainwise.base.process import csv_field_size
from domainwise.tables.errors import TableError, check, import_pandas, refuse
from domainwise.tables.names import check_names, complete_names, require_columns

#: Extensions of the files that are read from a folder.
PARQUET_EXTENSIONS = (".parquet", ".parq", ".pq")
#: Formats that can be read and written, by file extension.
FORMATS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv"),
    **dict.fromkeys(PARQUET_EXTENSIONS, "parquet"),
    **dict.fromkeys((".feather", ".arrow"), "feather"),
}
#: Formats that can be read, by file extension.
READ_FORMATS = {**FORMATS, ".xlsx": "excel"}
CHUNK_ROWS = 50_000  #: default number of rows in a chunk
#: Value in the name of a folder whose rows have no value in the partition column.
MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class OpenTable:
    """A table whose column names are known; :meth:`frames` reads its rows."""

    path: Path
    names: list[str]
    notes: tuple[str, ...]  #: assumptions about the file, and skipped rows and sheets
    read: Callable[[list[str]], Iterator[Any]]  #: yields data frames with these columns

    def frames(self, columns: Sequence[str], chunk_rows: int | None = None) -> Iterator[Any]:
        """Yield frames of up to ``chunk_rows`` rows; None yields one frame. CSV cells are text."""
        frames: Iterator[Any] = filter(len, self.read(list(columns)))
        n_rows = 0
        with _read_errors(self.path):
            if chunk_rows is None and (pieces := list(frames)):
                frames = iter([import_pandas().concat(pieces, ignore_index=True)])
            for frame in frames:
                n_rows += len(frame)
                size = chunk_rows or len(frame)
                for start in range(0, len(frame), size):
                    yield frame[start : start + size].reset_index(drop=True)
        check(n_rows, "no rows", path=self.path)


def open_table(
    path: str | Path, *, encoding: str | None = None, fallback: str | None = None
) -> OpenTable:
    """Open a table and read its column names.

    The file extension selects CSV (also ``.gz``), Parquet, Feather or Excel (first visible sheet).
    A folder of Parquet files is read in the order of their names; folder names such as ``site=A``
    inside it become text columns. ``encoding`` is the encoding of a CSV file; None detects it. For
    ``fallback``, see :class:`CsvFile`.

    Raises a TableError if the file does not exist, is empty or damaged, or has an unknown encoding,
    lines with different numbers of fields, or unusable column names.
    """
    import_pandas()
    path, notes = Path(path), tuple[str, ...]()
    check(path.exists(), "no file", path=path)
    check(path.is_dir() or path.stat().st_size, "empty file", path=path)
    files = parquet_files(path)
    check(files, "no Parquet files", path=path)
    file_format = existing_format(path)
    read: Callable[[list[str]], Iterator[Any]] = partial(_arrow_frames, path, file_format)
    with _read_errors(path):
        if file_format == "csv":
            csv_file = CsvFile(path, encoding, fallback=fallback)
            names, notes, read = csv_file.names, csv_file.notes, csv_file.frames
        elif file_format == "excel":
            sheet, notes = read_excel(path)
            names, read = list(sheet.columns), lambda columns: iter([sheet[columns]])
        else:
            from pyarrow import dataset, fs

            readers = {"parquet": dataset.ParquetFileFormat, "feather": dataset.IpcFileFormat}
            schema = readers[file_format]().inspect(str(files[0]), fs.LocalFileSystem())
            folder_columns = folder_values(files[0].as_posix(), path.as_posix())
            names = [name for name in (*schema.names, *folder_columns) if not _is_index(name)]
    check_names(names, str(path))
    return OpenTable(path, names, notes, read)


def table_format(path: str | Path, formats: dict[str, str] = READ_FORMATS) -> str:
    """Return the format that a file extension selects: "csv", "parquet", "feather" or "excel".

    >>> table_format("measurements.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for extension, file_format in formats.items():
        if name.endswith(extension):
            return file_format
    refuse("unknown extension", path=path, extensions=", ".join(formats))


def existing_format(path: str | Path) -> str:
    """Return the format of an existing table; a folder is assumed to contain Parquet files."""
    return "parquet" if Path(path).is_dir() else table_format(path)


# CSV ----------------------------------------------------------------------------------------------

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
        line = self._last_quoted.decode("utf-8", "replace").replace("\0", "").strip()
        check(not is_open, "open quotation mark", path=self.path, line=line)

    def frames(self, columns: list[str]) -> Iterator[Any]:
        """Read columns as data frames of text; empty cells are missing."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        read_options = arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
        read_options.column_names, read_options.encoding = self.names, self._encoding
        read_options.skip_rows = self._n_header_lines
        parse_options = arrow_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert_options = arrow_csv.ConvertOptions(
            include_columns=list(dict.fromkeys(columns)),
            column_types=dict.fromkeys(self.names, pyarrow.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        try:
            with self._open() as file:
                for batch in arrow_csv.open_csv(file, read_options, parse_options, convert_options):
                    yield arrow_frame(batch, columns)
        except pyarrow.ArrowInvalid as error:
            refuse("invalid line", path=self.path, error=error, separator=self._separator)


# Excel --------------------------------------------------------------------------------------------

#: Maximum unpacked size of a workbook, which takes some 20 seconds to read, in bytes.
MAX_UNPACKED_BYTES = 2**28
#: A sheet may span ``MAX_AREA`` cells, or ``MAX_AREA_PER_CELL`` for each cell with a value.
MAX_AREA, MAX_AREA_PER_CELL = 10_000_000, 2
#: Number of rows that are searched for the column names.
HEADER_ROWS = 20
#: Pattern for a cell with a value, and for an error such as ``#DIV/0!`` in it. The number of
#: characters is limited, so that the time is proportional to the size of the file.
TOKEN = re.compile(
    rb"""<(?:\w{1,9}:)?c\b[^<>]{0,99}?\br=["']([A-Z]{1,3})([0-9]{1,7})["'][^<>]{0,99}(?<!/)>"""
    rb"""(?:(?:<(?:\w{1,9}:)?f\b[^<>]*>[^<]*</(?:\w{1,9}:)?f>|<[^<>]{0,99}/>)?"""
    rb"""<(?:\w{1,9}:)?v>(#[^<]{1,20})<)?"""
)
#: Exceptions that reading a damaged workbook can raise, except OSError and ValueError.
DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError, ElementTree.ParseError)


def read_excel(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Read the first visible sheet that is not empty; also return notes on what was skipped."""
    from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum

    errors_by_sheet = _find_errors(path)
    try:
        book = CalamineWorkbook.from_path(path)
        visible = {s.name for s in book.sheets_metadata if s.visible == SheetVisibleEnum.Visible}
        # The sheets with cells; visible ones are first.
        sheet_names = sorted({**errors_by_sheet}, key=lambda name: name not in visible)
        check(sheet_names, "empty file", path=path)
        sheet = book.get_sheet_by_name(sheet_names[0])
        rows, (top, left) = sheet.to_python(), sheet.start or (0, 0)
    except CalamineError as error:
        raise ValueError(error) from None
    for (row, column), error_value in errors_by_sheet[sheet_names[0]].items():
        rows[row - top][column - left] = error_value
    header_index = _header_index(rows)
    sheet_name, *others = [quoted(n) + " (hidden)" * (n not in visible) for n in sheet_names]
    names = complete_names([str(name) for name in rows[header_index]], path, f"sheet {sheet_name}")
    frame = import_pandas().DataFrame(rows[header_index + 1 :], columns=names, dtype=object)
    notes = []
    if header_index:
        notes.append(f"{path.name}: rows skipped above the column names: {header_index}")
    if others or sheet_names[0] not in visible:
        others_text = f", not {listed(others, 8, ', ')}" if others else ""
        notes.append(f"{path.name}: only sheet {sheet_name} was read{others_text}")
    return frame.replace("", None).convert_dtypes(), tuple(notes)


def _find_errors(path: Path) -> dict[str, dict[tuple[int, int], str]]:
    """Check the size of a workbook; return the errors in cells for each sheet that has cells."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
        sizes = {"size": n_bytes / 1e6, "limit": MAX_UNPACKED_BYTES / 1e6}
        check(n_bytes <= MAX_UNPACKED_BYTES, "large workbook", path=path, **sizes)
        if (damaged_member := archive.testzip()) is not None:  # or larger than declared
            raise ValueError(f"{damaged_member} is damaged")
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        path_by_id = {link.get("Id"): str(link.get("Target")) for link in links}
        errors_by_sheet = {}
        for sheet in book.findall(".//{*}sheet"):
            identifier = next((v for name, v in sheet.items() if name.endswith("}id")), "")
            xml = archive.read(f"xl/{path_by_id.pop(identifier).removeprefix('/xl/')}")
            name = str(sheet.get("name"))
            if (errors := _scan_sheet(xml, path, name)) is not None:
                errors_by_sheet[name] = errors
    return errors_by_sheet


def _scan_sheet(xml: bytes, path: Path, name: str) -> dict[tuple[int, int], str] | None:
    """Check the area that the cells span, and return the errors in cells; None without cells."""
    n_cells, errors = 0, {}
    letters, rows = {b"A"}, {b"1"}
    for match in TOKEN.finditer(xml):
        n_cells += 1
        letters.add(match[1])
        rows.add(match[2])
        if match[3] and re.search(rb"""\bt=["']e["']""", match[0]):
            index = int(match[2]) - 1, _column_index(match[1])
            errors[index] = match[3].decode("ascii", "replace")
    height, width = max(map(int, rows)), max(map(_column_index, letters)) + 1
    is_dense = height * width <= max(MAX_AREA, MAX_AREA_PER_CELL * n_cells)
    extent = {"n_cells": n_cells, "height": height, "width": width}
    check(is_dense, "sparse sheet", path=path, sheet=name, **extent)
    return errors if n_cells else None


def _column_index(letters: bytes) -> int:
    """Return the index of a column, from 0.

    >>> _column_index(b"A"), _column_index(b"XFD")
    (0, 16383)
    """
    return reduce(lambda number, letter: 26 * number + letter - 64, letters, 0) - 1


def _header_index(rows: Sequence[Sequence[Any]]) -> int:
    """Return the index of the row with the column names.

    The names are distinct strings, and at most half of the cells in each row above are filled.
    If there is no such row, the names are in the first row.
    """
    width = len(rows[0])
    for index, row in enumerate(rows[:HEADER_ROWS]):
        filled_cells = [cell for cell in row if cell != ""]
        if len(filled_cells) >= width - (row[0] == ""):
            are_names = all(isinstance(cell, str) for cell in filled_cells) and width > 1
            return index if are_names and len({*filled_cells}) == len(filled_cells) else 0
        if 2 * len(filled_cells) > width:
            return 0
    return 0


# Parquet and Feather ------------------------------------------------------------------------------


def _is_index(name: str) -> bool:
    """Whether a column is an unnamed index that pandas or Dask has written."""
    return name.startswith("__index_level_") or name == "__null_dask_index__"


def index_columns(schema: Any) -> set[str]:
    """Return the columns of an Arrow schema that are the index of a data frame."""
    entries = (schema.pandas_metadata or {}).get("index_columns", [])
    return {n for n in entries if isinstance(n, str)} | {n for n in schema.names if _is_index(n)}


def is_data_file(path: str) -> bool:
    """Whether a file in a folder is a Parquet file with rows, not a hidden file or ``_metadata``.

    >>> is_data_file("site=A/part-0.parquet"), is_data_file("site=A/.part-0.parquet")
    (True, False)
    """
    name = path.rsplit("/", 1)[-1]
    return name.endswith(PARQUET_EXTENSIONS) and not name.startswith(("_", "."))


def folder_values(path: str, root: str) -> dict[str, str | None]:
    """Return the values in folder names ``column=value``, by column; missing values are None.

    >>> folder_values("data/site=North%20Sea/part-0.parquet", "data")
    {'site': 'North Sea'}
    """
    folders = path.removeprefix(root).split("/")[:-1]
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    return {unquote(k): None if v == MISSING_PARTITION else unquote(v) for k, v in pairs}


def arrow_frame(table: Any, columns: list[str], folders: Any = None, *, exact: bool = True) -> Any:
    """Convert an Arrow table or batch to a data frame; ``folders`` contains constant columns.

    Decimals become floats. With ``exact``, int64 and uint64 become nullable types, because large
    numbers lose digits if they are converted to floats.
    """
    import pyarrow

    pandas = import_pandas()
    folders = folders or {}
    table = table.select([name for name in columns if name not in folders])
    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table[i].cast(pyarrow.float64()))
    int_types = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
    mapper = int_types.get if exact else None
    frame = table.to_pandas(ignore_metadata=True, use_threads=False, types_mapper=mapper)
    return frame.assign(**folders)[columns]


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, sorted by name, or the file itself."""
    if not path.is_dir():
        return [path]
    files = (p for p in path.rglob("*") if is_data_file(p.as_posix()) and p.is_file())
    return sorted(files, key=Path.as_posix)


def _arrow_frames(path: Path, file_format: str, columns: list[str]) -> Iterator[Any]:
    """Yield data frames from Parquet or Feather files."""
    from pyarrow import dataset

    for file in parquet_files(path):
        folder_columns = folder_values(file.as_posix(), path.as_posix())
        with _read_errors(file):
            table = dataset.dataset(file, format=file_format)
            file_columns = [name for name in columns if name not in folder_columns]
            require_columns(file_columns, table.schema.names, str(file), reason=" of other files")
            options = {"batch_size": CHUNK_ROWS, "batch_readahead": 1, "use_threads": False}
            for batch in table.to_batches(columns=file_columns, **options):
                yield arrow_frame(batch, columns, folder_columns)


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors of libraries to errors that name the file."""
    file_format = existing_format(path)
    try:
        with needs_extra(f"reading {path}", "excel" if file_format == "excel" else "cli"):
            yield
    except TableError:
        raise
    except UnicodeDecodeError as error:
        other_encoding = "cp1252" if error.encoding.startswith("utf") else "cp1251"
        refuse("wrong encoding", path=path, error=error, encoding=other_encoding)
    except (OSError, EOFError, ValueError, csv.Error, *DAMAGED) as error:
        text = f"the file is damaged, or its format is not {file_format}"
        reason = f"{text} ({''.join(str(error).splitlines()[:1])})"
        refuse("unreadable", path=path, reason=getattr(error, "strerror", None) or reason)


# Writing ------------------------------------------------------------------------------------------


class TableWriter:
    """Writes data frames with the same columns to one file.

    ``schema`` is the Arrow schema for Parquet and Feather; None infers it from the first frame.
    """

    def __init__(self, path: Path, file_format: str, schema: Any = None) -> None:
        self._path, self._format = path, file_format
        self._file: Any = None
        self.schema, self.n_rows = schema, 0

    def write(self, frame: Any) -> None:
        """Append the rows of a data frame."""
        if self._format == "csv":
            separator = "\t" if ".tsv" in self._path.name.lower() else ","
            options: dict[str, Any] = {"index": False, "header": self.n_rows == 0, "mode": "a"}
            frame.to_csv(self._path, sep=separator, lineterminator="\n", **options)
        else:
            import pyarrow
            from pyarrow import parquet

            # All chunks use the first chunk's types, because a column without values has no type.
            table = pyarrow.Table.from_pandas(frame, schema=self.schema, preserve_index=False)
            if self._file is None:
                self.schema = table.schema.remove_metadata()
                is_parquet = self._format == "parquet"
                open_file = parquet.ParquetWriter if is_parquet else pyarrow.ipc.new_file
                self._file = open_file(str(self._path), self.schema)
            self._file.write_table(table.cast(self.schema))
        self.n_rows += len(frame)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


@contextmanager
def writing_table(path: str | Path) -> Iterator[TableWriter]:
    """Open a table for writing, in the format that its file extension selects."""
    file_format = table_format(path, FORMATS)
    with replacing(path) as temporary, closing(TableWriter(temporary, file_format)) as writer:
        yield writer
