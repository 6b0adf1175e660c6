"""Files that leave a site: NumPy arrays and JSON, never anything that could run.

A file is an uncompressed zip archive of ``about.json`` and arrays in NumPy's own format, of whole
numbers and float64. It is read without pickle, and every size is compared with the file's own
before memory is asked for. The digest in it tells of a file that was changed; it is no signature.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.federated.plan import Plan
from domainwise.jobs.store import replacing
from domainwise.model_files.persistence import check_archive

FORMAT, ABOUT = 2, "about.json"
ROUNDS = {"statistics": "first", "moments": "second"}
#: What stands beside the arrays of each round.
CONTENT = {
    "statistics": {"rows", "classes", "categories", "left_out", "checksum", "words"},
    "moments": {"domains", "left_out", "accepted", "words"},
}
#: Rows of a site, at most.
MOST_ROWS = 10**10
#: Characters of a name and of a sentence, at most.
LONGEST = 2000


class SiteFileError(ValueError):
    """A site's file that cannot be used, with words about why."""


@dataclass(frozen=True)
class SiteFile:
    """What a site sends: arrays, and words and counts beside them.

    :func:`~domainwise.federated.statistics` and :func:`~domainwise.federated.moments` make it.
    """

    kind: str  #: "statistics" of the first round or "moments" of the second
    site: str
    plan: str  #: hash of the plan that it was made by
    content: dict[str, Any]
    arrays: dict[str, Array]
    #: What was left out or merged, for the site alone: it is not written.
    notes: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """What the file contains, what it does not, and what the site alone is told."""
        first = f"site {self.site!r}, {ROUNDS[self.kind]} round, plan {self.plan[:12]}"
        return [first, *self.content["words"], *(f"not in the file: {note}" for note in self.notes)]

    def digest(self) -> str:
        """SHA-256 of everything in the file."""
        digest = hashlib.sha256(json.dumps(self._about(), sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = _stored(self.arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the file in one step."""
        about = json.dumps({**self._about(), "digest": self.digest()}, allow_nan=False)
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(ABOUT, about)
            for name, array in self.arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, _stored(array), (1, 0), allow_pickle=False)

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read what :meth:`save` has written; nothing in it is run, and nothing taken on trust."""
        size = Path(path).stat().st_size
        try:
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, size)
                about = dict(json.loads(archive.read(ABOUT)))
                names = [name for name in archive.namelist() if name != ABOUT]
                arrays = {n.removesuffix(".npy"): _array(archive.read(n), n) for n in names}
            number, digest = about.pop("format"), about.pop("digest")
            if number != FORMAT:
                raise ValueError(f"it has format {number}, and this version reads format {FORMAT}")
            if about.keys() != {"kind", "site", "plan", "content"} or about["kind"] not in ROUNDS:
                raise ValueError(f"{ABOUT} must have the fields kind, site, plan and content")
            if [type(about[name]) for name in ("site", "plan", "content")] != [str, str, dict]:
                raise ValueError("'site' and 'plan' must be texts, and 'content' an object")
            file = cls(**about, arrays=arrays)
            if file.digest() != digest:
                raise ValueError("it was changed after it was written: its digest is another")
        except Exception as error:
            raise SiteFileError(
                f"{path} is damaged, or not a file of a site: {error}. Ask the site to make it "
                "again with the same version of domainwise"
            ) from error
        return file

    def _about(self) -> dict[str, Any]:
        names = ("kind", "site", "plan", "content")
        return {"format": FORMAT, **{name: getattr(self, name) for name in names}}


#: Files of sites, or where they are; one of them may stand alone.
SiteFiles = SiteFile | str | Path | Iterable[SiteFile | str | Path]


def _stored(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind in "iu" else "<f8")


def _array(content: bytes, name: str) -> Array:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name!r} is an array of another version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.str not in ("<f8", "<i8") or fortran:
        raise ValueError(f"{name!r} holds {dtype}: whole numbers or float64 are expected")
    # Of Python's integers, which do not overflow.
    if min(shape, default=0) < 0 or 8 * math.prod(shape) != len(content) - stream.tell():
        raise ValueError(f"{name!r} declares the shape {shape}, which its bytes do not fill")
    array = np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} holds NaN or infinite values")
    return array


def gathered(
    plan: Plan, files: SiteFiles, kind: str, check: Callable[[Plan, SiteFile], None]
) -> list[SiteFile]:
    """Files of one round of a plan, or paths of such, checked and in the order of their sites."""
    if not hasattr(plan, "hash"):
        raise TypeError(f"plan must be a Plan, got {type(plan).__name__}")
    if not isinstance(files, (str, Path, SiteFile, Iterable)):
        raise TypeError(f"files must be files of sites, or paths, got {type(files).__name__}")
    gathered_files: dict[str, SiteFile] = {}
    for given in [files] if isinstance(files, (str, Path, SiteFile)) else files:
        file = given if isinstance(given, SiteFile) else SiteFile.load(given)
        name = f"the file of site {file.site!r}" if isinstance(given, SiteFile) else str(given)
        if file.kind != kind:
            raise SiteFileError(f"{name} holds {file.kind}, where {kind} are needed")
        if file.plan != plan.hash:
            raise SiteFileError(
                f"{name} was made with another plan ({file.plan[:12]}, this one is "
                f"{plan.hash[:12]}): give the site this plan, and ask for a new file"
            )
        if file.site in gathered_files:
            raise SiteFileError(f"site {file.site!r} appears twice: leave one of its files out")
        try:
            _check_content(file)
            check(plan, file)
        except Exception as error:
            raise SiteFileError(
                f"{name} does not fit the plan: {error}. Ask the site to make it again from its "
                "rows, or leave it out"
            ) from error
        gathered_files[file.site] = file
    if not gathered_files:
        raise SiteFileError(f"there is no file of {kind}")
    return [gathered_files[site] for site in sorted(gathered_files)]


def _check_content(file: SiteFile) -> None:
    """Refuse fields that no site writes beside its arrays."""
    odd = sorted(map(str, set(file.content) ^ CONTENT[file.kind]))
    if odd:
        raise ValueError(f"the field {odd[0]!r} is missing, or too much")
    words = file.content["words"]
    if not isinstance(words, list) or not all(isinstance(sentence, str) for sentence in words):
        raise ValueError("'words' must be a list of texts")
    if max(map(len, [file.site, *words])) > LONGEST:
        raise ValueError(f"'site' and 'words' must have at most {LONGEST} characters")
    check_counts("left_out", [file.content["left_out"]])


def check_counts(name: str, counts: Any, least: int = 0, *, zero: bool = False) -> list[int]:
    """Refuse what is not a list of counts from ``least`` to ``MOST_ROWS``, or zero."""
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError(f"{name!r} must hold whole numbers")
    for count in counts:
        if not least <= count <= MOST_ROWS and not (zero and count == 0):
            raise ValueError(f"{name!r} holds {count}: counts from {least} to {MOST_ROWS} are sent")
    return counts


def check_arrays(
    file: SiteFile, shapes: dict[str, tuple[int, ...]], counts: str, *, only: bool = False
) -> dict[str, Array]:
    """Refuse arrays of other shapes or types; one holds whole numbers, all others do not.

    With ``only``, other arrays are refused, too.
    """
    odd = sorted(set(file.arrays) ^ set(shapes)) if only else sorted(set(shapes) - {*file.arrays})
    if odd:
        raise ValueError(f"the array {odd[0]!r} is missing, or too much")
    for name, shape in shapes.items():
        array = file.arrays[name]
        if array.shape != shape or array.dtype.kind != ("i" if name == counts else "f"):
            raise ValueError(f"{name!r} has shape {array.shape} of {array.dtype}, not {shape}")
    if (file.arrays[counts] < 0).any():
        raise ValueError(f"{counts!r} holds negative counts")
    return file.arrays
