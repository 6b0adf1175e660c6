"""Files that leave a site: NumPy arrays and JSON, without executable content.

A file is an uncompressed zip archive that contains ``about.json``, and int64 and float64 arrays in
NumPy's format. It is read without pickle, and declared sizes are compared with the file size before
memory is allocated. The digest shows whether the file was changed; it is not a signature. Shapes
and counts are checked against the plan, and moments that no set of rows could produce are rejected.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn import config_context

from domainwise import __version__
from domainwise.arrays import Array
from domainwise.federated.plan import Plan, check_plan
from domainwise.jobs.store import DAMAGED, check_form, replacing
from domainwise.model_files.persistence import check_archive

FORMAT, ABOUT = 2, "about.json"  #: format version, and name of the JSON file in the archive
ROUNDS = {"statistics": "first", "moments": "second"}
#: Types of the fields in ``about.json`` and in the content of each round, for :func:`check_form`.
FIELD_TYPES: dict[str, dict[str, Any]] = {
    ABOUT: {"format": int, "kind": set(ROUNDS), "content": dict}
    | dict.fromkeys(("site", "plan", "digest"), str),
    "statistics": {
        "rows": int,
        "classes": [int],
        "categories": [{str: int}],
        "left_out": int,
        "checksum": re.compile("[0-9a-f]{4}"),
        "words": [str],
    },
    "moments": {"domains": [str], "left_out": int, "accepted": bool, "words": [str]},
}
MAX_ROWS = 10**10  #: maximum number of rows at a site
MAX_LENGTH = 2000  #: maximum number of characters in a name or a sentence


class SiteFileError(ValueError):
    """Raised for a site file that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class SiteFile:
    """A file that a site sends: arrays, counts, and a description of them.

    :func:`~domainwise.federated.statistics` and :func:`~domainwise.federated.moments` return it.
    """

    kind: str  #: "statistics" in the first round, "moments" in the second
    site: str
    plan: str  #: hash of the plan with which the file was created
    content: dict[str, Any]
    arrays: dict[str, Array]
    notes: tuple[str, ...] = ()  #: what was left out or merged; for the site only, not saved

    def describe(self) -> list[str]:
        """Describe what the file contains and what it does not contain, with notes for the site.

        Returns
        -------
        lines : list of str
            The description, line by line.
        """
        heading = f"site {self.site!r}, {ROUNDS[self.kind]} round, plan {self.plan[:12]}"
        notes = [f"for the site only: {note}" for note in self.notes]
        return [heading, *self.content["words"], *notes]

    def digest(self) -> str:
        """Return the SHA-256 digest of everything in the file.

        Returns
        -------
        digest : str
            Hexadecimal digits.
        """
        hasher = hashlib.sha256(json.dumps(self._about(), sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = _to_64_bit(self.arrays[name])
            hasher.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return hasher.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the file; an existing file is replaced only when the new one is complete."""
        about = json.dumps({**self._about(), "digest": self.digest()}, allow_nan=False)
        with replacing(path) as temporary_path, zipfile.ZipFile(temporary_path, "w") as archive:
            archive.writestr(ABOUT, about)
            for name, array in self.arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _to_64_bit(array), (1, 0), allow_pickle=False)

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read and check a file written by :meth:`save`; no code in the file is run."""
        n_bytes = Path(path).stat().st_size
        try:
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, n_bytes)
                about = json.loads(archive.read(ABOUT))
                names = [name for name in archive.namelist() if name != ABOUT]
                arrays = {n.removesuffix(".npy"): _read_array(archive.read(n), n) for n in names}
            _check_fields(about, FIELD_TYPES[ABOUT], ABOUT)
            digest, version = about.pop("digest"), about.pop("format")
            if version != FORMAT:
                raise ValueError(f"it has format {version}, but this version reads format {FORMAT}")
            file = cls(**about, arrays=arrays)
            if file.digest() != digest:
                raise ValueError("its digest does not match: it was changed after it was written")
        except Exception as error:
            raise SiteFileError(
                f"{path} cannot be read as a site file: {error}. Ask the site to create it again "
                f"with domainwise {__version__}"
            ) from error
        return file

    def _about(self) -> dict[str, Any]:
        fields = {"kind": self.kind, "site": self.site, "plan": self.plan}
        return {"format": FORMAT, **fields, "content": self.content}


Function = TypeVar("Function", bound=Callable[..., Any])


def default_output(function: Function) -> Function:
    """Decorate a function so that its transformers return arrays, regardless of set_config."""
    return config_context(transform_output="default")(function)


SiteFiles = SiteFile | str | Path | Iterable[SiteFile | str | Path]  #: site files or their paths


def _to_64_bit(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind in "iu" else "<f8")


def _read_array(content: bytes, name: str) -> Array:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name!r} is not in version 1.0 of NumPy's format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.str not in ("<f8", "<i8") or is_fortran:
        found_format = f"{dtype} in {'Fortran' if is_fortran else 'C'} order"
        raise ValueError(f"{name!r} must be int64 or float64 in C order; got {found_format}")
    # A product of Python integers does not overflow.
    if min(shape, default=0) < 0 or 8 * math.prod(shape) != len(content) - stream.tell():
        raise ValueError(f"{name!r} declares the shape {shape}, but its size does not match")
    array = np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} contains NaN or infinite values")
    return array


def _check_fields(fields: dict[str, Any], field_types: dict[str, Any], location: str) -> None:
    """Raise ValueError if a dict does not have exactly these fields with these types."""
    _check_names(fields, field_types, f"{location}: the field")
    try:
        check_form(fields, field_types, location)
    except ValueError as error:  # remove the advice, because callers add their own
        raise ValueError(str(error).removesuffix(f". {DAMAGED}")) from None


def _check_names(entries: dict[str, Any], expected_entries: dict[str, Any], label: str) -> None:
    if differing_names := sorted(set(entries) ^ set(expected_entries), key=str):
        problem = "unexpected" if differing_names[0] in entries else "missing"
        raise ValueError(f"{label} {str(differing_names[0])!r} is {problem}")


def load_files(
    plan: Plan, files: SiteFiles, kind: str, check: Callable[[Plan, SiteFile], None]
) -> list[SiteFile]:
    """Read and check the site files from one round, and return them sorted by site."""
    check_plan(plan)
    if not isinstance(files, (str, Path, SiteFile, Iterable)):
        raise TypeError(f"files must be SiteFile objects or paths; got {type(files).__name__}")
    files_by_site: dict[str, SiteFile] = {}
    for source in [files] if isinstance(files, (str, Path, SiteFile)) else files:
        file = source if isinstance(source, SiteFile) else SiteFile.load(source)
        file_label = f"the file from site {file.site!r}" if file is source else str(source)
        if file.kind != kind:
            requirement = f"{kind} are needed. Pass {ROUNDS[kind]}-round files"
            raise SiteFileError(f"{file_label} contains {file.kind}, but {requirement}")
        if file.plan != plan.hash:
            raise SiteFileError(
                f"{file_label} was created with plan {file.plan[:12]}, but this is plan "
                f"{plan.hash[:12]}. Send this plan to the site and ask for a new file"
            )
        if file.site in files_by_site:
            raise SiteFileError(f"there are two files for site {file.site!r}. Pass only one")
        try:
            _check_fields(file.content, FIELD_TYPES[kind], "content")
            if max(map(len, [file.site, *file.content["words"]])) > MAX_LENGTH:
                raise ValueError(f"a string in 'site' or 'words' exceeds {MAX_LENGTH} characters")
            if not 0 <= file.content["left_out"] <= MAX_ROWS:
                raise ValueError(f"'left_out' must be an integer from 0 to {MAX_ROWS}")
            check(plan, file)
        except Exception as error:
            raise SiteFileError(
                f"{file_label} cannot be used: {error}. Ask the site to create it again from its "
                "rows, or omit it"
            ) from error
        files_by_site[file.site] = file
    if not files_by_site:
        raise SiteFileError(f"no {ROUNDS[kind]}-round file was passed. Pass one per site")
    return [files_by_site[site] for site in sorted(files_by_site)]


def check_arrays(
    file: SiteFile, shapes: dict[str, tuple[int, ...]], counts_name: str, max_count: int
) -> None:
    """Raise ValueError if arrays have unexpected names, shapes or types.

    The array named ``counts_name`` must contain integers from 0 to ``max_count``; others, floats.
    """
    _check_names(file.arrays, shapes, "the array")
    for name, shape in shapes.items():
        array, dtype = file.arrays[name], "int64" if name == counts_name else "float64"
        if array.shape != shape or array.dtype.kind != dtype[0]:
            raise ValueError(
                f"{name!r} must have shape {shape} and dtype {dtype}; got shape {array.shape} "
                f"and dtype {array.dtype}"
            )
        if name == counts_name and ((array < 0) | (array > max_count)).any():
            raise ValueError(f"{name!r} must contain integers from 0 to {max_count}")
