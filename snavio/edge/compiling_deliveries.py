"""Compiles delivery targets: retries, timeouts, headers, signing and pauses.

Never accepts half of a signature: what says how to sign needs a key to sign with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snavio.edge.compiling_policies import known_secrets
from snavio.edge.findings import FindingLog
from snavio.edge.plan import DeliveryTarget, RequestSigning, RetrySchedule, TargetPause
from snavio.edge.reading import ReadBlock, ReadDirective, named_defaults
from snavio.edge.references import EdgeSecret, SecretChoice

_SIGNS = ("sign signature_header", "sign timestamp_header", "sign secret_selection", "sign standard_webhooks")


@dataclass(frozen=True, slots=True)
class DeliveryDefaults:
    """The values of a target that says nothing."""

    retry: RetrySchedule
    timeout_ns: int
    concurrency: int
    https_only: bool


def compile_delivery_defaults(
    block: ReadBlock, findings: FindingLog, *, https_only: bool
) -> DeliveryDefaults:
    """The `deliver` of `defaults`."""
    built_in = _schedule(named_defaults("default_deliver", "retry"))
    return DeliveryDefaults(
        retry=_retry(block, built_in, findings),
        timeout_ns=block.value("timeout"),
        concurrency=block.value("concurrency"),
        https_only=https_only,
    )


def compile_targets(
    route: ReadBlock, defaults: DeliveryDefaults, secrets: dict[str, EdgeSecret], findings: FindingLog
) -> tuple[DeliveryTarget, ...]:
    """The targets of a route."""
    found: dict[str, DeliveryTarget] = {}
    for each in [*route.all("deliver"), *route.all("deliver exec")]:
        exec_ = each.row.key == "deliver exec"
        name = each.values[0] if each.values else None
        block = each.block or ReadBlock("exec" if exec_ else "deliver", each.at)
        target = _target(name, block, defaults, secrets, findings, exec_=exec_)
        if name is None:
            continue
        if name in found:
            findings.mistake(
                each.at, "duplicate-target", f"The target `{name}` is there twice in this route."
            )
        if not exec_ and defaults.https_only and name.startswith("http:"):
            findings.warning(
                each.at, "https-only", f"`{name}` has no TLS; `egress {{ https_only on }}` will refuse it."
            )
        found[name] = target
    return tuple(found.values())


def _target(
    name: str | None,
    block: ReadBlock,
    defaults: DeliveryDefaults,
    secrets: dict[str, EdgeSecret],
    findings: FindingLog,
    *,
    exec_: bool,
) -> DeliveryTarget:
    return DeliveryTarget(
        url=None if exec_ else name,
        program=name if exec_ else None,
        retry=_retry(block, defaults.retry, findings),
        timeout_ns=block.given("timeout") or defaults.timeout_ns,
        headers=() if exec_ else _unique(block, "header", "duplicate-header", findings, fold=True),
        environment=_unique(block, "env", "duplicate", findings, fold=False) if exec_ else (),
        signing=None if exec_ else _signing(block, secrets, findings),
        pause=None if exec_ else _pause(block.one("pause")),
    )


def _unique(
    block: ReadBlock, key: str, reason: str, findings: FindingLog, *, fold: bool
) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[str, str]] = {}
    for each in block.all(key):
        if not each.known or len(each.values) != 2:
            continue
        name, value = each.values
        folded = name.lower() if fold else name
        if folded in found:
            findings.mistake(each.at, reason, f"`{key} {name}` is there twice.")
        found[folded] = (name, value)
    return tuple(found.values())


def _retry(block: ReadBlock, otherwise: RetrySchedule, findings: FindingLog) -> RetrySchedule:
    directive = block.one("retry")
    if directive is None:
        return otherwise
    base = {
        "max": otherwise.max_retries,
        "base": otherwise.base_ns,
        "cap": otherwise.cap_ns,
        "jitter": otherwise.jitter,
    }
    named = {key: value for key, value in directive.named.items() if value is not None}
    schedule = _schedule({**base, **named})
    if "base" in named and "cap" in named and schedule.cap_ns < schedule.base_ns:
        findings.mistake(directive.at, "retry-cap", "`cap` of `retry` is shorter than its `base`.")
    return schedule


def _schedule(named: Mapping[str, Any]) -> RetrySchedule:
    return RetrySchedule(named["max"], named["base"], named["cap"], named["jitter"])


def _signing(block: ReadBlock, secrets: dict[str, EdgeSecret], findings: FindingLog) -> RequestSigning | None:
    direct, named = block.one("sign hmac"), block.all("sign hmac secret_ref")
    if direct is None and not named:
        for key in _SIGNS:
            if (given := block.one(key)) is not None:
                findings.mistake(given.at, "sign-without-hmac", f"`{key}` needs `sign hmac`.")
        return None
    if direct is not None and named:
        findings.mistake(
            direct.at, "sign-twice", "`sign hmac` has a reference or `secret_ref`s, and not both."
        )
    selection = block.one("sign secret_selection")
    if selection is not None and not named:
        findings.mistake(
            selection.at, "selection-without-ref", "`sign secret_selection` needs `sign hmac secret_ref`."
        )
    signature, timestamp = block.value("sign signature_header"), block.value("sign timestamp_header")
    if signature and timestamp and signature.lower() == timestamp.lower():
        place = block.place(
            "sign timestamp_header" if block.one("sign timestamp_header") else "sign signature_header"
        )
        findings.mistake(
            place,
            "headers-equal",
            "`sign signature_header` and `sign timestamp_header` must differ, their defaults included.",
        )
    return RequestSigning(
        reference=direct.values[0] if direct and direct.values else None,
        secret_names=known_secrets(block, "sign hmac secret_ref", secrets, findings),
        standard_webhooks=block.one("sign standard_webhooks") is not None,
        signature_header=signature,
        timestamp_header=timestamp,
        choice=SecretChoice(block.value("sign secret_selection") or SecretChoice.NEWEST.value),
    )


def _pause(directive: ReadDirective | None) -> TargetPause | None:
    # What was left out has its mistake already.
    if directive is None or not directive.known or not {"after", "probe"} <= set(directive.named):
        return None
    return TargetPause(directive.named["after"], directive.named["probe"])
