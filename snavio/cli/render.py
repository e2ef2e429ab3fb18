"""The one way that a result is shown: a table or lines for people, one JSON document for programs.

Never lets a control character of a name, a payload or an error reach the terminal, and never takes a bracket for
markup.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from snavio.cli.output import ago, console, count, fancy, line, print_json

Row = Mapping[str, Any]
MOST_LETTERS: Final = 60
MOST_DRAWN: Final = 1000
"""Rows of a table that are drawn with colour: rich measures every cell, which takes seconds for ten thousand."""
LAST_COLUMN: Final = 20
"""A table is stacked when it would leave less than this to its last column."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The text of a type's values, and their alignment."""

    text: Callable[[Any], str]
    right: bool = False


def one_line(text: str, most: int = MOST_LETTERS) -> str:
    """`text` without what would move a cursor or begin another line, of at most `most` letters (0: all)."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text.rstrip("\n"))
    return shown if not most or len(shown) <= most else shown[: most - 1] + "…"


def share_text(part: float) -> str:
    """12 % · 0.3 % · 0 %."""
    percent = part * 100
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


TEXT: Final = Kind(str)
CLIPPED: Final = Kind(one_line)
LIST: Final = Kind(", ".join)
NUMBER: Final = Kind(count, right=True)
SHARE: Final = Kind(share_text, right=True)
AGE: Final = Kind(ago, right=True)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its title, the key of its value in a row (by default the title), and the type of it."""

    title: str
    key: str | Callable[[Row], Any] = ""
    kind: Kind = TEXT

    def cell(self, row: Row) -> str:
        """The value of a row as text; `-` for none."""
        value = self.key(row) if callable(self.key) else row[self.key or self.title]
        return "-" if value is None or value == "" else one_line(self.kind.text(value), most=0)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under titles. The rows are the documents that `--json` prints, or are made like them."""

    columns: Sequence[TableColumn | str]
    rows: Sequence[Row]
    none: str = ""
    """The sentence in place of a table without rows."""
    style: Callable[[Row], str] | None = None
    """The rich style of a row."""
    tabs: bool = False
    """Away from a terminal, columns are divided by tabs instead of being aligned."""
    title: str = ""

    def cells(self) -> tuple[list[TableColumn], list[list[str]]]:
        """The columns, and the text of every cell."""
        columns = [
            column if isinstance(column, TableColumn) else TableColumn(column) for column in self.columns
        ]
        return columns, [[column.cell(row) for column in columns] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Record:
    """Names with their values, one per line."""

    pairs: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Styled:
    """A line with a rich style where there is colour."""

    text: str
    style: str


def picked(one: Any, *names: str) -> dict[str, Any]:
    """These attributes of a value, as a document."""
    return {name: getattr(one, name) for name in names}


def payload_document(payload: bytes) -> dict[str, str]:
    """A payload in a document: as text, or in base64 when it is none."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def payload_text(payload: bytes, size: int) -> str:
    """A payload of `size` bytes for people; its size alone when it is no text, or was not asked for."""
    try:
        return payload.decode() if payload or not size else f"({size} bytes)"
    except UnicodeDecodeError:
        return f"({size} bytes)"


Block = str | Table | Record | Styled | None
BLANK: Final = Styled("", "")
"""An empty line; empty text is left out."""


def show(document: Any, *blocks: Block, json: bool) -> None:
    """Print `document` as JSON, or `blocks` for people."""
    if json:
        print_json(document)
        return
    show_blocks(blocks)


def show_blocks(blocks: Iterable[Block]) -> None:
    """Print what a person shall read; None and empty text are left out."""
    for block in blocks:
        match block:
            case Table():
                _table(block)
            case Record():
                for text in _record(block):
                    line(text)
            case Styled():
                _styled(one_line(block.text, most=0), block.style)
            case str() if block:
                line(block)


class Screen:
    """Readings that follow each other: drawn over the one before on a terminal, printed one by one elsewhere."""

    def __init__(self, *, json: bool = False, live: bool = True) -> None:
        out = console()
        self._json = json
        self._live: Any = None
        if live and not json and fancy(out):
            from rich.live import Live

            self._live = Live(console=out, auto_refresh=False)

    @property
    def live(self) -> bool:
        """True when readings are drawn over each other."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_ended: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, document: Any, *blocks: Block) -> None:
        """Draw a reading in place of the one before, or print it."""
        if self._live is None:
            show(document, *blocks, json=self._json)
        else:
            from rich.console import Group

            self._live.update(Group(*_drawn(blocks)), refresh=True)

    def say(self, document: Any, *blocks: Block) -> None:
        """Print what stays in sight, above the reading."""
        if self._live is None:
            show(document, *blocks, json=self._json)
        else:
            self._live.console.print(*_drawn(blocks), sep="\n")


def time_text(unix_ns: int, *, milliseconds: bool = False) -> str | None:
    """A time as RFC 3339 in UTC; None for 0, which means none."""
    if not unix_ns:
        return None
    at = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).replace(
        microsecond=unix_ns // 1000 % 1_000_000
    )
    return at.isoformat(timespec="milliseconds" if milliseconds else "seconds").replace("+00:00", "Z")


def _styled(text: str, style: str) -> None:
    out = console()
    if fancy(out):
        out.print(text, style=style, markup=False)
    else:
        line(text)


def _record(record: Record) -> list[str]:
    width = max(len(name) for name, _ in record.pairs)
    return [f"{name:<{width}}  {one_line(str(value), most=0)}" for name, value in record.pairs]


def _drawn(blocks: Iterable[Block]) -> Iterator[Any]:
    """The blocks as rich draws them on a live screen."""
    from rich.text import Text

    for block in blocks:
        match block:
            case Table():
                if block.title:
                    yield Text(block.title, style="bold")
                yield _rich(block, *block.cells()) if block.rows else Text(block.none)
            case Record():
                yield Text("\n".join(_record(block)))
            case Styled():
                yield Text(one_line(block.text, most=0), style=block.style)
            case str() if block:
                yield Text(block)


def _table(table: Table) -> None:
    if not table.rows:
        if table.none:
            line(table.none)
        return
    out = console()
    columns, rows = table.cells()
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    if table.tabs and not fancy(out):
        line("\n".join("\t".join(row) for row in [titles, *rows]))
        return
    if table.title:
        line(table.title)
    if out.is_terminal and sum(widths[:-1]) + 3 * len(widths) + min(widths[-1], LAST_COLUMN) > out.width:
        for row in rows:
            _stacked(row, out.width)
    elif fancy(out) and len(rows) <= MOST_DRAWN:
        out.print(_rich(table, columns, rows))
    else:
        shapes = [
            f"{{:{'>' if column.kind.right else '<'}{width}}}"
            for column, width in zip(columns, widths, strict=True)
        ]
        shape = "  ".join(shapes)
        # One write: a flush for each of ten thousand rows is felt.
        line("\n".join(shape.format(*row).rstrip() for row in [titles, *rows]))


def _stacked(row: Sequence[str], width: int) -> None:
    """As many cells as fit on a line, the rest indented below: folded into narrow columns, no id could be copied."""
    shown = row[0]
    for cell in (cell for cell in row[1:] if cell != "-"):
        if len(shown) + 2 + len(cell) > width:
            line(shown)
            shown = f"  {cell}"
        else:
            shown += f"  {cell}"
    line(shown)


def _rich(table: Table, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        drawn.add_column(
            Text(column.title),
            justify="right" if column.kind.right else "left",
            overflow="fold",
            no_wrap=place == 0,
        )
    for row, cells in zip(table.rows, rows, strict=True):
        drawn.add_row(*map(Text, cells), style=table.style(row) if table.style else "")
    return drawn
