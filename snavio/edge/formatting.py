"""Writes a tree in the one form that a Hookaidofile has, with every comment and every word as it was quoted.

Never changes a value: words are copied, so an escape that nobody knows is still there afterwards.
"""

from __future__ import annotations

from typing import Final

from snavio.edge.tree import DirectiveBlock, Remark, Statement

INDENT: Final = "  "
WIDEST: Final = 100


def formatted(file: DirectiveBlock) -> str:
    """The text of a file."""
    lines: list[str] = []
    _statements(file, "", lines)
    return "\n".join(lines) + "\n" if lines else ""


def header(statement: Statement) -> str:
    """The words of a statement."""
    return " ".join(word.raw for word in statement.words)


def _statements(block: DirectiveBlock, indent: str, lines: list[str]) -> None:
    first = True
    for statement in block.statements:
        _remarks(statement.leading, indent, lines, first=first)
        blank = statement.blank_before and not (first and not statement.leading)
        if blank:
            lines.append("")
        _statement(statement, indent, lines)
        first = False
    _remarks(block.closing, indent, lines, first=first)


def _remarks(remarks: tuple[Remark, ...], indent: str, lines: list[str], *, first: bool) -> None:
    for remark in remarks:
        if remark.blank_before and not first:
            lines.append("")
        lines.append(indent + remark.text)
        first = False


def _statement(statement: Statement, indent: str, lines: list[str]) -> None:
    trailing = f" {statement.trailing}" if statement.trailing else ""
    start = indent + header(statement)
    block = statement.block
    if block is None:
        lines.append(start + trailing)
        return
    inline = _inline(block, len(start))
    if inline:
        lines.append(f"{start} {inline}{trailing}")
        return
    opening = f" {block.opening}" if block.opening else ""
    lines.append(f"{start} {{{opening}")
    _statements(block, indent + INDENT, lines)
    lines.append(indent + "}" + trailing)


def _inline(block: DirectiveBlock, before: int) -> str:
    """A block on one line, if it was on one and still fits; else empty."""
    if (
        block.opening
        or block.closing
        or any(each.block is not None or each.leading or each.trailing for each in block.statements)
    ):
        return ""
    if not block.statements:
        return "{}"
    text = "{ " + "; ".join(header(each) for each in block.statements) + " }"
    return text if block.inline and before + 1 + len(text) <= WIDEST else ""
