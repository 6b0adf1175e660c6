"""Saving models to a file and loading them without running code from it.

A model file is a zip archive in the format of skops, with one more member, ``domainwise.json``: the
version that wrote it, a digest of the rest, and the methods that worked when it was written. This
module also checks what skops does not: archives that unpack to more than their size, older formats
of skops, which trust more types than they declare, types and values
(:mod:`~domainwise.model_files.types`, :mod:`~domainwise.model_files.values`).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn import config_context
from sklearn.exceptions import InconsistentVersionWarning

from domainwise import __version__
from domainwise.arrays import Estimator, is_dask, is_tensor
from domainwise.checks import needs_extra, warn_caller
from domainwise.checks.arguments import check_arguments
from domainwise.jobs.store import replacing
from domainwise.model_files import types, values

#: Format of the files written here, and the oldest one that is read.
FORMAT, OLDEST_FORMAT = 4, 3
#: First protocol of skops that declares all trusted types.
SKOPS_PROTOCOL = 2
HEADER, SCHEMA = "domainwise.json", "schema.json"
#: Methods that are called with artificial rows, before a model is written and after it is read.
METHODS = ("predict", "predict_proba", "decision_function", "transform")
#: With more columns than this, methods are not called.
MOST_COLUMNS = 100_000
NAME_ANOTHER = "Pass a file that domainwise fit or domainwise.save has written"


class ModelFileError(ValueError):
    """A model that cannot be saved, or a file that cannot be loaded."""


def save(model: Estimator, path: str | Path, *, info: dict[str, Any] | None = None) -> None:
    """Save a fitted model, or a pipeline with one, to a file.

    The file contains data only: models that contain functions, such as a callable kernel, are
    refused, and so are types that have not been reviewed. It is written to a temporary file first,
    which replaces ``path`` when it is complete.

    Parameters
    ----------
    model : estimator
        An estimator of domainwise, or a pipeline of those and of common ones of scikit-learn.
    path : path-like
        By convention ``something.skops``.
    info : dict, default=None
        JSON values, which :func:`read_info` reads without loading the model.

    Raises
    ------
    ModelFileError
        If the model holds something that cannot be saved.

    See Also
    --------
    load : Loads a model from a file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import domainwise
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> dcm = domainwise.DCM().fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     domainwise.save(dcm, Path(folder) / "model.skops")
    ...     again = domainwise.load(Path(folder) / "model.skops")
    >>> bool((again.transform(data.data) == dcm.transform(data.data)).all())
    True
    """
    rules: dict[str, list[Any]] = {"path": [str, PathLike], "info": [dict, None]}
    check_arguments("save", rules, path=path, info=info)
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}; pass a fitted instance of it")
    if not hasattr(model, "get_params"):
        raise ModelFileError(
            f"{type(model).__name__} cannot be saved: it is neither an estimator nor a pipeline"
        )
    with needs_extra("saving models", "cli"):
        import skops.io
    _refuse_functions(model)
    try:
        values.check_values(model)
        content = skops.io.dumps(model)
    except Exception as error:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "a part of it refers to itself, as after set_fit_request; fit it without that"
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {reason}") from error
    with zipfile.ZipFile(io.BytesIO(content)) as written:
        schema = json.loads(written.read(SCHEMA))
        forbidden = types.forbidden_types(schema)
        if forbidden:
            raise ModelFileError(f"{type(model).__name__} cannot be saved: {_about(forbidden)}")
        files = types.rename(schema)
        # skops indents the schema, which is then most of the file of a small model.
        parts = {SCHEMA: json.dumps(schema, separators=(",", ":")).encode()}
        parts |= {new: written.read(old) for old, new in files.items()}
    failures = _failures(model, METHODS)
    header: dict[str, Any] = {
        "format": FORMAT,
        "model": type(model).__name__,
        "versions": {
            "domainwise": __version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "skops": skops.__version__,
            "python": platform.python_version(),
        },
        "works": [name for name in METHODS if name not in failures],
        "training_rows": values.training_rows(model),
        "training_targets": values.training_targets(model),
        "info": json.loads(json.dumps(info or {})),
    }
    header["sha256"] = digest(parts, header["info"])
    with replacing(path) as temporary:
        temporary.write_bytes(packed({HEADER: json.dumps(header, indent=2).encode(), **parts}))


def load(path: str | Path) -> Any:
    """Load a model that :func:`save` has written.

    Everything in the file is checked before anything is built: no code from the file runs, whoever
    wrote it.

    Parameters
    ----------
    path : path-like
        The file. See the example of :func:`save`.

    Returns
    -------
    model : estimator

    Raises
    ------
    ModelFileError
        If the file is damaged, of a later version, not a model file, or contains types that
        are not allowed in models.

    See Also
    --------
    save : Writes the file.
    trusted_types : Types that files may contain.
    """
    with needs_extra("loading models", "cli"):
        import skops.io
    with _opened(path) as (header, archive):
        versions, parts = header["versions"], {n: archive.read(n) for n in archive.namelist()}
        if header["sha256"] != digest(parts, header["info"]):
            raise ValueError("it was changed after it was written")
        schema = json.loads(parts[SCHEMA])
        types.localize(schema)
        forbidden = types.forbidden_types(schema)
        removed = [name for name in forbidden if name.startswith("domainwise.")]
        if removed or int(header["format"]) < OLDEST_FORMAT:
            raise ModelFileError(
                f"{path} was written by domainwise {versions['domainwise']} in a format that "
                f"version {__version__} cannot read"
                f"{f': it holds {removed[0]}' if removed else ''}; fit the model again"
            )
        if forbidden:
            raise ModelFileError(f"{path} is not loaded: {_about(forbidden)}")
        if schema["protocol"] < SKOPS_PROTOCOL:
            raise ValueError(f"protocol {schema['protocol']} of skops is too old")
        types.check_numbers(schema)
        _check_trees(schema, parts)
        parts[SCHEMA] = json.dumps(schema).encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            model = skops.io.loads(packed(parts), trusted=types.TRUSTED)
        values.check_values(model)
        failures = _failures(model, header["works"])
        if failures:
            raise ValueError(f"its parts do not fit together: {failures.popitem()[1]}")
    if versions.get("scikit-learn") != sklearn.__version__:
        warn_caller(
            f"{path} was written with scikit-learn {versions.get('scikit-learn')}, and this is "
            f"{sklearn.__version__}: predictions may differ. Fit the model again to be sure"
        )
    return model


def read_info(path: str | Path) -> dict[str, Any]:
    """Read the description in a model file, without building the model.

    It has ``format``, ``versions``, ``model`` (type), ``training_rows`` (attributes that contain
    training rows; not in files of format 3), ``training_targets`` (those that contain
    targets of training rows and predictions for them; not in older files) and ``info`` as passed to
    :func:`save`.
    """
    with _opened(path) as (header, _):
        return header


def packed(parts: dict[str, bytes]) -> bytes:
    """Return an uncompressed zip archive of these parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def digest(parts: dict[str, bytes], info: dict[str, Any]) -> str:
    """Return the SHA-256 of a model file without its header, and of its description."""
    total = hashlib.sha256(json.dumps(info, sort_keys=True).encode())
    for name in sorted(parts.keys() - {HEADER}):
        total.update(f"\0{name}\0{len(parts[name])}\0".encode())
        total.update(parts[name])
    return total.hexdigest()


@config_context(transform_output="default")
def _failures(model: Any, methods: Sequence[str]) -> dict[str, Exception]:
    """Errors that a model's methods raise for a few artificial rows, by method."""
    n_columns = getattr(model, "n_features_in_", None)
    if not isinstance(n_columns, (int, np.integer)) or not 0 < n_columns <= MOST_COLUMNS:
        return {name: ValueError("the number of columns is not known") for name in methods}
    rows: Any = np.array([[0.0], [1.0], [-1.0], [1e6]]) * np.ones(int(n_columns))
    failed: dict[str, Exception] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if hasattr(model, "feature_names_in_"):
            with suppress(ImportError):
                import pandas as pd

                rows = pd.DataFrame(rows, columns=model.feature_names_in_)
        for name in methods:
            try:
                getattr(model, name)(rows)
            except Exception as error:
                failed[name] = error
    return failed


def _refuse_functions(model: Any) -> None:
    """Refuse arguments that are functions, tensors or Dask collections."""
    for name, value in {"the model": model, **model.get_params(deep=True)}.items():
        parts = [value, *vars(value).values()] if hasattr(value, "get_params") else [value]
        if callable(value) and not isinstance(value, type):
            raise ModelFileError(
                f"{name} is the function {getattr(value, '__name__', value)!r}: functions cannot "
                "be saved, because loading one would run code; use a named kernel or scorer"
            )
        if any(map(is_dask, parts)):
            raise ModelFileError(
                f'{name} holds Dask collections: call to("numpy") on the fitted projection first'
            )
        if is_tensor(value):
            raise ModelFileError(f"{name} is a tensor: pass it as an array to save the model")


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[dict[str, Any], zipfile.ZipFile]]:
    """Open a model file, and read its header; errors about it become ModelFileErrors."""
    if not Path(path).is_file():
        problem = "a folder" if Path(path).is_dir() else "no such file"
        raise ModelFileError(f"{path}: {problem}. {NAME_ANOTHER}")
    content = Path(path).read_bytes()
    if content[:2] != b"PK":
        raise ModelFileError(
            f"{path} is {'not a model file' if content else 'empty'}. {NAME_ANOTHER} (pickles are "
            "not loaded: they could run any code)"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_archive(archive, len(content))
            if not {HEADER, SCHEMA} <= set(archive.namelist()):
                raise ModelFileError(f"{path} was not written by domainwise. {NAME_ANOTHER}")
            header = dict(json.loads(archive.read(HEADER)))
            if int(header["format"]) > FORMAT:
                raise ModelFileError(
                    f"{path} was written by domainwise {header['versions']['domainwise']} in "
                    f"format {header['format']}; this is {__version__}, which reads up to format "
                    f'{FORMAT}: pip install --upgrade "domainwise[cli]"'
                )
            yield header, archive
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{path} is damaged, or not a model file: {error}") from error


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive whose parts could be larger than the file."""
    if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
        raise ValueError("it is compressed")
    # Parts that overlap, or declare a larger size, add up to more than the file.
    if sum(part.file_size for part in archive.infolist()) > size:
        raise ValueError("its parts are larger than the file")


def _check_trees(schema: Any, parts: dict[str, bytes]) -> None:
    """Check trees before skops builds them."""

    def plain(node: dict[str, Any]) -> Any:
        if node["__loader__"] == "JsonNode":
            return json.loads(node["content"])
        return np.load(io.BytesIO(parts[node["file"]]), allow_pickle=False)

    for node in types.nodes(schema):
        if node["__loader__"] == "TreeNode":
            state = {name: plain(part) for name, part in node["content"]["content"].items()}
            values.check_tree(state, *map(plain, node["__reduce__"]["args"]["content"]))


def _about(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if any(name.startswith(("lightgbm.", "catboost.")) for name in names):
        return (
            f"it holds {shown}. Models of LightGBM and CatBoost are not part of model files, "
            "because their compiled readers trust what they read: leave these members out, or use "
            "pickle for files that only you write and read"
        )
    return f"it holds {shown}, which cannot be part of a model of domainwise"
