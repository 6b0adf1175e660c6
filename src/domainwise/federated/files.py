"""Files that leave a site: NumPy arrays and JSON, without executable content.

A file is an uncompressed zip archive of ``about.json`` and of integer and float64 arrays in NumPy's
format. It is read without pickle, and every declared size is compared with the size of the file
before memory is allocated. Its digest shows whether the file was changed; it is not a signature.
The content is checked against the plan: shapes, counts, and whether rows with such moments exist.
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

from domainwise.arrays import Array
from domainwise.federated.plan import Plan
from domainwise.jobs.store import check_form, replacing
from domainwise.model_files.persistence import check_archive

FORMAT, ABOUT = 2, "about.json"
ROUNDS = {"statistics": "first", "moments": "second"}
#: Fields of ``about.json`` and of the content of each round, for :func:`check_form`.
FORMS: dict[str, dict[str, Any]] = {
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
#: Maximum number of rows of a site.
MAX_ROWS = 10**10
#: Maximum number of characters of a name or a sentence.
MAX_LENGTH = 2000


class SiteFileError(ValueError):
    """Raised for a site's file that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class SiteFile:
    """A file that a site sends: arrays, counts, and a description of them.

    :func:`~domainwise.federated.statistics` and :func:`~domainwise.federated.moments` return it.
    """

    kind: str  #: "statistics" of the first round or "moments" of the second
    site: str
    plan: str  #: hash of the plan with which it was made
    content: dict[str, Any]
    arrays: dict[str, Array]
    #: What was left out or merged. These notes are for the site only and are not saved.
    notes: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Describe what the file contains and what it does not, with notes for the site.

        Returns
        -------
        lines : list of str
            The description, line by line.
        """
        first = f"site {self.site!r}, {ROUNDS[self.kind]} round, plan {self.plan[:12]}"
        notes = [f"for the site only: {note}" for note in self.notes]
        return [first, *self.content["words"], *notes]

    def digest(self) -> str:
        """SHA-256 of everything in the file.

        Returns
        -------
        digest : str
            Hexadecimal digits.
        """
        digest = hashlib.sha256(json.dumps(self._about(), sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = _stored(self.arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the file; an older file is replaced when the new one is complete."""
        about = json.dumps({**self._about(), "digest": self.digest()}, allow_nan=False)
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(ABOUT, about)
            for name, array in self.arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _stored(array), (1, 0), allow_pickle=False)

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read a file that :meth:`save` has written, and check it; no code from it is run."""
        size = Path(path).stat().st_size
        try:
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, size)
                about = json.loads(archive.read(ABOUT))
                names = [name for name in archive.namelist() if name != ABOUT]
                arrays = {n.removesuffix(".npy"): _read_array(archive.read(n), n) for n in names}
            check_fields(about, ABOUT, ABOUT)
            digest, version = about.pop("digest"), about.pop("format")
            if version != FORMAT:
                raise ValueError(f"it has format {version}, but this version reads format {FORMAT}")
            file = cls(**about, arrays=arrays)
            if file.digest() != digest:
                raise ValueError("its digest does not match: it was changed after it was written")
        except Exception as error:
            raise SiteFileError(
                f"{path} is damaged, or not a file of a site: {error}. Ask the site to make it "
                "again with the same version of domainwise"
            ) from error
        return file

    def _about(self) -> dict[str, Any]:
        fields = {"kind": self.kind, "site": self.site, "plan": self.plan}
        return {"format": FORMAT, **fields, "content": self.content}


Call = TypeVar("Call", bound=Callable[..., Any])


def default_output(function: Call) -> Call:
    """Decorate a function so that transformers in it return arrays, regardless of set_config."""
    return config_context(transform_output="default")(function)


#: One or several files of sites, as objects or paths.
SiteFiles = SiteFile | str | Path | Iterable[SiteFile | str | Path]


def _stored(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind in "iu" else "<f8")


def _read_array(content: bytes, name: str) -> Array:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name!r} is not in version 1.0 of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.str not in ("<f8", "<i8") or fortran:
        raise ValueError(f"{name!r} must be of type int64 or float64, got {dtype}")
    # A product of Python integers does not overflow.
    if min(shape, default=0) < 0 or 8 * math.prod(shape) != len(content) - stream.tell():
        raise ValueError(f"{name!r} declares the shape {shape}, but its size does not match")
    array = np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} contains NaN or infinite values")
    return array


def check_fields(values: dict[str, Any], form: str, where: str) -> None:
    """Raise ValueError if a dict does not have exactly the fields of a form in ``FORMS``."""
    if differing := sorted(set(values) ^ set(FORMS[form]), key=str):
        problem = "unexpected" if differing[0] in values else "missing"
        raise ValueError(f"{where}: the field {str(differing[0])!r} is {problem}")
    check_form(values, FORMS[form], where)


def load_files(
    plan: Plan, files: SiteFiles, kind: str, check: Callable[[Plan, SiteFile], None]
) -> list[SiteFile]:
    """Read and check the files of one round of a plan, and return them sorted by site."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a Plan, got {type(plan).__name__}")
    if not isinstance(files, (str, Path, SiteFile, Iterable)):
        raise TypeError(f"files must be SiteFile objects or paths, got {type(files).__name__}")
    by_site: dict[str, SiteFile] = {}
    for source in [files] if isinstance(files, (str, Path, SiteFile)) else files:
        file = source if isinstance(source, SiteFile) else SiteFile.load(source)
        name = f"the file of site {file.site!r}" if isinstance(source, SiteFile) else str(source)
        if file.kind != kind:
            raise SiteFileError(
                f"{name} contains {file.kind}, but {kind} are needed. Pass the files of the "
                f"{ROUNDS[kind]} round"
            )
        if file.plan != plan.hash:
            raise SiteFileError(
                f"{name} was made with plan {file.plan[:12]}, but this plan is {plan.hash[:12]}. "
                "Send this plan to the site and ask for a new file"
            )
        if file.site in by_site:
            raise SiteFileError(f"there are two files of site {file.site!r}. Leave one of them out")
        try:
            check_fields(file.content, kind, "content")
            if max(map(len, [file.site, *file.content["words"]])) > MAX_LENGTH:
                raise ValueError(f"'site' and 'words' must have at most {MAX_LENGTH} characters")
            if not 0 <= file.content["left_out"] <= MAX_ROWS:
                raise ValueError(f"'left_out' must be from 0 to {MAX_ROWS}")
            check(plan, file)
        except Exception as error:
            raise SiteFileError(
                f"{name} does not match the plan: {error}. Ask the site to make it again from its "
                "rows, or leave it out"
            ) from error
        by_site[file.site] = file
    if not by_site:
        raise SiteFileError(f"no file of the {ROUNDS[kind]} round was passed. Pass one per site")
    return [by_site[site] for site in sorted(by_site)]


def check_arrays(
    file: SiteFile, shapes: dict[str, tuple[int, ...]], counts: str, max_count: int
) -> None:
    """Raise ValueError if arrays have unexpected names, shapes or types.

    The array named ``counts`` must contain integers from 0 to ``max_count``, the others floats.
    """
    if differing := sorted(set(file.arrays) ^ set(shapes)):
        problem = "unexpected" if differing[0] in file.arrays else "missing"
        raise ValueError(f"the array {differing[0]!r} is {problem}")
    for name, shape in shapes.items():
        array = file.arrays[name]
        if array.shape != shape or array.dtype.kind != ("i" if name == counts else "f"):
            got = f"{array.shape} of {array.dtype}"
            raise ValueError(f"{name!r} must have shape {shape}; got {got}")
        if name == counts and ((array < 0) | (array > max_count)).any():
            raise ValueError(f"{name!r} must be from 0 to {max_count}")
