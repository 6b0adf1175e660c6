"""Files that leave a site: NumPy arrays and JSON, never anything that could run.

A file is an uncompressed zip archive of ``about.json`` and arrays in NumPy's own format, of
integers and float64. It is read without pickle, and every declared size is compared with the size
of the file before memory is allocated. The digest in it shows that a file was changed; it is not a
signature. The content of a file is checked against the plan: shapes, counts, and whether any rows
can have such means and second moments.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.federated.plan import Plan
from domainwise.jobs.store import replacing
from domainwise.model_files.persistence import check_archive
from domainwise.shift.watch import CLIP
from domainwise.tables.statistics import Sketch

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
#: Share of a bound, or of a second moment's trace, that rounding may exceed.
ROUNDING = 1e-9
#: Means of neighbouring values that a site sends of a column, at most, and the rows that each
#: stands for at least, in multiples of ``smallest_cell``.
BLOCKS, BLOCK_CELLS = 100, 2
#: Quantiles of distances between rows that a site sends, by kernel.
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
METRICS = {"rbf": "euclidean", "laplacian": "cityblock"}
#: Largest value of a column: its square is finite.
LARGEST = 1e150
#: Values of one site and of all others that are further apart than this are in other units.
MOST_APART = 1e6
#: A target may lie beyond the blocks of all sites by so many times their range.
MOST_BEYOND = 1e3
#: Rows of a site that has come late, at most: times all rows of the first round.
MOST_LATE = 10


class SiteFileError(ValueError):
    """A site's file cannot be used; the message says why and what to do."""


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
        """What the file contains, what it does not, and notes for the site alone.

        Returns
        -------
        lines : list of str
            What the file contains, and what it does not.
        """
        first = f"site {self.site!r}, {ROUNDS[self.kind]} round, plan {self.plan[:12]}"
        return [first, *self.content["words"], *(f"not in the file: {note}" for note in self.notes)]

    def digest(self) -> str:
        """SHA-256 of everything in the file.

        Returns
        -------
        digest : str
            SHA-256 of the content.
        """
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
        """Read what :meth:`save` has written; nothing in it is run, and all of it is checked."""
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
                raise ValueError("'site' and 'plan' must be strings, and 'content' an object")
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
        raise ValueError(f"{name!r} holds {dtype}: integers or float64 are expected")
    # A product of Python's integers, which do not overflow.
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
        raise TypeError(f"files must be SiteFile objects or paths, got {type(files).__name__}")
    gathered_files: dict[str, SiteFile] = {}
    for source in [files] if isinstance(files, (str, Path, SiteFile)) else files:
        file = source if isinstance(source, SiteFile) else SiteFile.load(source)
        name = f"the file of site {file.site!r}" if isinstance(source, SiteFile) else str(source)
        if file.kind != kind:
            raise SiteFileError(f"{name} holds {file.kind}, but {kind} are needed")
        if file.plan != plan.hash:
            raise SiteFileError(
                f"{name} was made with another plan ({file.plan[:12]}, this one is "
                f"{plan.hash[:12]}). Send this plan to the site and ask for a new file"
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
        raise SiteFileError(f"there is no file of {kind}: pass one file of each site")
    return [gathered_files[site] for site in sorted(gathered_files)]


def _check_content(file: SiteFile) -> None:
    """Refuse fields that no site writes beside its arrays."""
    if odd := sorted(map(str, set(file.content) ^ CONTENT[file.kind])):
        raise ValueError(f"the field {odd[0]!r} is missing or unexpected")
    words = file.content["words"]
    if not isinstance(words, list) or not all(isinstance(sentence, str) for sentence in words):
        raise ValueError("'words' must be a list of strings")
    if max(map(len, [file.site, *words])) > LONGEST:
        raise ValueError(f"'site' and 'words' must have at most {LONGEST} characters")
    check_counts("left_out", [file.content["left_out"]])


def check_counts(name: str, counts: Any, least: int = 0, *, zero: bool = False) -> list[int]:
    """Refuse what is not a list of counts from ``least`` to ``MOST_ROWS``, or zero."""
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError(f"{name!r} must hold integers")
    for count in counts:
        if not least <= count <= MOST_ROWS and not (zero and count == 0):
            raise ValueError(f"{name!r} holds {count}: counts are from {least} to {MOST_ROWS}")
    return counts


def check_arrays(
    file: SiteFile, shapes: dict[str, tuple[int, ...]], counts: str, *, only: bool = False
) -> dict[str, Array]:
    """Refuse arrays of other shapes or types: ``counts`` holds integers, all others float64.

    With ``only``, arrays of other names are refused, too.
    """
    if odd := sorted(set(file.arrays) ^ set(shapes) if only else set(shapes) - {*file.arrays}):
        raise ValueError(f"the array {odd[0]!r} is missing or unexpected")
    for name, shape in shapes.items():
        array = file.arrays[name]
        if array.shape != shape or array.dtype.kind != ("i" if name == counts else "f"):
            raise ValueError(f"{name!r} has shape {array.shape} of {array.dtype}, not {shape}")
    if (file.arrays[counts] < 0).any():
        raise ValueError(f"{counts!r} holds negative counts")
    return file.arrays


# Values that no rows can have.


def check_statistics(plan: Plan, file: SiteFile) -> None:
    """Refuse statistics that no table of the plan can have."""
    content, arrays, least = file.content, file.arrays, plan.smallest_cell
    p, n_classes = len(plan.schema.numbers) + (plan.classes is None), len(plan.classes or "-")
    n = check_counts("rows", [content["rows"]], least)[0]
    classes = check_counts("classes", content["classes"], least, zero=True)
    if len(classes) != n_classes or sum(classes) != n:
        raise ValueError(f"'classes' must be {n_classes} counts that add up to 'rows', {n}")
    categories = content["categories"]
    if not isinstance(categories, list) or len(categories) != len(plan.schema.categorical):
        raise ValueError("'categories' must be a list with counts for each text column")
    for counts in categories:
        if not isinstance(counts, dict):
            raise ValueError("'categories' must hold counts by category for each text column")
        if sum(check_counts("categories", list(counts.values()), least)) > n:
            raise ValueError(f"'categories' of a column add up to more than the {n} rows")
    if not isinstance(content["checksum"], str) or len(content["checksum"]) != 4:
        raise ValueError("'checksum' must be a string of four characters")
    lengths = check_arrays(file, {"lengths": (p,)}, "lengths")["lengths"]
    if (lengths > BLOCKS).any():
        raise ValueError(f"'lengths' must be at most {BLOCKS}")
    shapes = {"lengths": (p,), "numbers": (3, p), "distances": (len(METRICS), len(SHARES))}
    check_arrays(file, {**shapes, "blocks": (int(lengths.sum()),)}, "lengths", only=True)
    counts, means, squares = arrays["numbers"]
    if ((counts < least) & (counts != 0)).any() or (counts > n).any() or (counts % 1).any():
        raise ValueError(f"'numbers' must have counts of 0, or from {least} to {n}")
    if (arrays["distances"] < 0).any() or (np.diff(arrays["distances"], axis=1) < 0).any():
        raise ValueError("'distances' must not be negative, and must not decrease")
    if max(np.abs(a).max(initial=0.0) for a in (arrays["blocks"], arrays["distances"])) > LARGEST:
        raise ValueError(f"'blocks' and 'distances' must be at most {LARGEST:.0e}")
    for j, (values, weights) in enumerate(sketches(file)):
        if (np.diff(values) < 0).any() or (len(values) > 0) != (counts[j] > 0):
            raise ValueError("'blocks' of a column must not decrease, and must not be missing")
        if not len(values):
            continue
        size = np.abs(values).max() + np.finfo(float).tiny
        # Blocks differ by a row in size: their mean is the column's up to one row of each.
        off = np.ptp(values) * len(values) / counts[j] + 1e-6 * size
        if abs(means[j] - values.mean()) > off:
            raise ValueError("'numbers' has a mean that is not the mean of the column's 'blocks'")
        between = float((weights * (values - values.mean()) ** 2).sum())
        slack = 2 * off * np.ptp(values) * counts[j] + 1e-6 * counts[j] * size**2
        if not max(between - slack, 0.0) <= squares[j] <= LARGEST**2:
            raise ValueError("'numbers' has squared deviations smaller than those of the 'blocks'")


def check_units(plan: Plan, sites: list[SiteFile]) -> None:
    """Refuse a site whose values are far beyond those of all others: they would all look alike."""
    names = [*plan.schema.numbers, *([plan.schema.target] if plan.classes is None else [])]
    counts, means, squares = np.array([file.arrays["numbers"] for file in sites]).swapaxes(0, 1)
    size = np.abs(means) + np.sqrt(squares / np.maximum(counts, 1))
    for s, file in enumerate(sites if len(sites) > 1 else []):
        others = np.delete(size, s, axis=0).max(axis=0)
        far = np.flatnonzero((others > 0) & (size[s] > MOST_APART * others))
        if len(far):
            raise SiteFileError(
                f"the file of site {file.site!r} does not fit the others: values of "
                f"{names[far[0]]!r} are about {size[s][far[0]]:.1e}, and at most "
                f"{others[far[0]]:.1e} at other sites. Ask the site to check the unit of this "
                "column, or leave its file out"
            )


def sketches(file: SiteFile) -> list[Sketch]:
    """Means of blocks of each column, and the rows that each stands for."""
    parts = np.split(file.arrays["blocks"], np.cumsum(file.arrays["lengths"]))[:-1]
    counts = file.arrays["numbers"][0]
    return [(v, np.full(len(v), n / max(len(v), 1))) for v, n in zip(parts, counts, strict=True)]


def symmetric(packed: Array, width: int) -> Iterator[Array]:
    """Whole matrices from their upper halves."""
    for half in packed:
        second = np.zeros((width, width))
        second[np.triu_indices(width)] = half
        yield second + np.triu(second, 1).T


def check_moments(plan: Plan, file: SiteFile) -> None:
    """Refuse moments that no rows of the plan can have."""
    domains, watch = file.content["domains"], plan.watch
    strings = isinstance(domains, list) and all(isinstance(name, str) for name in domains)
    if not strings or len(set(domains)) < len(domains):
        raise ValueError("'domains' must be a list of different strings")
    if type(file.content["accepted"]) is not bool:
        raise ValueError("'accepted' must be true or false")
    shape = (len(plan.classes or "-"), len(domains))
    shapes: dict[str, tuple[int, ...]] = {"counts": shape, "freedom": shape[1:]}
    shapes["watch"] = (len(domains), watch.n_totals)
    n_seconds = shape[0] if plan.part("by_class") else 1
    for i, nystrom in enumerate(plan.maps):
        width = plan.width(nystrom)
        shapes |= {f"sums{i}": (*shape, width), f"second{i}": (n_seconds, width * (width + 1) // 2)}
    counts = check_arrays(file, shapes, "counts", only=True)["counts"]
    check_counts("counts", counts.ravel().tolist(), plan.smallest_cell, zero=True)
    n, in_plan = int(counts.sum()), int(plan.learnt.n_rows)
    if not counts.any(axis=0).all():
        raise ValueError("'counts' has a domain without rows")
    if n > in_plan * (1 if file.site in plan.part("sites") else MOST_LATE):
        raise ValueError(
            f"'counts' has {n} rows, and all sites together had {in_plan} in the first round"
        )
    _check_watch(plan, file, counts.sum(axis=0))
    for i, nystrom in enumerate(plan.maps):
        _check_map(file, i, *_bounds(plan, nystrom))


def _check_watch(plan: Plan, file: SiteFile, rows: Array) -> None:
    """Refuse summaries of domains that no rows can have."""
    totals, n = plan.watch.parts(file.arrays["watch"]), rows[:, None]
    if (totals["rows"] != n).any():
        raise ValueError("'watch' has other numbers of rows than 'counts'")
    for name in ("missing", "beyond", "unknown"):
        if (totals[name] < 0).any() or (totals[name] > n).any() or (totals[name] % 1).any():
            raise ValueError(f"'watch' has counts ({name}) that are negative, or beyond the rows")
    most = n * (1 + ROUNDING)
    if (np.abs(totals["level"]) > CLIP * most).any() or (totals["spread"] > CLIP**2 * most).any():
        raise ValueError(f"'watch' has standardised values beyond {CLIP:g}")
    if (totals["level"] ** 2 > n * totals["spread"] * (1 + 1e-6) + 1e-6).any():
        raise ValueError("'watch' has squares that are smaller than their sums allow")
    norms = totals["norms"]
    if (norms < 0).any() or (norms > most * (1 + 1e-6)).any():
        raise ValueError("'watch' has squared norms of kernel features beyond 1 for each row")
    if ((totals["kernel"] ** 2).sum(axis=1, keepdims=True) > n * norms * (1 + 1e-6) + 1e-6).any():
        raise ValueError("'watch' has kernel means that its norms do not allow")
    freedom, points = file.arrays["freedom"], max(totals["kernel"].shape[1], 1)
    if (freedom <= 0).any() or (freedom > points * (1 + 1e-6)).any():
        raise ValueError(f"'freedom' must be positive, and at most {points}")


def _bounds(plan: Plan, nystrom: Any) -> tuple[Array, Array]:
    """The lowest and highest value that a row can have in each column of a map's moments."""
    m, width = nystrom.n_features, plan.width(nystrom)
    size = np.ones(width)
    if nystrom.triangle is None:
        size[:m] = np.sqrt(2.0 / m)
    low, high = -size, size
    if plan.classes is None:  # the last column is the target itself
        ends = plan.part("target_range")
        margin = MOST_BEYOND * (np.ptp(ends) + np.finfo(float).tiny)
        low[-1], high[-1] = ends[0] - margin, ends[1] + margin
    return low, high


def _check_map(file: SiteFile, i: int, low: Array, high: Array) -> None:
    """Refuse sums and second moments of columns that no rows between these bounds can have."""
    counts, sums = file.arrays["counts"][:, :, None], file.arrays[f"sums{i}"]
    slack = ROUNDING * (counts + 1) * np.maximum(np.abs(low), np.abs(high))
    if ((sums < counts * low - slack) | (sums > counts * high + slack)).any():
        raise ValueError(f"'sums{i}' has means beyond what a row can have in this map")
    # About their mean, squares are at most those of rows at the ends: (high - mean)(mean - low).
    n = counts.sum(axis=1)
    means = sums.sum(axis=1) / np.maximum(n, 1)
    room = n * (high - means) * (means - low) + ROUNDING * n * (high - low) ** 2
    packed = file.arrays[f"second{i}"]
    for c, second in enumerate(symmetric(packed, len(low))):
        allowed = room[c] if len(packed) > 1 else room.sum(axis=0)
        if (np.diagonal(second) > allowed).any():
            raise ValueError(f"'second{i}' is larger than that of any rows in this map")
        shift = ROUNDING * abs(np.trace(second)) + np.finfo(float).tiny
        scale = np.sqrt(np.maximum(np.diagonal(second), 0.0) + shift)
        try:
            np.linalg.cholesky(second / np.outer(scale, scale) + 1e-7 * np.eye(len(second)))
        except np.linalg.LinAlgError:
            raise ValueError(f"'second{i}' is not the second moment of any rows") from None
