"""Compares two Hookaidofiles by route and directive, and says of each change when a reload brings it into force.

Never shows a credential: a changed one is named, and its text is left out. Layout, comments and short forms are no
difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from snavio.edge.findings import TextPosition
from snavio.edge.kinds import SECRET_KINDS
from snavio.edge.language import LANGUAGE, Directive, ReloadClass
from snavio.edge.tree import DirectiveBlock, Statement

HIDDEN: Final = "*****"
_CHANNELS: Final = ("inbound", "outbound", "internal")


class ChangeKind(Enum):
    """The fate of a directive."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class DirectiveChange:
    """One difference. `path` leads to the directive; before and after are its values, empty for none."""

    kind: ChangeKind
    path: tuple[str, ...]
    before: str
    after: str
    reload: ReloadClass
    at: TextPosition

    def __str__(self) -> str:
        where = " › ".join(self.path)
        match self.kind:
            case ChangeKind.ADDED:
                said = f"+ {where} {self.after}"
            case ChangeKind.REMOVED:
                said = f"- {where} {self.before}"
            case ChangeKind.CHANGED:
                said = f"~ {where}: {self.before} → {self.after}"
            case ChangeKind.MOVED:
                said = f"~ {where}: {self.before} → {self.after}"
        return f"{said.rstrip()}  [{self.reload.value}]"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Values of one directive: as they are compared, and as they are shown."""

    compared: tuple[tuple[str, ...], ...]
    shown: tuple[str, ...]
    row: Directive
    at: TextPosition


def differences(before: DirectiveBlock, after: DirectiveBlock) -> tuple[DirectiveChange, ...]:
    """All differences, in the order of the newer file; what is gone comes last."""
    old, new = _flat(before), _flat(after)
    found: list[DirectiveChange] = []
    for path, leaf in new.items():
        earlier = old.get(path)
        if earlier is None:
            found.append(_change(ChangeKind.ADDED, path, "", _joined(leaf), leaf))
        elif earlier.compared != leaf.compared:
            found.append(_change(ChangeKind.CHANGED, path, _joined(earlier), _joined(leaf), leaf))
    for path, leaf in old.items():
        if path not in new:
            found.append(_change(ChangeKind.REMOVED, path, _joined(leaf), "", leaf))
    inside = {each.path[:-1] for each in found}
    # A block that came or went is told by what stands in it, unless it has a name or a listener of its own.
    told = [each for each in found if each.before or each.after or _is_named(each) or each.path not in inside]
    return (*told, *_moved(old, new))


def _moved(old: dict[tuple[str, ...], _Leaf], new: dict[tuple[str, ...], _Leaf]) -> Iterator[DirectiveChange]:
    """Routes of both files in another order: the first that matches takes a request, so order is meaning."""
    common = [path for path in new if _is_route(path) and path in old]
    known = set(common)
    earlier = {path: place for place, path in enumerate(path for path in old if path in known)}
    for place, path in enumerate(common):
        if earlier[path] != place:
            yield DirectiveChange(
                ChangeKind.MOVED,
                path,
                f"place {earlier[path] + 1}",
                f"place {place + 1}",
                ReloadClass.LIVE,
                new[path].at,
            )


def _is_named(change: DirectiveChange) -> bool:
    return _is_route(change.path) or " " in change.path[-1] or change.reload is ReloadClass.RESTART


def _is_route(path: tuple[str, ...]) -> bool:
    return len(path) == 1 and path[0].startswith("route ")


def _change(kind: ChangeKind, path: tuple[str, ...], before: str, after: str, leaf: _Leaf) -> DirectiveChange:
    if before == after and kind is ChangeKind.CHANGED:
        after = f"{after} (another one)"
    return DirectiveChange(kind, path, before, after, leaf.row.reload, leaf.at)


def _joined(leaf: _Leaf) -> str:
    return ", ".join(each for each in leaf.shown if each)


def _flat(file: DirectiveBlock) -> dict[tuple[str, ...], _Leaf]:
    found: dict[tuple[str, ...], _Leaf] = {}
    _walk(file, (), "inbound", found)
    return found


def _walk(
    block: DirectiveBlock, above: tuple[str, ...], channel: str, found: dict[tuple[str, ...], _Leaf]
) -> None:
    for each in block.statements:
        name = each.row.name[0]
        if block.name == "file" and name in _CHANNELS and len(each.row.name) == 1:
            if each.block is not None:
                _walk(each.block, above, name, found)
            continue
        below, texts, shown = _address(each, above)
        if each.row.opens == "route":
            own = name if name in _CHANNELS else channel
            _add(found, below, (own,), own if own != "inbound" else "", each)
        elif each.row.means is not None:
            if texts:
                inner = (*below, each.row.means[1])
                _add(found, inner, texts, " ".join(shown), each)
        elif not each.row.opens or (texts and below == (*above, each.row.canonical)):
            _add(found, below, texts, " ".join(shown), each)
        else:
            _add(found, below, (), "", each)
        if each.block is not None:
            _walk(each.block, below, channel, found)


def _address(
    each: Statement, above: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Path, compared and shown values; what names one of several stands in the path."""
    kinds = _kinds(each)
    texts = tuple(f"{keyword} {word.text}".strip() for keyword, word in each.values)
    shown = tuple(_hidden(text, kind) for text, kind in zip(texts, kinds, strict=True))
    if each.row.opens == "route":
        return (*above, f"route {texts[0].rstrip('/') or '/'}"), (), ()
    named = (
        each.row.repeatable
        and each.row.opens
        and texts
        and each.row.means is None
        and each.row.key != "match"
    )
    named = named or each.row.name[0] in ("@", "*")
    if named:
        label = texts[0] if each.row.name[0] in ("@", "*") else f"{each.row.canonical} {texts[0]}"
        return (*above, label), texts[1:], shown[1:]
    return (*above, each.row.canonical), texts, shown


def _kinds(each: Statement) -> list[str]:
    plain = [one.kind for one in each.row.positional]
    found, place = [], 0
    for keyword, _ in each.values:
        if keyword:
            found.append("text")
        else:
            found.append(plain[min(place, len(plain) - 1)])
            place += 1
    return found


def _hidden(text: str, kind: str) -> str:
    if kind == "ref":
        scheme, _, name = text.partition(":")
        return f"{scheme}:{name}" if scheme in ("env", "file", "vault") else HIDDEN
    return HIDDEN if kind in SECRET_KINDS else text


def _add(
    found: dict[tuple[str, ...], _Leaf],
    path: tuple[str, ...],
    texts: tuple[str, ...],
    shown: str,
    each: Statement,
) -> None:
    row, at = each.row, each.at
    if row.means is not None and texts:
        row = LANGUAGE[LANGUAGE[row.block].named(row.means[0]).opens].named(row.means[1])
    earlier = found.get(path)
    if earlier is None:
        found[path] = _Leaf((texts,), (shown,), row, at)
    else:
        found[path] = _Leaf((*earlier.compared, texts), (*earlier.shown, shown), earlier.row, earlier.at)
