"""Saving models to a file and loading them without running code from it.

A model file is a zip archive in the format of skops, with one more member, ``domainwise.json``,
that says which version wrote it. It is stored uncompressed, so that its size tells what it needs.
"""

from __future__ import annotations

import io
import json
import platform
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.exceptions import InconsistentVersionWarning

from domainwise import __version__
from domainwise.arrays import is_dask, is_tensor
from domainwise.jobs.atomic import replacing
from domainwise.models.types import TRUSTED, forbidden_types
from domainwise.models.values import check_values

#: Format of the files written here; files of a later one are refused.
FORMAT = 1
#: First protocol of skops in which all that it trusts is declared.
SKOPS_PROTOCOL = 2
HEADER, SCHEMA = "domainwise.json", "schema.json"


class ModelFileError(ValueError):
    """A model that cannot be saved, or a file that is no model that can be loaded."""


def save(model: Any, path: str | Path, *, info: dict[str, Any] | None = None) -> None:
    """Save a fitted model, or a pipeline with one, to a file.

    The file holds data only: models with functions in them (a callable kernel, say) are refused,
    and so are types that have not been reviewed. It is written beside ``path`` first and put in
    place when it is complete.

    Parameters
    ----------
    model : estimator
        An estimator of domainwise, or a pipeline of those and of common ones of scikit-learn.
    path : path-like
        By convention ``something.skops``.
    info : dict, default=None
        Whatever JSON can hold, to be read by :func:`read_info` without loading the model.

    Raises
    ------
    ModelFileError
        If the model holds something that cannot be saved.

    See Also
    --------
    load : The way back.

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
    skops = _skops()
    _refuse_functions(model)
    try:
        check_values(model)
        content = skops.dumps(model)
    except RecursionError:
        raise ModelFileError(
            f"{type(model).__name__} cannot be saved: a part of it refers back to itself, as "
            "set_fit_request and its like make estimators do"
        ) from None
    except Exception as error:
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {error}") from error
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as written, zipfile.ZipFile(buffer, "w") as archive:
        schema = json.loads(written.read(SCHEMA))
        foreign = forbidden_types(schema)
        if foreign:
            raise ModelFileError(_about_types(f"{type(model).__name__} cannot be saved", foreign))
        archive.writestr(HEADER, json.dumps(_header(model, info), indent=2))
        # skops writes this indented: most of the file, for a small model.
        archive.writestr(SCHEMA, json.dumps(schema, separators=(",", ":")))
        for name in written.namelist():
            if name != SCHEMA:
                archive.writestr(name, written.read(name))
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def load(path: str | Path) -> Any:
    """Load a model that :func:`save` has written.

    Everything in the file is checked before anything is built: no code from the file runs, whoever
    wrote it.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    model : estimator

    Raises
    ------
    ModelFileError
        If the file is damaged, of a later version, no model file, or holds other types than
        those that models are made of.
    """
    skops = _skops()
    content = _content(path)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        header = _checked_header(path, archive)
        _check_schema(path, archive)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            model = skops.loads(content, trusted=TRUSTED)
        check_values(model)
    except Exception as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error
    written, here = header["versions"].get("scikit-learn"), sklearn.__version__
    if written != here:
        warnings.warn(
            f"{path} was written with scikit-learn {written}, this is {here}: predictions may "
            "differ; fit again if that matters",
            UserWarning,
            stacklevel=2,
        )
    return model


def read_info(path: str | Path) -> dict[str, Any]:
    """Read what a model file says about itself, without building the model.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    header : dict
        ``format``, ``versions``, ``model`` (its type) and ``info`` as given to :func:`save`.
    """
    with zipfile.ZipFile(io.BytesIO(_content(path))) as archive:
        return _checked_header(path, archive)


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise ImportError(
            f'saving and loading models needs {error.name}: pip install "domainwise[cli]"'
        ) from None
    return skops.io


def _header(model: Any, info: dict[str, Any] | None) -> dict[str, Any]:
    import skops

    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "versions": {
            "domainwise": __version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "skops": skops.__version__,
            "python": platform.python_version(),
        },
        "info": info or {},
    }


def _refuse_functions(model: Any) -> None:
    """Name arguments that are functions, tensors or Dask collections: they cannot be saved."""
    arguments = model.get_params(deep=True) if hasattr(model, "get_params") else {}
    for name, value in {"the model": model, **arguments}.items():
        if callable(value) and not isinstance(value, type):
            raise ModelFileError(
                f"{name} is the function {getattr(value, '__name__', value)!r}: functions cannot "
                "be saved, because loading one would run code; use a named kernel or scorer"
            )
        parts = [value, *vars(value).values()] if hasattr(value, "get_params") else [value]
        if any(is_dask(part) for part in parts):
            raise ModelFileError(
                f'{name} holds Dask collections: call to("numpy") on the fitted projection first'
            )
        if is_tensor(value):
            raise ModelFileError(f"{name} is a tensor: pass it as an array to save the model")


def _content(path: str | Path) -> bytes:
    """Bytes of a file that is a whole zip archive."""
    path = Path(path)
    if not path.exists():
        raise ModelFileError(f"{path}: no such file")
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder, not a model file")
    content = path.read_bytes()
    if not content:
        raise ModelFileError(f"{path} is empty")
    if content[:1] == b"\x80":
        raise ModelFileError(
            f"{path} looks like a pickle, which could run any code and is not loaded; write model "
            "files with domainwise.save or domainwise fit"
        )
    if content[:2] != b"PK":
        raise ModelFileError(f"{path} is no model file; domainwise fit writes one")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelFileError(f"{path} is no model file: it is compressed")
            names = archive.namelist()
            broken = archive.testzip()
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise ModelFileError(f"{path} is damaged or incomplete: {error}") from None
    if broken is not None or len(set(names)) != len(names):
        raise ModelFileError(f"{path} is damaged: {broken or 'a part is there twice'}")
    return content


def _checked_header(path: str | Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    if not {HEADER, SCHEMA} <= set(archive.namelist()):
        raise ModelFileError(f"{path} was not written by domainwise; domainwise fit writes models")
    try:
        header = json.loads(archive.read(HEADER))
        known = int(header["format"]) <= FORMAT
        version = header["versions"]["domainwise"]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: its header cannot be read ({error})") from None
    if not known:
        raise ModelFileError(
            f"{path} was written by domainwise {version} in format {header['format']}; this is "
            f"{__version__}, which reads up to format {FORMAT}: "
            'pip install --upgrade "domainwise[cli]"'
        )
    return dict(header)


def _check_schema(path: str | Path, archive: zipfile.ZipFile) -> None:
    try:
        schema = json.loads(archive.read(SCHEMA))
        protocol = schema["protocol"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    if not isinstance(protocol, int) or protocol < SKOPS_PROTOCOL:
        raise ModelFileError(f"{path} is damaged: protocol {protocol!r}")
    foreign = forbidden_types(schema)
    if foreign:
        raise ModelFileError(_about_types(f"{path} is not loaded", foreign))


def _about_types(what: str, names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{what}: it holds {shown}, which no model of domainwise is made of"
