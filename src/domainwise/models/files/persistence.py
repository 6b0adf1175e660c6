"""Saving models to files, and loading them without running code from the files.

A model file is a zip archive in the skops format with an additional member, ``domainwise.json``:
the version that wrote the file, a digest of the other members, and the methods that worked when the
file was written. :func:`load` rejects some files that skops accepts: archives that could unpack to
more than their own size; files in older skops formats, which do not declare all types; and files
with types or values that the modules ``types`` and ``values`` in this folder do not allow.
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
from sklearn.pipeline import Pipeline

from domainwise import __version__
from domainwise.base.arguments import check_arguments
from domainwise.base.arrays import Estimator
from domainwise.base.files import replacing
from domainwise.base.messages import listed, needs_extra, warn_caller
from domainwise.base.process import filtered_warnings
from domainwise.models.files import types, values
from domainwise.tables.schema import ReadColumns, Schema

#: Format of the files; files in other formats are rejected.
FORMAT = 7
#: First skops protocol that declares all trusted types.
SKOPS_PROTOCOL = 2
HEADER, SCHEMA = "domainwise.json", "schema.json"
#: Methods that are called with artificial rows, before a model is written and after it is read.
METHODS = ("predict", "predict_proba", "decision_function", "transform")
#: Methods of models with more columns than this are not called.
MAX_COLUMNS = 100_000
ADVICE = "Pass a file written by 'domainwise fit' or domainwise.save"


class ModelFileError(ValueError):
    """Raised for a model that cannot be saved, or a file that cannot be loaded."""


def save(model: Estimator, path: str | Path, *, info: dict[str, Any] | None = None) -> None:
    """Save a fitted model, or a pipeline that contains one, to a file.

    The file contains only data: functions, such as a callable kernel, and types that have not been
    reviewed cannot be saved. An existing file is replaced only when the new one is complete.

    Parameters
    ----------
    model : estimator
        A domainwise estimator, or a pipeline of domainwise and common scikit-learn estimators.
    path : path-like
        File to write, by convention with the extension ``.skops``.
    info : dict, default=None
        JSON values, which :func:`read_info` reads without loading the model.

    Raises
    ------
    ModelFileError
        If the model contains something that cannot be saved.

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
    ...     loaded = domainwise.load(Path(folder) / "model.skops")
    >>> bool((loaded.transform(data.data) == dcm.transform(data.data)).all())
    True
    """
    constraints: dict[str, list[Any]] = {"path": [str, PathLike], "info": [dict, None]}
    check_arguments("save", constraints, path=path, info=info)
    if isinstance(model, type):
        raise TypeError(f"model must be a fitted instance; got the class {model.__name__}")
    if not hasattr(model, "get_params"):
        raise ModelFileError(
            f"{type(model).__name__} cannot be saved: it is neither an estimator nor a pipeline. "
            "Pass a fitted estimator"
        )
    with needs_extra("saving models", "cli"):
        import skops.io
    try:
        values.check_values(model)
        content = skops.io.dumps(model)
    except Exception as error:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "an attribute refers to the model itself. Fit it without set_fit_request"
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {reason}") from error
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema = json.loads(archive.read(SCHEMA))
        if forbidden_names := types.forbidden_types(schema):
            reason = _describe_forbidden(forbidden_names)
            raise ModelFileError(f"{type(model).__name__} cannot be saved: {reason}")
        new_names = types.shorten_names(schema)
        # With the indentation of skops, the schema would be most of a small model file.
        members = {SCHEMA: json.dumps(schema, separators=(",", ":")).encode()}
        members |= {new: archive.read(old) for old, new in new_names.items()}
    errors_by_method = _method_errors(model, METHODS)
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
        "works": [name for name in METHODS if name not in errors_by_method],
        "training_rows": values.training_rows(model),
        "training_targets": values.training_targets(model),
        "info": json.loads(json.dumps(info or {})),
    }
    header["sha256"] = digest(members, header["info"])
    members = {HEADER: json.dumps(header, indent=2).encode(), **members}
    with replacing(path) as temp_path:
        temp_path.write_bytes(pack_archive(members))


def load(path: str | Path) -> Any:
    """Load a model that was written by :func:`save`.

    Types are checked before any object is built, and values before the model is returned. No code
    from the file is run. A model that ``domainwise fit`` has written converts the columns of a data
    frame first, as it converted those of its training table.

    Parameters
    ----------
    path : path-like
        File to read. See the example in :func:`save`.

    Returns
    -------
    model : estimator

    Raises
    ------
    ModelFileError
        If the file is damaged, was written in another format, is not a model file, or contains
        types that are not allowed in models.

    See Also
    --------
    save : Writes the file.
    trusted_types : Types that files may contain.
    """
    model, table_schema = load_saved(path)
    if table_schema is None:
        return model
    return Pipeline([("read", ReadColumns(table_schema)), *model.steps])


def load_saved(path: str | Path) -> tuple[Any, dict[str, Any] | None]:
    """Load a model without the step that reads columns, and the schema of its training table.

    The schema is None for a model that was not fitted to a table.
    """
    with needs_extra("loading models", "cli"):
        import skops.io
    with _open_model_file(path) as (header, archive):
        versions, members = header["versions"], {n: archive.read(n) for n in archive.namelist()}
        if header["sha256"] != digest(members, header["info"]):
            raise ValueError("it was changed after it was written")
        schema = json.loads(members[SCHEMA])
        types.localize(schema)
        forbidden_names = types.forbidden_types(schema)
        if forbidden_names:
            raise ModelFileError(f"{path} was not loaded: {_describe_forbidden(forbidden_names)}")
        if schema["protocol"] < SKOPS_PROTOCOL:
            raise ValueError(f"its skops protocol ({schema['protocol']}) is too old")
        types.check_identifiers(schema)
        _check_trees(schema, members)
        members[SCHEMA] = json.dumps(schema).encode()
        with filtered_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            model = skops.io.loads(pack_archive(members), trusted=types.TRUSTED)
        values.check_values(model)
        table_schema = header["info"].get("schema")
        try:
            Schema.from_dict(table_schema)
        except (AttributeError, TypeError):  # a description by the user
            table_schema = None
        if errors_by_method := _method_errors(model, header["works"]):
            raise ValueError(f"its attributes are inconsistent: {errors_by_method.popitem()[1]}")
    if versions.get("scikit-learn") != sklearn.__version__:
        warn_caller(
            f"{path} was written with scikit-learn {versions.get('scikit-learn')}, but version "
            f"{sklearn.__version__} is installed. Predictions may differ. Fit the model again to "
            "avoid this"
        )
    return model, table_schema


def read_info(path: str | Path) -> dict[str, Any]:
    """Read the description in a model file, without building the model.

    It contains ``format``, ``versions``, ``model`` (type), ``info`` (passed to :func:`save`) and
    the names of attributes that contain training rows (``training_rows``) or training targets and
    predictions (``training_targets``).
    """
    with _open_model_file(path) as (header, _):
        return header


def pack_archive(members: dict[str, bytes]) -> bytes:
    """Return an uncompressed zip archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def digest(members: dict[str, bytes], info: dict[str, Any]) -> str:
    """Return the SHA-256 of all members of a model file except the header, and of ``info``."""
    hasher = hashlib.sha256(json.dumps(info, sort_keys=True).encode())
    for name in sorted(members.keys() - {HEADER}):
        hasher.update(f"\0{name}\0{len(members[name])}\0".encode())
        hasher.update(members[name])
    return hasher.hexdigest()


@config_context(transform_output="default")
def _method_errors(model: Any, methods: Sequence[str]) -> dict[str, Exception]:
    """Call methods of a model with a few artificial rows, and return the errors by method."""
    n_columns = getattr(model, "n_features_in_", None)
    if not isinstance(n_columns, (int, np.integer)) or not 0 < n_columns <= MAX_COLUMNS:
        return dict.fromkeys(methods, ValueError("the number of columns is unknown or too large"))
    if hasattr(model, "finalize") and not hasattr(model, "expansions_"):
        return dict.fromkeys(methods, ValueError("the search has not run; merge may add sums"))
    artificial_rows: Any = np.array([[0.0], [1.0], [-1.0], [1e6]]) * np.ones(int(n_columns))
    errors_by_method: dict[str, Exception] = {}
    with filtered_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if hasattr(model, "feature_names_in_"):
            with suppress(ImportError):
                import pandas as pd

                artificial_rows = pd.DataFrame(artificial_rows, columns=model.feature_names_in_)
        for name in methods:
            try:
                getattr(model, name)(artificial_rows)
            except Exception as error:
                errors_by_method[name] = error
    return errors_by_method


@contextmanager
def _open_model_file(path: str | Path) -> Iterator[tuple[dict[str, Any], zipfile.ZipFile]]:
    """Open a model file and read its header; every error becomes a ModelFileError."""
    if not Path(path).is_file():
        problem = "is a folder" if Path(path).is_dir() else "does not exist"
        raise ModelFileError(f"{path} {problem}. {ADVICE}")
    content = Path(path).read_bytes()
    if content[:2] != b"PK":
        raise ModelFileError(
            f"{path} is {'not a model file' if content else 'empty'}. {ADVICE} (pickles are not "
            "loaded, because they can run arbitrary code)"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_archive(archive, len(content))
            if not {HEADER, SCHEMA} <= set(archive.namelist()):
                raise ModelFileError(f"{path} was not written by domainwise. {ADVICE}")
            header = dict(json.loads(archive.read(HEADER)))
            if not isinstance(header.get("versions"), dict):
                raise ValueError("its header contains no versions")
            if header["format"] != FORMAT:
                advice = "Fit the model again"
                if int(header["format"]) > FORMAT:
                    advice = 'Run pip install --upgrade "domainwise[cli]"'
                raise ModelFileError(
                    f"{path} was written by domainwise {header['versions']['domainwise']} in "
                    f"format {header['format']}, but version {__version__} reads format {FORMAT}. "
                    f"{advice}"
                )
            yield header, archive
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} is damaged or is not a model file: {error}. Copy it again, or fit a new model"
        ) from error


def check_archive(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Raise ValueError if an archive of ``n_bytes`` bytes could unpack to more than its size."""
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
        raise ValueError("its members are compressed")
    # Members may overlap or declare a wrong size.
    if sum(member.file_size for member in archive.infolist()) > n_bytes:
        raise ValueError("its members add up to more than the file size")


def _check_trees(schema: Any, members: dict[str, bytes]) -> None:
    """Check decision trees before skops builds them."""

    def read_value(node: dict[str, Any]) -> Any:
        if node["__loader__"] == "JsonNode":
            return json.loads(node["content"])
        return np.load(io.BytesIO(members[node["file"]]), allow_pickle=False)

    for node in types.nodes(schema):
        if node["__loader__"] == "TreeNode":
            state = {name: read_value(entry) for name, entry in node["content"]["content"].items()}
            values.check_tree(state, *map(read_value, node["__reduce__"]["args"]["content"]))


def _describe_forbidden(names: list[str]) -> str:
    name_list = listed(names, 5, ", ")
    if any(name.startswith(("lightgbm.", "catboost.")) for name in names):
        return (
            f"it contains {name_list}. LightGBM and CatBoost models cannot be part of model files, "
            "because their compiled readers do not check what they read. Remove these models from "
            "the ensemble, or use pickle for files that only you write and read"
        )
    return (
        f"it contains {name_list}. Model files may contain only domainwise estimators, common "
        "scikit-learn estimators, arrays and numbers. Replace functions by named kernels or "
        "scorers, and tensors by arrays"
    )
