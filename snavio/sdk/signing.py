"""Signs commands with what Signer and Shield last told us, and learns when Shield disagrees.

Never reuses a signature: each attempt is stamped and signed anew, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.native import PartBuffer, sign_batch, sign_command
from snavio.sdk.key_poller import KeyPoller
from snavio.sdk.keyring import Keyring
from snavio.v1.batch_pb2 import Hello

if TYPE_CHECKING:
    from snavio.sdk.obedience import Obedience

# After a key was revoked its successor signs at once, and Shield hears of it with its next pull.
NEWS_SECONDS = 10.0
_KEY_REFUSED = frozenset({Verdict.UNKNOWN_KEY_VERSION, Verdict.KEY_EXPIRED, Verdict.KEY_REVOKED})


# A plain tuple: one is made for every send.
Request = tuple[str, str, str, bytes, str, str]
"""Parts that are the same in every attempt: command id, target, name, payload, content type, traceparent."""


MAX_PAYLOAD_BYTES = 256 << 10
"""Of one command, as Shield takes it."""


class SigningBasis(NamedTuple):
    """Audience, keys and clock of an attempt; once one has changed, another attempt makes sense at once."""

    audience: str
    generation: int
    shift_ns: int = 0


class CommandSigner:
    """One source's way to sign."""

    __slots__ = (
        "_audience",
        "_changed_mono_ns",
        "_clock",
        "_feed",
        "_keyring",
        "_log",
        "basis",
        "obedience",
        "shift_ns",
    )

    def __init__(self, keyring: Keyring, *, feed: KeyPoller, clock: Clock) -> None:
        self._keyring = keyring
        self._feed = feed
        self._clock = clock
        self._audience = ""
        self._changed_mono_ns = clock.mono_ns()
        self.shift_ns = 0
        """Added to this machine's clock in every timestamp."""
        self.obedience: Obedience | None = None
        """Corrects `shift_ns`, if somebody is to."""
        self.basis = SigningBasis("", 0)
        """The basis that `sign` uses now."""
        keyring.on_change = self._rekeyed
        self._log = structlog.get_logger()

    def greeted(self, hello: Hello) -> None:
        """Shield said who it is."""
        self._audience = hello.audience
        self._rebase()
        if self.obedience is not None:
            self.obedience.greeted(hello.server_unix_ns)
            return
        skew_ms = (self._clock.unix_ns() - hello.server_unix_ns) // 1_000_000
        if hello.limits.window_ms and abs(skew_ms) > hello.limits.window_ms // 2:
            self._log.warning(
                "clock differs from Shield's", skew_ms=skew_ms, window_ms=hello.limits.window_ms
            )

    def sign(self, request: Request) -> bytes:
        """A serialised Command; BadRequest names the field that Shield would refuse as ill-formed."""
        now = self._clock.unix_ns() + self.shift_ns
        key = self._keyring.signing_key(now)
        command_id, target, name, payload, content_type, traceparent = request
        try:
            return sign_command(
                key.secret,
                key_version=key.version,
                audience=self._audience,
                command_id=command_id,
                timestamp_unix_ns=now,
                target=target,
                name=name,
                payload=payload,
                content_type=content_type,
                traceparent=traceparent,
            )
        except ValueError as error:
            raise _refused(error) from None

    def sign_all(
        self,
        commands: Sequence[tuple[str, str, bytes]],
        *,
        content_type: str,
        max_bytes: int,
        max_commands: int,
    ) -> tuple[bytes, list[tuple[int, PartBuffer]]]:
        """Ids (36 bytes of text each) and submissions of (target, name, payload); BadRequest as in `sign`."""
        now = self._clock.unix_ns() + self.shift_ns
        key = self._keyring.signing_key(now)
        try:
            return sign_batch(
                key.secret,
                key_version=key.version,
                audience=self._audience,
                timestamp_unix_ns=now,
                commands=commands if isinstance(commands, list) else list(commands),
                content_type=content_type,
                max_batch_bytes=max_bytes,
                max_batch_commands=max_commands,
            )
        except ValueError as error:
            raise _refused(error) from None

    async def learned(self, verdict: Verdict, basis: SigningBasis, detail: str, *, within_s: float) -> bool:
        """True if signatures differ from now on because of this refusal of one that was made on `basis`."""
        if verdict is Verdict.WRONG_AUDIENCE:
            if self._audience == basis.audience and detail:
                self._audience = detail
                self._rebase()
            return self._audience != basis.audience
        if verdict is Verdict.TIMESTAMP_OUTSIDE_WINDOW and self.obedience is not None:
            if self.shift_ns == basis.shift_ns:
                self.obedience.outside_window(detail)
            return self.shift_ns != basis.shift_ns
        if verdict in _KEY_REFUSED:
            try:
                async with asyncio.timeout(within_s):
                    return await self._feed.renew(basis.generation)
            except TimeoutError:
                return False
        return False

    def ahead_of_shield(self, verdict: Verdict) -> bool:
        """True if this refusal may only mean that Signer published a key here before it did to Shield."""
        news_ns = self._clock.mono_ns() - self._changed_mono_ns
        return verdict is Verdict.UNKNOWN_KEY_VERSION and news_ns < NEWS_SECONDS * 1e9

    def _rekeyed(self) -> None:
        self._changed_mono_ns = self._clock.mono_ns()
        self._rebase()

    def shift(self, shift_ns: int) -> None:
        """Correct the timestamps from now on."""
        self.shift_ns = shift_ns
        self._rebase()

    def _rebase(self) -> None:
        self.basis = SigningBasis(self._audience, self._keyring.generation, self.shift_ns)


def _refused(error: ValueError) -> BadRequest:
    """The mistake in a command, with the bound where it is one of size."""
    words = str(error)
    if words.endswith("oversized"):
        words += f": at most {MAX_PAYLOAD_BYTES:,} bytes"
    return BadRequest(words, reason="bad-command")
