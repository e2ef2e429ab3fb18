"""Settings of the SDK: addresses, patience of a producer, limits of a consumer; values, valid once built.

Never reads the environment or a file unless asked to.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the services that producers and consumers talk to."""

    shield: str = "127.0.0.1:7401"
    signer: str = "127.0.0.1:7404"
    mailbox: str = "127.0.0.1:7406"
    trust_domain: str = DEFAULT_TRUST_DOMAIN

    def __post_init__(self) -> None:
        for name in ("shield", "signer", "mailbox"):
            host, _, port = getattr(self, name).rpartition(":")
            if not host or not port.isascii() or not port.isdigit():
                raise BadRequest(f"{name} is not an address like 127.0.0.1:7401.", reason="bad-address")

    @classmethod
    def from_config(cls, config: Path) -> Endpoints:
        """The addresses in the `[mesh]` section of a `snavio.toml`; defaults for what it leaves out."""
        try:
            mesh = tomllib.loads(config.read_text("utf-8")).get("mesh", {})
        except (OSError, ValueError):
            raise BadRequest(f"{config} cannot be read as TOML.", reason="bad-configuration") from None
        # The rest of the section is the services' business.
        known = ("shield", "signer", "mailbox", "trust_domain")
        return cls(**{name: str(mesh[name]) for name in known if name in mesh})


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Time and number of a producer's attempts."""

    timeout_s: float = 10.0
    """For one `send` with all of its attempts."""
    attempt_s: float = 5.0
    """For one attempt; what has no answer by then is `outcome-unknown` and may be tried again."""
    start_s: float = 10.0
    """For the first keys and the first connection."""
    max_attempts: int | None = None
    """A further bound for callers who want one: by itself, a send ends with its time or with the retry budget."""

    def __post_init__(self) -> None:
        if min(self.timeout_s, self.attempt_s, self.start_s) <= 0 or (
            self.max_attempts is not None and self.max_attempts < 1
        ):
            raise BadRequest("Times must be positive and max_attempts at least 1.", reason="bad-patience")


@dataclass(frozen=True, slots=True)
class ReceiveSettings:
    """Size and time limits of a consumer's receives."""

    visibility_s: float = 30.0
    """Lease time of a message without extension; extended at half of it."""
    max_unsettled: int = 2000
    """Messages that are prefetched, handed out or waiting for the mailbox to confirm their end."""
    receive_wait_s: float = 5.0
    """Time that one Receive waits at the mailbox for a first message."""
    call_s: float = 10.0
    """For any other call, and for a durable settlement or a flush."""

    def __post_init__(self) -> None:
        if not 0.25 <= self.visibility_s <= 43_200:
            raise BadRequest("visibility_s must be between 0.25 and 43200.", reason="bad-visibility")
        if self.max_unsettled < 1 or min(self.receive_wait_s, self.call_s) <= 0:
            raise BadRequest("Times must be positive and max_unsettled at least 1.", reason="bad-intake")
