"""Turns a telemetry row into the steps of a command's way through the mesh.

Never claims a step that the row does not attest: steps that were not reached or not checked are marked so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from snavio.domain.verdict import Verdict
from snavio.telemetry.recent_commands import Sighting
from snavio.v1 import explain_pb2 as wire
from snavio.v1.slow_pb2 import EscalationReason
from snavio.v1.telemetry_pb2 import CachePhase, GrantKind, TelemetryBlock

STEPS: Final = (
    "schema",
    "window",
    "key",
    "acl",
    "bans",
    "grant",
    "dedupe",
    "route",
    "queue",
    "attempts",
)
PASSED, REFUSED, NOTE = wire.STEP_STATE_PASSED, wire.STEP_STATE_REFUSED, wire.STEP_STATE_NOTE
NOT_REACHED, UNKNOWN = wire.STEP_STATE_NOT_REACHED, wire.STEP_STATE_UNKNOWN

_REFUSED_AT: Final[Mapping[Verdict, str]] = {
    Verdict.TIMESTAMP_OUTSIDE_WINDOW: "window",
    Verdict.REPLAYED: "window",
    Verdict.UNKNOWN_KEY_VERSION: "key",
    Verdict.KEY_EXPIRED: "key",
    Verdict.KEY_REVOKED: "key",
    Verdict.HMAC_MISMATCH: "key",
    Verdict.WRONG_AUDIENCE: "key",
    Verdict.SUSPENDED: "bans",
    Verdict.ACL_DENY: "acl",
    Verdict.FROZEN: "bans",
    Verdict.RATE_LIMIT_EXCEEDED: "grant",
    Verdict.FAIRNESS_VIOLATION: "grant",
    Verdict.CONFLICT: "dedupe",
    Verdict.ROUTE_MISSING: "route",
    Verdict.DELIVERY_FAILURE: "queue",
    Verdict.OUTCOME_UNKNOWN: "queue",
    Verdict.SATURATED: "queue",
}
_GRANTS: Final[Mapping[int, str]] = {
    GrantKind.GRANT_KIND_UNLIMITED: "The route has no limit.",
    GrantKind.GRANT_KIND_PREFETCHED: "A permit that Fast had fetched before.",
    GrantKind.GRANT_KIND_ARBITRATED: "A permit that Slow took for this command.",
    GrantKind.GRANT_KIND_SHADOW: "Over a limit that only counts.",
}
_Facts = dict[str, str]


def trace_of(sighting: Sighting, *, instance: str) -> wire.Trace | None:
    """The steps of a row; None for a row that is not about a command's result."""
    block, row = sighting.block, sighting.row
    number = block.verdict[row] if row < len(block.verdict) else 0
    if not number:
        return None
    verdict = Verdict(number)
    lane, run = block.lanes[block.lane[row]], block.runs[block.run[row]]
    text = block.dictionary
    escalation = _word(EscalationReason.Name(lane.escalation)) if lane.escalation else ""
    trace = wire.Trace(
        instance=instance,
        path=block.service,
        source=text[lane.source],
        target=text[lane.target],
        name=text[lane.name],
        verdict=verdict.reason,
        escalation=escalation,
        sent_unix_ns=block.sent_unix_ns[row] if row < len(block.sent_unix_ns) else 0,
        admitted_unix_ns=run.admitted_unix_ns,
        settled_unix_ns=block.settled_unix_ns,
    )
    stopped = _REFUSED_AT.get(verdict, "schema" if verdict.invalid else "")
    detail = _detail(block, row)
    for step in STEPS:
        trace.step.append(_step(step, block, row, verdict=verdict, stopped=stopped, detail=detail))
    return trace


def _step(
    step: str,
    block: TelemetryBlock,
    row: int,
    *,
    verdict: Verdict,
    stopped: str,
    detail: TelemetryBlock.Detail | None,
) -> wire.TraceStep:
    facts = _facts(step, block, row)
    if step == stopped:
        if detail is not None:
            facts |= _hints(detail)
        said = detail.detail if detail is not None and detail.detail else f"Refused: {verdict.reason}."
        return wire.TraceStep(step=step, state=REFUSED, detail=said, fact=facts)
    if stopped and _rank(step, block.service) > _rank(stopped, block.service):
        return wire.TraceStep(step=step, state=NOT_REACHED, detail="It never came so far.", fact={})
    state, said = _passed(step, block, row, verdict)
    return wire.TraceStep(step=step, state=state, detail=said, fact=facts)


def _rank(step: str, service: str) -> int:
    """The order in which steps are decided, which differs from the order of display: a missing route is found before
    any right, and a suspended source before its key.
    """
    if step == "route":
        return STEPS.index("acl") * 2 - 1
    if step == "bans" and service == "shield":
        return STEPS.index("window") * 2 - 1
    return STEPS.index(step) * 2


def _passed(step: str, block: TelemetryBlock, row: int, verdict: Verdict) -> tuple[wire.StepState, str]:
    lane, run = block.lanes[block.lane[row]], block.runs[block.run[row]]
    escalation = lane.escalation
    if step in ("schema", "window", "key"):
        version = block.dictionary[run.key_version]
        verified = f"Verified under {version}." if version else "Verified."
        timely = "Signed within the time window, and not seen before."
        return PASSED, {"schema": "Well-formed.", "window": timely, "key": verified}[step]
    match step:
        case "acl" if block.service == "slow":
            # Its age is none: it was asked for this very decision.
            version = f" by version {lane.acl_version}" if lane.acl_version else ""
            return PASSED, f"Allowed{version}: read from Registry at the moment of the decision."
        case "acl" if lane.phase:
            return PASSED, (
                f"Allowed by version {lane.acl_version}, {lane.acl_age_ms} ms old, {_phase(lane.phase)}."
            )
        case "acl":
            return PASSED, "Allowed: read from Registry at the moment of the decision."
        case "bans" if escalation == EscalationReason.ESCALATION_REASON_WARM_BANNED:
            return NOTE, "The source is banned from the warm path: decided by Slow."
        case "bans" if escalation == EscalationReason.ESCALATION_REASON_COLD_ONLY:
            return NOTE, "Source, route or dispatcher is set to the slow path: decided by Slow."
        case "bans":
            return PASSED, "On no list."
        case "grant":
            return (
                (PASSED, _GRANTS[lane.grant])
                if lane.grant in _GRANTS
                else (UNKNOWN, "No permit is recorded.")
            )
        case "dedupe" if verdict is Verdict.DUPLICATE:
            return NOTE, "Delivered before; the first outcome was answered."
        case "dedupe" if escalation == EscalationReason.ESCALATION_REASON_DEDUPE_REQUIRED:
            return PASSED, "Strict: the first with this id."
    topic = block.dictionary[lane.topic]
    told = {
        "dedupe": "No delivery with this id was in the way.",
        "route": f"To {topic}." if topic else "A route was found.",
        "queue": "Durable in its target queue.",
    }
    return (PASSED, told[step]) if step in told else (UNKNOWN, "Not looked up.")


def _facts(step: str, block: TelemetryBlock, row: int) -> _Facts:
    lane, run = block.lanes[block.lane[row]], block.runs[block.run[row]]
    facts: _Facts = {}
    match step:
        case "window" if run.admitted_unix_ns and row < len(block.sent_unix_ns):
            facts["skew_ms"] = str((run.admitted_unix_ns - block.sent_unix_ns[row]) // 1_000_000)
        case "key" if run.key_version:
            facts["version"] = block.dictionary[run.key_version]
        case "acl" if lane.phase and block.service == "slow":
            if lane.acl_version:
                facts["version"] = str(lane.acl_version)
        case "acl" if lane.phase:
            facts |= {
                "version": str(lane.acl_version),
                "age_ms": str(lane.acl_age_ms),
                "phase": _phase(lane.phase),
            }
        case "grant" if lane.grant:
            facts["kind"] = _word(GrantKind.Name(lane.grant))
        case "route" if lane.topic:
            facts["topic"] = block.dictionary[lane.topic]
    return facts


def _hints(detail: TelemetryBlock.Detail) -> _Facts:
    facts: _Facts = {}
    if detail.retry_after_ms:
        facts["retry_after_ms"] = str(detail.retry_after_ms)
    if detail.dispatch_volume:
        facts |= {
            "source_share": f"{detail.source_share:.4f}",
            "competing_share": f"{detail.competing_share:.4f}",
            "dispatch_volume": str(detail.dispatch_volume),
        }
    return facts


def _detail(block: TelemetryBlock, row: int) -> TelemetryBlock.Detail | None:
    kind = block.kind[row] if row < len(block.kind) else 0
    for detail in block.details:
        at = detail.row
        alike = detail.alike and (
            block.lane[at] == block.lane[row]
            and block.verdict[at] == block.verdict[row]
            and (block.kind[at] if at < len(block.kind) else 0) == kind
        )
        if at == row or alike:
            found: TelemetryBlock.Detail = detail
            return found
    return None


def _word(name: str) -> str:
    """`cache_miss` of ESCALATION_REASON_CACHE_MISS."""
    for prefix in ("ESCALATION_REASON_", "GRANT_KIND_", "CACHE_PHASE_"):
        name = name.removeprefix(prefix)
    return name.lower()


def _phase(phase: int) -> str:
    return _word(CachePhase.Name(phase))
