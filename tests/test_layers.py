"""Folders import only what stands above them in this list, lazily or not."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "domainwise"

#: From the ground up: folders, and subfolders and modules with a place of their own.
LAYERS = [
    ["base"],
    ["algebra.kernels"],
    ["algebra.labels"],
    ["algebra.methods"],
    ["algebra.gram"],
    ["algebra.backends"],
    ["held_out.folds"],
    ["held_out.scoring"],
    ["held_out.calibration"],
    ["held_out.search"],
    ["estimators.conformal"],
    ["estimators.adaptation"],
    ["estimators.projections"],
    ["estimators.invariant"],
    ["estimators.ridge"],
    ["estimators.ensemble"],
    ["datasets"],
    ["tables"],
    ["tables.shift"],
    ["distributed"],
    ["models.files"],
    ["models"],
    ["models.export"],
    ["evaluation.plots"],
    ["evaluation"],
    ["cli"],
]
HEIGHT = {folder: height for height, layer in enumerate(LAYERS) for folder in layer}
#: Files at the root. They offer names and start the command line, and nothing below imports them.
ROOT_FILES = {"__init__.py", "__main__.py", "labels.py", "metrics.py", "plots.py", "selection.py"}

#: Modules of the package whose names the paper's experiments may use in addition to public names.
FOR_REPRODUCTION = {
    "domainwise.base.arrays",
    "domainwise.base.process",
    "domainwise.base.files",
    "domainwise.algebra.kernels.functions",
    "domainwise.evaluation.html",
    "domainwise.held_out.scoring.predictions",
    "domainwise.held_out.scoring.statistics",
}


def part_of(path):
    """Entry of the list that a file belongs to: of two that match, the longer one."""
    return part_of_module(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


def part_of_module(name):
    """Entry of the list that a dotted name below the package belongs to."""
    names = name.split(".")
    pair = ".".join(names[:2])
    return pair if pair in HEIGHT else names[0]


def imported_modules(path):
    """Line and name of every import of domainwise in a file, in functions and for types, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute here"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            if module.split(".")[0] == "domainwise":
                yield node.lineno, module if "." in module else f"{module}."


def imported(path):
    """Line and part of every import of domainwise in a file."""
    for line, module in imported_modules(path):
        yield line, part_of_module(module.removeprefix("domainwise."))


def file_of(module):
    """File that a dotted name stands in: a module's, a package's, or that of a name in either."""
    names = module.split(".")[1:]
    while names:
        base = PACKAGE.joinpath(*names)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path
        names.pop()
    return PACKAGE / "__init__.py"


def cycle_in(folder):
    """Files of a folder that import each other in a circle, or none."""
    files = [path for path in FILES if part_of(path) == folder]
    graph = {
        path: {file_of(module) for _, module in imported_modules(path)}.intersection(files)
        for path in files
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(path.relative_to(PACKAGE)) for path in error.args[1]]
    return []


def violations(path):
    here = part_of(path)
    for line, there in imported(path):
        where = f"{path.relative_to(PACKAGE)}:{line} imports {there or 'the root'}"
        if there in ("__version__", "API", here):
            continue
        if there not in HEIGHT:
            yield f"{where}, whose names stand in the folders"
        elif HEIGHT[there] >= HEIGHT[here]:
            yield f"{where}, which does not stand above it"


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_names(tree):
    """Private names that a file defines: functions, classes, variables and attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] * is_own(node.value)


def is_own(node):
    """Whether an expression is self, cls, super(), or type(self)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "super" or (
            node.func.id == "type" and len(node.args) == 1 and is_own(node.args[0])
        )
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_accesses(tree):
    """Line and name of every ``x._name``, also by getattr and the like; x is not self or cls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            named = node.func.id in ("getattr", "setattr", "hasattr", "delattr")
            if named and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                name = node.args[1].value
                if is_private(name) and not is_own(node.args[0]):
                    yield node.lineno, name


def private_violations(folder):
    """Private names of other packages, and of other libraries, that a folder's files use."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in FILES
        if part_of(path) == folder
    }
    own = {name for tree in trees.values() for name in private_names(tree) if is_private(name)}
    allowed = own | FOREIGN.get(folder, set())
    for path, tree in trees.items():
        for line, name in private_accesses(tree):
            if name not in allowed:
                yield f"{path.relative_to(PACKAGE)}:{line} uses {name}"


#: Private names of other libraries without which something could not be done.
FOREIGN = {
    # The line of a user's code that a warning names; arguments that scikit-learn checks.
    "base": {"_getframe", "_validate_params"},
    # What a Dask collection holds, and whether scikit-learn wants a data frame.
    "algebra.backends": {"_meta", "_sklearn_output_config"},
    # Fitted estimators of scikit-learn, attribute by attribute: whether a file may hold them, and
    # as graphs.
    "models.files": {
        "_predictors",
        "_drop_idx_after_grouping",
        "_n_features_outs",
        "_infrequent_enabled",
        "_probA",
        "_probB",
        "_default_to_infrequent_mappings",
        "_baseline_prediction",
        "_bin_mapper",
        "_dual_coef_",
        "_intercept_",
        "_n_support",
        "_preprocessor",
        "_sparse",
    },
    "models.export": {"_baseline_prediction", "_gamma", "_preprocessor", "_predictors", "_probA"},
}

FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in ("__main__.py",))
FILES = [path for path in FILES if path.parent != PACKAGE]


@pytest.mark.parametrize("folder", HEIGHT)
def test_a_folder_imports_only_from_folders_above_it(folder):
    wrong = [text for path in FILES if part_of(path) == folder for text in violations(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", HEIGHT)
def test_the_files_of_a_folder_do_not_import_each_other_in_a_circle(folder):
    assert not cycle_in(folder)


@pytest.mark.parametrize("folder", HEIGHT)
def test_private_names_are_used_only_in_their_folder(folder):
    assert not list(private_violations(folder))


def test_private_names_of_scikit_learn_are_imported_only_in_base():
    private = re.compile(
        r"^\s*(from sklearn\S*\._|from sklearn.* import .*\b_|import sklearn\S*\._)"
    )
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        used = [line for line in lines if private.match(line)]
        assert not used or part_of(path) == "base", f"{path.relative_to(PACKAGE)}: {used}"


def test_every_folder_is_in_the_list_and_every_file_is_in_a_folder():
    assert {part_of(path) for path in FILES if path.name != "__init__.py"} == set(HEIGHT)
    assert len([path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]) <= 12
    assert {path.name for path in PACKAGE.glob("*.py")} == ROOT_FILES


def test_the_reproduction_imports_public_names_and_a_few_modules():
    public = {"domainwise", "domainwise.datasets", "domainwise.metrics", "domainwise.selection"}
    files = sorted((PACKAGE.parents[1] / "reproduction").glob("*.py"))
    used = {
        module.rpartition(".")[0] for path in files for _, module in imported_modules(path)
    } - public
    assert used == FOR_REPRODUCTION


def test_a_reversed_import_is_detected(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    wrong = tmp_path / "algebra" / "gram" / "wrong.py"
    wrong.parent.mkdir(parents=True)
    wrong.write_text(
        "def late():\n    from domainwise.estimators.projections import DCM\n    return DCM\n"
    )
    assert list(violations(wrong)) == [
        "algebra/gram/wrong.py:2 imports estimators.projections, which does not stand above it"
    ]


def test_circular_imports_inside_functions_are_detected(tmp_path, monkeypatch):
    folder = tmp_path / "algebra" / "gram"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("from domainwise.algebra.gram.two import b\n")
    (folder / "two.py").write_text("def b():\n    from domainwise.algebra.gram import one\n")
    (folder / "__init__.py").write_text("from domainwise.algebra.gram.one import b\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "FILES", sorted(folder.glob("*.py")))
    assert set(cycle_in("algebra.gram")) == {"algebra/gram/one.py", "algebra/gram/two.py"}


def test_private_names_in_getattr_are_detected(tmp_path, monkeypatch):
    (tmp_path / "algebra" / "gram").mkdir(parents=True)
    (tmp_path / "algebra" / "gram" / "one.py").write_text(
        "class A:\n    _own = 1\n\n    def b(self, x):\n        self._set = x._own\n"
        "        return getattr(x, '_other'), x._set, self._anything, x._foreign\n"
    )
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "FILES", [tmp_path / "algebra" / "gram" / "one.py"])
    assert sorted(private_violations("algebra.gram")) == [
        "algebra/gram/one.py:6 uses _foreign",
        "algebra/gram/one.py:6 uses _other",
    ]


@pytest.mark.parametrize("folder", ["torch", "dask", "browser"])
def test_every_test_file_of_an_extra_has_its_marker(folder):
    tests = Path(__file__).parent / folder
    files = sorted(tests.glob("test_*.py"))
    unmarked = [path.name for path in files if f"mark.{folder}" not in path.read_text("utf-8")]
    assert files
    assert not unmarked, "make test skips these files, and so does the suite of the extra"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_defines_each_of_its_names_once(path):
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        targets = [part for t in targets for part in getattr(t, "elts", [t])]
        names += [getattr(t, "name", getattr(t, "id", None)) for t in targets]
    names = [name for name in names if name]
    assert len(names) == len(set(names))
