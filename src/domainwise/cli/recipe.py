"""What evaluate leaves in its folder so that fit can make the same model: table, options, grids."""

from __future__ import annotations

import hashlib
import importlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.evaluation import Evaluation
    from domainwise.models.method import Method


def own_methods(given: list[str] | None) -> list[Method]:
    """Make methods of ``package.module:factory`` and of model files, named by their last part.

    A factory is called without arguments; it may lie in the folder where the command is run.
    """
    from domainwise.model_files.persistence import load, read_info
    from domainwise.models.method import own_method

    methods = []
    for text in given or ():
        if text.endswith(".skops"):
            # A model of a table prepares its columns itself.
            prepare = "schema" not in read_info(text)["info"]
            methods.append(own_method((Path(text).stem, load(text)), prepare))
            continue
        module, _, name = text.partition(":")
        if not module or not name.isidentifier():
            raise ValueError(
                f"--estimator {text}: give package.module:factory, or a model file (.skops)"
            )
        methods.append(own_method((name, _made(module, name, text))))
    return methods


def _made(module: str, name: str, text: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module), name)
        return factory() if callable(factory) else factory
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"--estimator {text}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names."""
    whole = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            whole.update(f"{file.relative_to(path)}\n".encode())
        with file.open("rb") as stream:
            while part := stream.read(1 << 20):
                whole.update(part)
    return whole.hexdigest()


class Recipe:
    """What a folder that evaluate has written says about the models that it measured."""

    def __init__(self, folder: Path) -> None:
        from domainwise.evaluation.folder import RESULT_NAME

        self.path = folder / RESULT_NAME
        try:
            self.stored = json.loads(self.path.read_text("utf-8"))
            self.recipe, self.table = self.stored["recipe"], self.stored["table"]
            self.asked: dict[str, Any] = self.table["asked"]
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no {RESULT_NAME}: nothing was evaluated") from None
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{self.path} says nothing about its models; evaluate again") from None

    def data(self, given: Path | None, force: bool) -> Path:
        """The table that was evaluated; another is refused unless forced."""
        path = Path(self.table["path"]) if given is None else given
        if not path.exists():
            raise ValueError(f"{path}: no such file; name the table that was evaluated")
        if not force and digest(path) != self.table["sha256"]:
            raise ValueError(
                f"{path} is not the table that {self.path} is about; evaluate it first, or use "
                "--force"
            )
        return path

    def find(self, name: str | None) -> str:
        """Key of what was measured, the best if none is named."""
        wanted = (name or self.stored["best"]).lower()
        evaluated = {m["key"]: m for m in self.stored["methods"]}
        keys = [k for k, m in evaluated.items() if wanted in (k.lower(), m["label"].lower())]
        if not keys:
            raise ValueError(
                f"method {name!r} was not evaluated; {self.path} knows {', '.join(evaluated)}"
            )
        return str(keys[0])

    def method(self, key: str, force: bool) -> Method:
        """The method that was measured, with the grid it had."""
        from domainwise.evaluation.evaluation import describe_grid
        from domainwise.models.method import CONTEXT
        from domainwise.models.registry import METHODS

        own = {method.key: method for method in own_methods(self.stored["estimators"])}
        plain = key.removesuffix(CONTEXT)
        method = own.get(key) or own.get(plain) or METHODS[plain]
        grid = describe_grid(method.grid(self.recipe["task"] == "classification"))
        if grid != self.recipe["grids"].get(method.key) and not force:
            raise ValueError(
                f"method {method.key!r} chooses from other values now than when {self.path} was "
                "written; evaluate again, or use --force"
            )
        return method

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of :func:`~domainwise.models.table_model.table_setting`."""
        names = ("scoring", "inner_scoring", "pos_label", "class_weight")
        return {name: self.recipe[name] for name in names} | {"random_state": self.recipe["seed"]}

    def found(self, key: str) -> dict[str, Any]:
        """What was found about a method; empty if it was not evaluated."""
        return next((each for each in self.stored["methods"] if each["key"] == key), {})

    def scores(self, key: str) -> dict[Any, float]:
        """Scores of a method on left-out domains; larger is better."""
        sign = 1 if self.stored["measure"]["greater_is_better"] else -1
        known = [row for row in self.found(key).get("per_domain", ()) if row["score"] is not None]
        return {row["domain"]: sign * row["score"] for row in known}


def next_step(found: Evaluation, folder: Path) -> str:
    """The command that fits the best method to all rows; empty if that is a constant."""
    if found.best.key == "constant":
        return ""
    out = shlex.quote(f"{folder.name}.skops")
    then = " (then predict with --context)" if found.best.context else ""
    command = f"domainwise fit --from {shlex.quote(str(folder))} -o {out}"
    return f"To fit {found.best.label} to all rows{then}: {command}"
