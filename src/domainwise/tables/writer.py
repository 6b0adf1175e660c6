"""Writing tables piece by piece: complete at the end, or not there at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domainwise.jobs.atomic import replacing
from domainwise.tables.files import FORMATS, table_format


class TableWriter:
    """Takes data frames with the same columns, one after the other.

    ``schema`` has the types of the columns in Parquet and Feather; None takes the first frame's.
    """

    def __init__(self, path: Path, kind: str, schema: Any = None) -> None:
        self._path, self._kind = path, kind
        self._file: Any = None
        self.schema = schema
        self.n_rows = 0

    def write(self, frame: Any) -> None:
        """Append the rows of a data frame."""
        if self._kind == "csv":
            if self._file is None:
                opened = gzip.open if self._path.name.lower().endswith(".gz") else open
                self._file = opened(self._path, "wt", encoding="utf-8", newline="")
            separator = "\t" if ".tsv" in self._path.name.lower() else ","
            frame.to_csv(self._file, index=False, header=self.n_rows == 0, sep=separator)
        else:
            self._write_arrow(frame)
        self.n_rows += len(frame)

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()

    def _write_arrow(self, frame: Any) -> None:
        import pyarrow

        # The types of the first piece hold for all: a piece without values has none of its own.
        table = pyarrow.Table.from_pandas(frame, schema=self.schema, preserve_index=False)
        if self._file is None:
            self.schema = table.schema.remove_metadata()
            if self._kind == "parquet":
                from pyarrow import parquet

                self._file = parquet.ParquetWriter(self._path, self.schema)
            else:
                self._file = pyarrow.ipc.new_file(str(self._path), self.schema)
        self._file.write_table(table.cast(self.schema))


@contextmanager
def writing_table(path: str | Path) -> Iterator[TableWriter]:
    """Open a table for writing; the ending of its name says in which format."""
    kind = table_format(path, FORMATS)
    with replacing(path) as temporary:
        writer = TableWriter(temporary, kind)
        try:
            yield writer
        finally:
            writer.close()
