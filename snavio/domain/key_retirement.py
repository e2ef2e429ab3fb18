"""Decides if an HMAC key version can be retired without refusing commands, and when to warn its source.

Pure. Never says yes on less than two days of observation: no reports from a Signer that just started are not silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from snavio.domain.keyset import Keyset, KeyState, KeyVersion

HOUR_NS = 3600 * 1_000_000_000
DAY_NS = 24 * HOUR_NS
IMMINENT_NS = 48 * HOUR_NS
WATCHED_NS = 48 * HOUR_NS
"""Longer than a producer that signs once a day can be silent."""


@dataclass(frozen=True, slots=True)
class Use:
    """Observed traffic of one key version."""

    last_hour: int = 0
    last_day: int = 0
    last_used_ns: int = 0
    """0 if it was never seen."""
    last_two_days: int = 0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A retirement that is rehearsed: everything is accepted, and what it would have refused is counted."""

    minimum: str
    """Versions below this one would be refused."""
    since_ns: int
    would_refuse: int = 0
    last_ns: int = 0
    """Time of the last command that it would have refused; 0 for none."""

    def noted(self, version: str, commands: int, now_ns: int) -> Rehearsal:
        """The rehearsal after commands that were let in under `version`."""
        if number_of(version) >= number_of(self.minimum):
            return self
        return replace(self, would_refuse=self.would_refuse + commands, last_ns=now_ns)


@dataclass(frozen=True, slots=True)
class Retirement:
    """The answer to "safe to retire?", with its reason."""

    safe: bool
    reason: str


def retirement(
    keyset: Keyset,
    version: KeyVersion,
    *,
    use: Use,
    polled_at_ns: int | None,
    observed_since_ns: int,
    now_ns: int,
) -> Retirement:
    """The answer for `version` at this time."""
    match keyset.state(version, now_ns):
        case KeyState.PRIMARY:
            return Retirement(False, "producers sign with it")
        case KeyState.SPREADING:
            return Retirement(False, "it is on its way to become primary")
        case KeyState.ENDED | KeyState.REVOKED:
            return Retirement(True, "it is not accepted any more")
        case KeyState.PREVIOUS:
            pass
    if many := max(use.last_day, use.last_two_days):
        commands = "1 command" if many == 1 else f"{many:,} commands"
        return Retirement(False, f"it signed {commands} in the last 48 h")
    rotated_ns = keyset.replaced_ns(version)
    if polled_at_ns is None:
        return Retirement(False, "the source has never asked for its keys, so it cannot know a newer one")
    if polled_at_ns < rotated_ns:
        return Retirement(False, "the source has not asked for its keys since the rotation")
    if now_ns - observed_since_ns < WATCHED_NS:
        hours = max(0, now_ns - observed_since_ns) // HOUR_NS
        return Retirement(False, f"traffic has been watched for {hours} h only, and it takes 48 h to be sure")
    return Retirement(True, "no traffic in the last 48 h, and the source has asked since the rotation")


def is_legacy(keyset: Keyset, version: KeyVersion, now_ns: int) -> bool:
    """True if `version` was replaced and is accepted only for the overlap."""
    return keyset.state(version, now_ns) is KeyState.PREVIOUS


def expiry_is_imminent(keyset: Keyset, version: KeyVersion, *, polled_at_ns: int | None, now_ns: int) -> bool:
    """True if a version in use ends soon and its producer has not asked for the newer one."""
    if not is_legacy(keyset, version, now_ns) or not version.not_after_ns:
        return False
    asked = polled_at_ns is not None and polled_at_ns >= keyset.replaced_ns(version)
    return not asked and version.not_after_ns - now_ns <= IMMINENT_NS


def number_of(version: str) -> int:
    """The number of `hmac-v3`; 0 for a name that has none."""
    digits = version.rpartition("-v")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
