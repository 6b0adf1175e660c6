"""Words of messages and docs: cited sections and named files exist, and phrases are plain."""

import ast
import inspect
import io
import re
import tokenize
from pathlib import Path

import pytest

import domainwise
from domainwise.base.signatures import PLACEHOLDERS

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for folder in ("src", "reproduction", "tests", "benchmarks", "docs", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md") and path != Path(__file__).resolve()
)
NUMBER = r"\d+(?:\.\d+)?"
#: ``theory 5.2``, ``theory 2 to 5``, ``theory 6.1, 6.3 and 12``; a comment's line may break inside.
CITED = re.compile(rf"\btheory[\s#]+({NUMBER}(?:(?:, | and | or | to ){NUMBER})*)")


def sections(text):
    """Numbers of the headings of docs/theory.md."""
    return set(re.findall(rf"^#+ ({NUMBER}) ", text, flags=re.MULTILINE))


def cited(text):
    """Every section number that a text cites."""
    return {
        number for match in CITED.finditer(text) for number in re.findall(NUMBER, match.group(1))
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(theory 5.2)", {"5.2"}),
        ("as in theory 2 to 5.", {"2", "5"}),
        ("theory 6.1, 6.3 and 12", {"6.1", "6.3", "12"}),
        ("another kernel (theory\n12). It", {"12"}),
        ("in theory, 3 rows", set()),
    ],
)
def test_citations_are_found(text, numbers):
    assert cited(text) == numbers


def test_every_cited_section_of_the_theory_exists():
    there = sections((ROOT / "docs" / "theory.md").read_text(encoding="utf-8"))
    citing = {path: cited(path.read_text(encoding="utf-8")) for path in FILES}
    assert any(citing.values())
    absent = [
        f"{path.relative_to(ROOT)} cites theory {number}"
        for path, numbers in citing.items()
        for number in sorted(numbers - there)
    ]
    assert not absent, "\n".join(absent)


def test_nothing_cites_a_document_that_is_not_in_the_repository():
    citing = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bDESIGN\b", line)
    ]
    assert not citing, "\n".join(citing)


def test_errors_of_the_library_name_arguments_and_not_options():
    speaking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "src" / "domainwise" / "jobs").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and "--" in ast.unparse(node)
    ]
    assert not speaking


# The map in CONTRIBUTING.md -----------------------------------------------------------------------

MAP = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_map_names_only_files_that_exist():
    named = set(re.findall(r"`([\w./-]+/[\w./-]+|[\w-]+\.(?:py|md|txt))`", MAP))
    outside = {"../shared/data", "docs/_build/html"}  # the second is made
    assert len(named) > 50
    bases = (ROOT, ROOT / "src" / "domainwise")
    absent = [name for name in named - outside if not any((base / name).exists() for base in bases)]
    assert not absent


def test_the_map_lists_folders_in_the_order_of_imports():
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    (layers,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "LAYERS"
    ]
    table = MAP[MAP.index("| folder |") :].split("\n\n")[0].splitlines()[2:]
    folders = list(dict.fromkeys(name.split(".")[0] for layer in layers for name in layer))
    assert [row.split("|")[1].strip(" `") for row in table] == folders
    for folder, row in zip(folders, table, strict=True):
        inner = [name.partition(".")[2] for layer in layers for name in layer]
        named = [name for name in re.findall(r"`(\w+)`", row.split("|")[2]) if name in inner]
        assert named == [n.split(".")[1] for (n,) in layers if n.startswith(f"{folder}.")], folder


def test_the_map_names_only_existing_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", MAP)) <= targets


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {domainwise.__version__}\n" in citation


def public_methods():
    for name in domainwise.__all__:
        cls = getattr(domainwise, name)
        if isinstance(cls, type):
            yield from ((cls, method) for method in dir(cls) if not method.startswith("_"))


def test_no_placeholder_remains_in_a_docstring():
    texts = {
        f"{cls.__name__}.{name}": inspect.getdoc(inspect.getattr_static(cls, name)) or ""
        for cls, name in public_methods()
    }
    assert [name for name, text in texts.items() if PLACEHOLDERS.search(text)] == []
    assert "kernel values between new rows and training rows" in texts["DCM.transform"]
    assert "(n_rows, n_features)" in texts["InvariantSVC.predict_proba"]


# Phrases that readers did not understand ----------------------------------------------------------

#: Each with an example, and what to write instead (the terms are in CONTRIBUTING.md).
PHRASES = {
    r"being unseen": ("being unseen costs nothing", "the generalization gap is 0"),
    r"keeps? \{?0\.\d": ("keeps 0.670 on the worst domain", "scores 0.670 on the worst domain"),
    r"errs? by": ("errs by 6.7", "RMSE 6.7"),
    r"\bmends? (those|these|the|it|what)|be mended|unit mended": ("mend those cells", "correct"),
    r"(?<!there )(is|are|was) no (kernel|text|number|JSON|tensor|model|feature|estimator|part)": (
        "the values are no kernel",
        "are not a kernel",
    ),
    r"given as kernel is none": ("the function given as kernel is none", "is not a kernel"),
    r"(is|are|was|were) told (?!apart)": ("is told beside the theory", "is described in"),
    r"(too|is|are|more) dear\b": ("that is too dear", "too expensive"),
    r"spoken of": ("a feature is spoken of if", "is reported if"),
    r"later, and no more": ("Later, and no more.", "from the next version on"),
    r"too few to tell": ("too few to tell", "at least 5 rows are needed, got 3"),
    r"so many of a hundred": ("in so many of a hundred", "in 95 % of cases"),
    r"how sure (one|it|that|we|you)": ("how sure one can be", "its uncertainty"),
    r"left-out domain|domains? (that (is|are|was|were) )?left out": (
        "scores on domains left out",
        "held-out domains",
    ),
    r"leav(e|es|ing) (\w+ )?(domains?|sites?) out": ("leaving domains out", "holding out domains"),
    r"sources' reach": ("values beyond the sources' reach", "outside the range of the sources"),
    r"those it has seen": ("those it has seen", "the source domains"),
    r"who(ever)? leads": ("the plan of whoever leads", "the coordinator's plan"),
    r"with words about why": ("an error with words about why", "the message says why"),
    r"goe?s? on where (it|they|a run|the run) (was |were )?stopped": (
        "a run that is started again goes on where it stopped",
        "continues where it stopped",
    ),
    r"in a small size": ("the paper's first table in a small size", "a small version of"),
    r"in domains of their own": ("classes in domains of their own", "occurs in only one domain"),
    r"sites?,? (that|which) keep their rows": (
        "a model of sites that keep their rows",
        "sites that do not share their rows",
    ),
    r"page of ``?evaluate|page of evaluate": ("the page of evaluate", "the page that it writes"),
    r"say(s)? little about the next": ("four say little about the next one", "are not enough to"),
    r"dealt into": ("domains are dealt into folds", "are assigned to folds"),
    r"with the domain's rows|the domain's rows at hand": (
        "the ensemble with the domain's rows",
        "with context",
    ),
    r"\bin a process of its own": ("ran in a process of its own", "in a separate process"),
    r"what (each|it|they|\w+s) (is|are) worth on": ("what each is worth on", "importance on"),
    r"(has to|have to|must) hold (?!out)": ("X must hold numbers", "must contain numbers"),
    r"prices? of (telling|setting)": ("price of telling domains apart", "weight of the penalty"),
}


ANY = re.compile("|".join(PHRASES), re.I).search


def strings_of(tree):
    """Line and text of every string, docstrings and f-strings included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def comments_of(text):
    """Line and text of every comment; those of neighbouring lines are one."""
    lines: dict[int, list[str]] = {}
    first, last = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            first, last = (first if line == last + 1 else line), line
            lines.setdefault(first, []).append(token.string.lstrip("#: "))
    yield from ((line, " ".join(words)) for line, words in lines.items())


def prose(path):
    """Line and text of whatever a file says: strings and comments of code, paragraphs of pages."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from strings_of(ast.parse(text))
        yield from comments_of(text)
        return
    for match in re.finditer(r"(?:.+\n?)+", text):
        yield text.count("\n", 0, match.start()) + 1, match.group()


def odd_phrases(text):
    """Phrases of the list in a text, however its lines break."""
    plain = " ".join(text.split())
    return [phrase for phrase in PHRASES if re.search(phrase, plain, re.I)] if ANY(plain) else []


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_found_and_its_replacement_is_not(phrase):
    example, better = PHRASES[phrase]
    assert phrase in odd_phrases(example.replace(" ", "\n    "))
    assert odd_phrases(better) == []


def test_prose_is_joined_over_lines_of_strings_and_comments(tmp_path):
    path = tmp_path / "code.py"
    path.write_text('x = "a"\n# domains\n# left out\ny = (\n    "being "\n    "unseen"\n)\n')
    assert [line for line, text in prose(path) if odd_phrases(text)] == [5, 2]


def test_messages_and_docs_are_free_of_phrases_that_readers_did_not_understand():
    folders = ("src", "examples", "docs", "benchmarks", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    paths += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.cff")]
    suffixes = {".py", ".md", ".toml", ".j2", ".html", ".js", ".css", ".cff"}
    built = {ROOT / "docs" / name for name in ("_build", "benchmarks", "gallery", "reference")}
    paths = [path for path in paths if path.suffix in suffixes and not built & {*path.parents}]
    assert len(paths) > 200
    odd = [
        f"{path.relative_to(ROOT)}:{line} {phrases}"
        for path in sorted(paths)
        for line, text in prose(path)
        if (phrases := odd_phrases(text))
    ]
    assert not odd, "\n".join(odd)
