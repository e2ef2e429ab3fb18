"""Differences of the directory and forecasts, as documents and as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from snavio.cli.render import Styled

if TYPE_CHECKING:
    from snavio.v1 import registry_pb2 as wire

COLOURS = {"+": "green", "~": "yellow", "-": "red"}
MARKS = {"PASSES": "ok  ", "FAILS": "FAIL", "NOTE": "note", "UNKNOWN": "?   ", "HIDDEN": "-   "}
STYLES = {"PASSES": "green", "FAILS": "bold red", "NOTE": "yellow", "UNKNOWN": "yellow", "HIDDEN": "dim"}


def difference_document(difference: wire.Difference) -> dict[str, Any]:
    """A difference for `--json`."""
    before, after = _fields(difference, "before"), _fields(difference, "after")
    entry = difference.after if difference.HasField("after") else difference.before
    return {
        "change": _sign(difference),
        "kind": entry.WhichOneof("value"),
        "before": before,
        "after": after,
        "version": difference.version,
    }


def check_document(triple: Sequence[str], check: wire.CheckResponse) -> dict[str, Any]:
    """A forecast for `--json`."""
    source, target, command = triple
    return {
        "source": source,
        "target": target,
        "command": command,
        "passes": check.passes,
        "verdict": check.verdict,
        "failing_gate": check.failing_gate or None,
        "acl_version": check.acl_version,
        "version": check.version,
        "gates": [
            {
                "gate": gate.gate,
                "state": state_name(gate.state).lower(),
                "detail": gate.detail,
                "advice": gate.advice,
            }
            for gate in check.gate
        ],
    }


def difference_lines(differences: Iterable[wire.Difference]) -> Iterator[Styled]:
    """One line per entry: what comes, what changes and how, what goes."""
    for difference in differences:
        sign = _sign(difference)
        yield Styled(f"{sign} {_words(difference)}", COLOURS[sign])


def forecast(triple: Sequence[str], check: wire.CheckResponse) -> Styled:
    """One line: what a command would meet, and what to do."""
    source, target, command = triple
    way = f"{source} → {target} {command}"
    failing = next((gate for gate in check.gate if gate.gate == check.failing_gate), None)
    if failing is None:
        notes = [gate.detail for gate in check.gate if state_name(gate.state) in ("NOTE", "UNKNOWN")]
        return Styled(f"  {way}: would be delivered" + (f" ({' '.join(notes)})" if notes else ""), "green")
    advice = f" {failing.advice}" if failing.advice else ""
    return Styled(f"  {way}: refused with {check.verdict} at {failing.gate}: {failing.detail}{advice}", "red")


def gate_lines(check: wire.CheckResponse) -> Iterator[Styled]:
    """Every gate on a line of its own."""
    for gate in check.gate:
        state = state_name(gate.state)
        yield Styled(f"  {MARKS[state]}  {gate.gate:<11}{gate.detail}", STYLES[state])
        if gate.advice:
            yield Styled(f"        {'':<11}{gate.advice}", "bold")


def state_name(number: int) -> str:
    """`PASSES`, `FAILS` and so on."""
    from snavio.v1.registry_pb2 import GateState

    name: str = GateState.Name(number)
    return name.removeprefix("GATE_STATE_")


def _sign(difference: wire.Difference) -> str:
    if not difference.HasField("before"):
        return "+"
    return "~" if difference.HasField("after") else "-"


def _words(difference: wire.Difference) -> str:
    before, after = _fields(difference, "before") or {}, _fields(difference, "after") or {}
    entry = difference.after if after else difference.before
    kind = entry.WhichOneof("value")
    said = dict(_flat(after or before))
    if before and after:
        old = dict(_flat(before))
        moved = [
            f"{name}: {old.get(name, '-')} → {said.get(name, '-')}"
            for name in sorted(old.keys() | said.keys())
            if old.get(name) != said.get(name)
        ]
        names = [text for name, text in said.items() if old.get(name) == text][:3]
        return f"{kind} {' '.join(names)}  {', '.join(moved)}"
    return f"{kind} " + " ".join(f"{name}={text}" for name, text in said.items())


def _fields(difference: wire.Difference, side: str) -> dict[str, Any] | None:
    from snavio.admin.documents import message_document

    if not difference.HasField(side):
        return None
    entry = getattr(difference, side)
    message = getattr(entry, entry.WhichOneof("value"))
    fields = message_document(message)
    # Fields with their defaults would hide the others.
    fields.pop("fairness" if _is_default_fairness(fields.get("fairness")) else "", None)
    return fields


def _is_default_fairness(fairness: Any) -> bool:
    from dataclasses import asdict

    from snavio.domain.directory import Fairness

    return bool(fairness == asdict(Fairness()))


def _flat(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, item in fields.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            words = ",".join(item) if isinstance(item, list) else str(item)
            for prefix_word in ("PROFILE_", "DEDUPE_MODE_", "QUEUE_KIND_", "CHANNEL_KIND_", "DISPATCH_MODE_"):
                words = words.removeprefix(prefix_word) if words.isupper() else words
            yield prefix + name, words.lower() if words.isupper() else words
