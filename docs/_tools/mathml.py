"""Formulas as MathML, which browsers render without scripts or web fonts."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

#: An element with one symbol, as latex2mathml writes it.
SYMBOL = r"(<m[ion]\b[^>]*>[^<]*</m[ion]>)"
PRIME = "<mi>&#x02032;</mi>"
RAISED_PRIMES = (
    (re.compile(rf"<msup>{SYMBOL}{PRIME}</msup>"), r"\1"),
    (re.compile(rf"<msubsup>{SYMBOL}{SYMBOL}{PRIME}</msubsup>"), r"<msub>\1\2</msub>"),
)


def formula(latex: str, display: str = "inline") -> str:
    """Convert a formula to MathML. Primes are not superscripts: fonts already raise them."""
    text = convert(latex, display=display)
    for raised, base in RAISED_PRIMES:
        text = raised.sub(rf'{base}<mo lspace="0" rspace="0.1em">&#x02032;</mo>', text)
    return text


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(f'<span class="formula">{formula(node.astext())}</span>')
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{formula(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer under the name that conf.py uses."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
