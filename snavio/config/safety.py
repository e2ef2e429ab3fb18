"""Unsafe settings that need a second, confirming setting: one table, each row with its danger.

Never weakens a setting by itself: without the confirming setting the process does not start.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from snavio.config.mistakes import Mistake, SettingLocation
from snavio.config.sections import SERVICES, Section, split_address

LONGEST_WINDOW_MS = 300_000
LONGEST_RIGHTS_MS = {"critical": 5_000, "moderate": 30_000, "low": 120_000}
"""The age up to which each profile promises that a cached right is used at most."""
Chosen = Mapping[str, Section]


@dataclass(frozen=True, slots=True)
class SafetyRule:
    """One danger. `offenders` returns the (section, key) of each setting that creates it."""

    when: str
    danger: str
    word_section: str
    word_key: str
    offenders: Callable[[Chosen], Iterable[tuple[str, str]]]

    @property
    def word(self) -> str:
        """The confirming line to add, as it stands in the file."""
        return f"{self.word_key} = true"


def is_loopback(address: str) -> bool:
    """True if only this machine can reach `address`. A name that needs DNS is not loopback."""
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _public_addresses(chosen: Chosen) -> Iterator[tuple[str, str]]:
    """Public addresses that the chosen services listen on. Addresses of the others are only called: no danger."""
    for service in SERVICES:
        if service in chosen:
            mesh = chosen["mesh"]
            key = f"{service}_listen" if getattr(mesh, f"{service}_listen") else service
            if not is_loopback(getattr(mesh, key)):
                yield "mesh", key


def _public_https(chosen: Chosen) -> Iterator[tuple[str, str]]:
    mesh = chosen["mesh"]
    key = "https_listen" if getattr(mesh, "https_listen", None) else "https"
    if "gateway" in chosen and not is_loopback(getattr(mesh, key)):
        yield "mesh", key


def _public_health(chosen: Chosen) -> Iterator[tuple[str, str]]:
    for service in SERVICES:
        address = getattr(chosen["mesh"], f"{service}_health")
        if service in chosen and address and not is_loopback(address):
            yield "mesh", f"{service}_health"


def _public_enrolment(chosen: Chosen) -> Iterator[tuple[str, str]]:
    address = getattr(chosen.get("signer"), "enrol_listen", None)
    if address and not is_loopback(address):
        yield "signer", "enrol_listen"


def _amnesia(chosen: Chosen) -> Iterator[tuple[str, str]]:
    if getattr(chosen.get("mailbox"), "amnesia", False):
        yield "mailbox", "amnesia"


def _long_window(chosen: Chosen) -> Iterator[tuple[str, str]]:
    if getattr(chosen.get("shield"), "window_ms", 0) > LONGEST_WINDOW_MS:
        yield "shield", "window_ms"


def _late_revocations(chosen: Chosen) -> Iterator[tuple[str, str]]:
    for profile, longest_ms in LONGEST_RIGHTS_MS.items():
        if getattr(chosen["mesh"], f"acl_{profile}_stale_ms") > longest_ms:
            yield "mesh", f"acl_{profile}_stale_ms"


RULES: tuple[SafetyRule, ...] = (
    SafetyRule(
        when="a service listens on an address that is not a loopback address (`127.0.0.1`, `[::1]`, `localhost`)",
        danger="other machines can talk to the service; each still needs a certificate of this installation, "
        "but a stolen one then works from wherever this address can be reached",
        word_section="mesh",
        word_key="public_bind",
        offenders=_public_addresses,
    ),
    SafetyRule(
        when="`[signer] enrol_listen` is not a loopback address",
        danger="other machines can try enrolment tokens without showing a certificate; a token's secret, which "
        "works once, is all that guards that door",
        word_section="mesh",
        word_key="public_bind",
        offenders=_public_enrolment,
    ),
    SafetyRule(
        when="`[mesh] https` is not a loopback address",
        danger="other machines can open connections to the gateway; it reads no request of one that shows no "
        "certificate of this installation, and a stolen one works from wherever this address can be reached",
        word_section="mesh",
        word_key="public_bind",
        offenders=_public_https,
    ),
    SafetyRule(
        when="a service's health port is not on a loopback address",
        danger="other machines can ask whether the service is alive and ready; its metrics, which name tenants, still "
        "want the certificate of an operator or a scraper",
        word_section="mesh",
        word_key="public_bind",
        offenders=_public_health,
    ),
    SafetyRule(
        when="`[mailbox] amnesia` is true",
        danger="messages that were acknowledged as delivered are lost when the mailbox stops, however it stops, and so "
        "is which commands of strict routes were delivered: one that is sent again arrives again",
        word_section="mailbox",
        word_key="i_accept_losing_messages",
        offenders=_amnesia,
    ),
    SafetyRule(
        when=f"`[shield] window_ms` is above {LONGEST_WINDOW_MS}",
        danger="a captured command stays acceptable for minutes, and Shield must remember each tag for up to "
        "twice the window, so the nonce table fills, and refuses, earlier",
        word_section="shield",
        word_key="i_accept_a_long_replay_window",
        offenders=_long_window,
    ),
    SafetyRule(
        when="`[mesh] acl_critical_stale_ms` is above 5000, `acl_moderate_stale_ms` above 30000 or `acl_low_stale_ms` "
        "above 120000",
        danger="a revoked right works longer than its profile promises while Registry is away, and owners choose "
        "profiles by that promise",
        word_section="mesh",
        word_key="i_accept_late_revocations",
        offenders=_late_revocations,
    ),
)


def unsafe(chosen: Chosen, place: Callable[[str, str], SettingLocation]) -> list[Mistake]:
    """Every unsafe setting without its confirmation; `place` returns the origin of a setting.

    `chosen` must contain `[mesh]`.
    """
    found = []
    for rule in RULES:
        if getattr(chosen.get(rule.word_section), rule.word_key, False):
            continue
        for section, key in rule.offenders(chosen):
            value = json.dumps(getattr(chosen[section], key), default=str)
            variable = f"SNAVIO_{rule.word_section}__{rule.word_key}".upper()
            sentence = (
                f"[{section}] {key} = {value} is unsafe: {rule.danger}. If you mean it, add "
                f"`{rule.word}` to [{rule.word_section}], or set {variable}=true."
            )
            found.append(Mistake(place(section, key), sentence, section, key))
    return found
