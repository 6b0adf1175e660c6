"""Generate the pages for the API reference, the command line and the benchmarks."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import names
from docutils import nodes

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
#: Folders that every build rewrites, and that git ignores.
REFERENCE, BENCHMARKS = DOCS / "reference", DOCS / "benchmarks"
REPORTS = ROOT / "benchmarks"


def write(path: Path, text: str) -> None:
    """Write a page only if its text has changed, because Sphinx reads newer files again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


# The API -----------------------------------------------------------------------------------------


def reference_page() -> str:
    """Return the list of all public names; autosummary generates a page for each."""
    sections = [
        "# API reference\n\nThis page lists every public name. Estimators follow scikit-learn's "
        "conventions; `sample_domain` is routed metadata that is requested by default. The "
        "[command line](../cli.md) is described on a separate page.\n"
    ]
    for group in names.groups():
        heading = f"`{group.heading}`" if "." in group.heading else group.heading
        listed = "\n".join(f"   {_last_name(name)}" for name in group.names)
        module = group.heading if "." in group.heading else "domainwise"
        about = group.about.replace("``", "`")
        sections.append(
            f"## {heading}\n\n{about}\n\n```{{eval-rst}}\n.. currentmodule:: {module}\n\n"
            f".. autosummary::\n   :toctree: .\n   :nosignatures:\n\n{listed}\n```\n"
        )
    return "\n".join(sections)


def _last_name(name: str) -> str:
    return name.rpartition(".")[2]


# The command line --------------------------------------------------------------------------------


def list_commands(app: Any, docname: str, source: list[str]) -> None:
    """Append the arguments and options of every command to the page about the command line."""
    if docname != "cli":
        return
    from typer.main import get_command

    from domainwise.cli import app as program

    root = get_command(program)
    context = root.make_context("domainwise", [], resilient_parsing=True)
    head = "\n## Commands and options\n\nThis list is generated from the program.\n"
    source[0] = "\n".join([source[0], head, *_commands_below(root, context, 3)])


def _commands_below(group: Any, context: Any, level: int) -> list[str]:
    sections = []
    for name, command in group.commands.items():
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        sections += [f"{'#' * level} {inner.command_path}\n", _text(command.help) + "\n"]
        if hasattr(command, "commands"):
            sections += _commands_below(command, inner, level + 1)
        else:
            sections.append(_options(command, inner))
    return sections


def _options(command: Any, context: Any) -> str:
    """Return the usage of a command, and a table of its arguments and options."""
    parameters = command.get_params(context)
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    in_usage = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
    rows = ["| | |", "|---|---|"]
    for parameter in [*arguments, *(p for p in parameters if p not in arguments)]:
        record = parameter.get_help_record(context)
        if record is None or "--help" in parameter.opts:
            continue
        name = parameter.name.upper() if parameter in arguments else record[0]
        rows.append(f"| `{_cell(name)}` | {_cell(_text(record[1]))} |")
    usage = " ".join([context.command_path, *in_usage, "[OPTIONS]"])
    return "\n".join([f"```text\n{usage}\n```\n", *rows]) + "\n"


def _text(text: str | None) -> str:
    """Convert plain text to escaped Markdown; paragraphs are preserved."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    escaped = [re.sub(r"([*_<>\[\]`#])", r"\\\1", " ".join(p.split())) for p in paragraphs]
    # Options are formatted as code, so that two hyphens do not become a dash.
    return "\n\n".join(re.sub(r"(?<![\w-])(--?[a-z][\w-]*)", r"`\1`", p) for p in escaped)


def _cell(text: str) -> str:
    return text.replace("\n\n", " ").replace("|", r"\|")


# Benchmarks --------------------------------------------------------------------------------------


def benchmark_pages() -> dict[Path, str]:
    """Return the reports in ``benchmarks``, and a page that lists them.

    Their order is that of a table in CONTRIBUTING.md. The title of a report is a question, and its
    first sentence is the answer.
    """
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    report_names = re.findall(r"\| `benchmarks/(\w+\.md)` \|", table)  # in their order
    unlisted = {path.name for path in REPORTS.glob("*.md")} ^ {*report_names}
    assert not unlisted, f"list these reports in CONTRIBUTING.md, with a question: {unlisted}"
    pages, rows = {}, ["| question | answer |", "|---|---|"]
    for name in report_names:
        text = (REPORTS / name).read_text(encoding="utf-8")
        text = re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text)
        pages[BENCHMARKS / name] = text.replace("](../docs/", "](../")
        opening = re.match(r"# ([^\n]+\?)\n\n(?!Written)(.+?[.])(?=\**\s)", text, re.DOTALL)
        assert opening is not None, f"{name} must start with a question and its answer"
        rows.append(f"| [{opening[1]}]({name}) | {' '.join(opening[2].strip('*').split())} |")
    listed, tree = "\n".join(rows), "\n".join(report_names)
    pages[BENCHMARKS / "index.md"] = (
        "# Benchmarks\n\nThe table lists questions, and the answers of these reports. Each report "
        "names the script that writes it, and the machine on which times were measured; compare "
        "ratios, not times.\n\n"
        f"{listed}\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{tree}\n```\n"
    )
    return pages


# Sphinx ------------------------------------------------------------------------------------------


def make_pages(app: Any, config: Any) -> None:
    """Write all generated pages before Sphinx collects its sources."""
    pages = {
        REFERENCE / "index.md": reference_page(),
        **benchmark_pages(),
    }
    public = {REFERENCE / f"{name}.rst" for group in names.groups() for name in group.names}
    generated = {*REFERENCE.glob("*"), *BENCHMARKS.glob("*.md")}
    for stale in generated - set(pages) - public:  # autosummary writes the pages in public
        stale.unlink()
    scripts = {path.stem for path in (ROOT / "examples" / "gallery").glob("*.py")}
    for stale in (DOCS / "gallery").glob("[0-9]*"):  # pages of removed scripts
        if stale.name.split(".")[0] not in scripts:
            stale.unlink()
    for path, text in pages.items():
        write(path, text)
    config.autosummary_context = {
        "own_members": names.own_members,
        "inherited_methods": names.inherited_methods,
    }


def replace_links(app: Any, docname: str, source: list[str]) -> None:
    """Replace links to files in the repository with links to their pages."""
    up = "../" * docname.count("/")
    text = re.sub(r"\]\((?:\.\./)+benchmarks/(\w+\.md)", rf"]({up}benchmarks/\1", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+docs/(\w+\.md)", rf"]({up}\1", text)


def name_table_headings(app: Any, doctree: nodes.document) -> None:
    """Remove headings of tables if all are empty, and name other empty ones for screen readers."""
    for head in [*doctree.findall(nodes.thead)]:
        entries = [*head.findall(nodes.entry)]
        empty_entries = [entry for entry in entries if not entry.astext().strip()]
        if len(empty_entries) == len(entries):
            head.parent.remove(head)
        for entry in empty_entries:
            text = "row" if entry is entries[0] else "remark"
            name = nodes.inline("", text, classes=["visually-hidden"])
            entry.children[:] = [nodes.paragraph("", "", name)]


#: A symbol with an index in running text, such as P_y or e_sj, or a Greek letter alone.
INDEXED = re.compile(r"(?<![\w`$\\{])([A-Za-zΑ-ω][\u0300-\u036f]?)_([a-z]{1,2}|[A-Z])(?![\w{}])")
GREEK = re.compile(r"(?<![\w`$\\{])([Α-ω])(?![\w{}\u0300-\u036f'²³(])")


def show_symbols(app: Any, docname: str, source: list[str]) -> None:
    """Show symbols in running text as formulas; skip code, formulas and headings."""
    if docname not in ("theory", "invariant"):
        return
    # Code, formulas and headings are at odd positions.
    skipped = r"(```.*?```|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|^#.*?$)"
    parts = re.split(skipped, source[0], flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):
        text = INDEXED.sub(_formula, parts[i])
        pieces = re.split(r"(\$[^$]*\$)", text)
        pieces[::2] = [GREEK.sub(r"$\1$", piece) for piece in pieces[::2]]
        parts[i] = "".join(pieces)
    source[0] = "".join(parts)


def _formula(match: re.Match[str]) -> str:
    symbol, index = match.groups()
    # latex2mathml does not combine a letter with an accent.
    return f"${symbol}_{{{index}}}$" if len(symbol) == 1 else f"{symbol}<sub>{index}</sub>"


def find_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a reference to the module that defines a name to the public name."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    documented = {id(names.resolve(name)): name for group in names.groups() for name in group.names}
    try:
        name = documented[id(names.resolve(target))]
    except (AttributeError, ImportError, KeyError, ValueError):
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], name, node, content
    )


def link_guide(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Link the page of the guide that explains a public name, below its summary."""
    page = names.guide_page(name) if what in ("class", "function") else None
    if page:
        first = next(number for number, line in enumerate(lines) if line)
        end = next((number for number in range(first, len(lines)) if not lines[number]), len(lines))
        lines[end:end] = ["", f"Read more in the user guide: :doc:`/{page}`."]


def setup(app: Any) -> dict[str, bool]:
    """Connect the functions above to build events."""
    app.connect("config-inited", make_pages)
    app.connect("source-read", replace_links)
    app.connect("source-read", show_symbols)
    app.connect("source-read", list_commands)
    app.connect("doctree-read", name_table_headings)
    app.connect("autodoc-process-docstring", link_guide, priority=600)  # after numpydoc
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
