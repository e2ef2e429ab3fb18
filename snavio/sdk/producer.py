"""Signs commands and sends them to Shield; every `send` ends with an Outcome, within its time.

Never changes a command's id between attempts, never sends the same signature twice, and never retries what a
second attempt cannot change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from snavio.clock import Clock, SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.trace_context import PER_SECOND
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, SnavioError, Unauthenticated, Unavailable
from snavio.native import uuid7
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.batch_submitter import BatchSubmitter
from snavio.sdk.certificate import REFUSED, ServiceCertificate
from snavio.sdk.key_poller import KeyPoller
from snavio.sdk.keyring import Keyring
from snavio.sdk.lifetime import Startable
from snavio.sdk.outcome import Outcome, Outcomes
from snavio.sdk.pending_sends import DELIVERED, AttemptAnswer, BulkSend
from snavio.sdk.retry import RetryBudget, pause_s, shield_behind_ms
from snavio.sdk.retry_forever import persist
from snavio.sdk.settings import RetrySettings
from snavio.sdk.signing import CommandSigner, Request, SigningBasis
from snavio.sdk.tracing import SendTraces
from snavio.tasks import ended

if TYPE_CHECKING:
    from snavio.sdk.event_stream import EventStream
    from snavio.sdk.obedience import Obedience

_DELIVERED = Verdict.DELIVERED
# Attempts after which another one because of something learned costs a token and a pause, as any other does: a mesh
# that teaches something new with every refusal must not be asked as fast as it answers.
MAX_LESSONS = 4
FOLLOWED_S = 1.0
"""Time in which an open stream is replaced by one under a new certificate."""


class _Mesh(NamedTuple):
    """The parts of an open producer."""

    dispatcher: BatchSubmitter
    signing: CommandSigner


class Producer(Startable):
    """The sending half of the SDK: `async with Producer(...) as producer`. Lives on one event loop."""

    def __init__(
        self,
        *,
        shield: str,
        signer: str,
        certificates: str | Path,
        principal_certificates: str | Path | None = None,
        source: str = "",
        certificate_ttl_s: int = 0,
        timeout_s: float = 10.0,
        max_attempts: int | None = None,
        obey: bool = False,
        gateway: str = "",
        capability: str = "",
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
        traces_per_second: int = PER_SECOND,
        clock: Clock | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        if (gateway or capability) and not obey:
            raise BadRequest("gateway and capability are for obey=True.", reason="bad-field")
        self._obeys, self._gateway_address, self._capability = obey, gateway, capability
        self._own_folder, self._principal_folder = certificates, principal_certificates
        self._obedience: Obedience | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._shield_address = shield
        self._signer_address = signer
        self._files = CertificateFiles.in_folder(certificates)
        self._trust_domain = trust_domain
        self._patience = RetrySettings(timeout_s=timeout_s, max_attempts=max_attempts)
        self._timeout_ns = round(self._patience.timeout_s * 1e9)
        self._attempt_ns = round(self._patience.attempt_s * 1e9)
        self._clock = clock or SystemClock()
        # Asked for with a principal's certificate if there is one; otherwise it renews itself.
        self._certificate = ServiceCertificate(
            certificates,
            signer=signer,
            clock=self._clock,
            trust_domain=trust_domain,
            source=source,
            principal=principal_certificates,
            ttl_s=certificate_ttl_s,
        )
        self._jitter = jitter or random.Random()  # noqa: S311 spreads load, hides nothing
        # For commands that come without a trace; 0 begins none.
        self._traces = SendTraces(traces_per_second) if traces_per_second else None
        self._keyring = Keyring()
        self._channels: list[MeshChannel] = []
        self._following: asyncio.Task[None] | None = None
        self._accepted: asyncio.Task[None] | None = None
        self._mesh: _Mesh | None = None
        self._budget = RetryBudget(now_mono_ns=self._clock.mono_ns())

    @classmethod
    def from_context(cls, service: str, *, context: str | None = None, **options: Any) -> Self:
        """A producer of one of the tenant's services in a context: `context`, SNAVIO_CONTEXT, or the one in use.

        The service's certificate is had through the context's principal, and kept. `options` are the other arguments.
        """
        # Here: a program that says its addresses itself reads no contexts.
        from snavio.sdk.from_context import service_access

        access = service_access(service, context)
        if options.get("obey") and access.principal is not None:
            options.setdefault("gateway", access.gateway)
        return cls(
            shield=access.endpoints.shield,
            signer=access.endpoints.signer,
            certificates=access.certificates,
            principal_certificates=access.principal,
            source=access.source,
            trust_domain=access.endpoints.trust_domain,
            **options,
        )

    @property
    def corrected_by_s(self) -> float:
        """Seconds that timestamps are ahead of this machine's clock, because it was measured to be wrong."""
        return self._obedience.shift_ns / 1e9 if self._obedience is not None else 0.0

    @property
    def obeyed(self) -> Mapping[str, int]:
        """With `obey`: routes left alone, sends that waited, keys asked for, corrections made and refused."""
        return self._obedience.counters() if self._obedience is not None else {}

    @property
    def source(self) -> str:
        """`<tenant>/<service>`, as Signer knows us; empty before the start."""
        return self._keyring.source

    async def start(self) -> None:
        """Have a certificate, fetch the keys and greet Shield; raises when any does not work in time."""
        if self._mesh is not None:
            raise BadRequest("The producer is open already.", reason="already-open")
        await self._certificate.start(within_s=self._patience.start_s)
        signer = self._channel(self._signer_address, "signer")
        shield = self._channel(self._shield_address, "shield")
        feed = KeyPoller(self._keyring, channel=signer, clock=self._clock)
        signing = CommandSigner(self._keyring, feed=feed, clock=self._clock)
        if self._obeys:
            self._obedience = signing.obedience = self._obedient(feed, signing)
        dispatcher = BatchSubmitter(shield, clock=self._clock, budget=self._budget, on_hello=signing.greeted)
        self._mesh = _Mesh(dispatcher, signing)
        try:
            await self._begin(feed, dispatcher)
        except BaseException:
            await self.close()
            raise
        if self._gateway_address:
            self._help(self._follow_events(), "producer events")

    async def close(self) -> None:
        """Wait a bounded time for answers under way, then end; what has none is `outcome-unknown`."""
        mesh, self._mesh = self._mesh, None
        if mesh is not None:
            await mesh.dispatcher.close()
        await ended(self._following)
        await ended(self._accepted)
        self._following = self._accepted = None
        for helper in list(self._helpers):
            await ended(helper)
        await self._certificate.stop()
        while self._channels:
            await self._channels.pop().close()

    # -- sending -------------------------------------------------------------------------------------

    async def send(
        self,
        target: str,
        name: str,
        payload: bytes,
        *,
        content_type: str = "",
        traceparent: str = "",
        command_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Outcome:
        """Send one command and wait for its outcome.

        BadRequest when Shield would refuse a field as ill-formed; whatever the mesh answers is a value. Give
        `command_id` to try again, from another process perhaps, what a strict route must deliver only once.
        """
        mesh = self._mesh
        if mesh is None:
            raise Unavailable("The producer is not open.", reason="not-open")
        dispatcher, signing = mesh
        now = self._clock.mono_ns()
        deadline = now + (self._timeout_ns if timeout_s is None else round(timeout_s * 1e9))
        if command_id is None:
            command_id = uuid7()
        if self._obedience is not None and self._obedience.holds:
            held = await self._obedience.turn((target, name), deadline)
            if held is not None:
                return _outcome(command_id, _verdict(held.code), held, 0, doubt=False)
            now = self._clock.mono_ns()
        if dispatcher.link.crowded:
            await dispatcher.room(deadline, len(payload))
        span = None
        if not traceparent and self._traces is not None:
            traceparent, span = self._traces.begin(command_id, target, mono_ns=now)
        request = (command_id, target, name, payload, content_type, traceparent)
        basis = signing.basis
        attempt_deadline = now + self._attempt_ns
        try:
            answer = await dispatcher.post(
                signing.sign(request), attempt_deadline if attempt_deadline < deadline else deadline
            )
            if answer is DELIVERED:
                return Outcome(_DELIVERED, command_id)
            return await self._conclude(request, basis, answer, deadline)
        finally:
            if span is not None:
                span.end()

    async def send_batch(
        self,
        commands: Sequence[tuple[str, str, bytes]],
        *,
        content_type: str = "",
        timeout_s: float | None = None,
    ) -> Outcomes:
        """Send (target, name, payload) many at once; outcomes come in the same order.

        Cheaper than as many `send`s. BadRequest for any ill-formed one, and then none is sent.
        """
        mesh = self._mesh
        if mesh is None:
            raise Unavailable("The producer is not open.", reason="not-open")
        if self._obedience is not None and self._obedience.holds:
            return await self._send_around(commands, content_type=content_type, timeout_s=timeout_s)
        return await self._send_all(mesh, commands, content_type=content_type, timeout_s=timeout_s)

    async def _send_all(
        self,
        mesh: _Mesh,
        commands: Sequence[tuple[str, str, bytes]],
        *,
        content_type: str,
        timeout_s: float | None,
    ) -> Outcomes:
        dispatcher, signing = mesh
        deadline = self._clock.mono_ns() + (self._timeout_ns if timeout_s is None else round(timeout_s * 1e9))
        basis = signing.basis
        limits = dispatcher.link.limits
        ids, submissions = signing.sign_all(
            commands,
            content_type=content_type,
            max_bytes=limits.max_batch_bytes,
            max_commands=limits.max_batch_commands,
        )
        lots = await dispatcher.post_all(submissions, deadline, self._attempt_ns)
        outcomes = Outcomes(ids, b"".join(lot.codes for lot in lots))
        refused = list(_refused(lots))
        if not refused:
            return outcomes
        async with asyncio.TaskGroup() as again:
            tasks = [
                (place, again.create_task(self._conclude(request, basis, answer, deadline)))
                for place, answer in refused
                for request in [(outcomes.command_id(place), *commands[place], content_type, "")]
            ]
        return outcomes.amended({place: task.result() for place, task in tasks})

    async def _send_around(
        self, commands: Sequence[tuple[str, str, bytes]], *, content_type: str, timeout_s: float | None
    ) -> Outcomes:
        """Send at once what nothing holds back, and each of the others when its route takes commands again."""
        assert self._obedience is not None and self._mesh is not None
        mesh, holds = self._mesh, self._obedience.holds
        limits = mesh.dispatcher.link.limits
        # For its refusals alone: of a batch with an ill-formed command none is sent.
        mesh.signing.sign_all(
            commands,
            content_type=content_type,
            max_bytes=limits.max_batch_bytes,
            max_commands=limits.max_batch_commands,
        )
        held = [place for place, (target, name, _) in enumerate(commands) if (target, name) in holds]
        free = sorted(set(range(len(commands))) - set(held))
        async with asyncio.TaskGroup() as both:
            rest = both.create_task(
                self._send_all(
                    mesh, [commands[place] for place in free], content_type=content_type, timeout_s=timeout_s
                )
            )
            waiting = [
                both.create_task(self.send(*commands[place], content_type=content_type, timeout_s=timeout_s))
                for place in held
            ]
        found = dict(zip(free, rest.result(), strict=True))
        found |= {place: task.result() for place, task in zip(held, waiting, strict=True)}
        ids = "".join(found[place].command_id for place in range(len(commands)))
        return Outcomes(ids.encode(), bytes(len(commands))).amended(found)

    # -- trying again --------------------------------------------------------------------------------

    async def _conclude(
        self, request: Request, basis: SigningBasis, answer: AttemptAnswer, deadline: int
    ) -> Outcome:
        """Turn an answer into an outcome, with as many further attempts as it is worth."""
        attempts = 1
        doubt = False
        while True:
            verdict = _verdict(answer.code)
            doubt = doubt or verdict is Verdict.OUTCOME_UNKNOWN
            if self._obedience is not None and answer.throttle_until_unix_ns:
                self._obedience.refused(request[1:3], answer)
                answer = answer._replace(
                    retry_after_ms=max(answer.retry_after_ms, self._obedience.left_ms(request[1:3]))
                )
            repeat = await self._time_to_repeat(verdict, basis, answer, attempts=attempts, deadline=deadline)
            mesh = self._mesh
            if not repeat or mesh is None:
                return _outcome(request[0], verdict, answer, attempts, doubt=doubt)
            basis = mesh.signing.basis
            try:
                body = mesh.signing.sign(request)
            except Unavailable:
                # The last key ended meanwhile; Shield's verdict is still the best answer.
                return _outcome(request[0], verdict, answer, attempts, doubt=doubt)
            attempts += 1
            attempt_deadline = min(deadline, self._clock.mono_ns() + self._attempt_ns)
            answer = await mesh.dispatcher.post(body, attempt_deadline)

    async def _time_to_repeat(
        self, verdict: Verdict, basis: SigningBasis, answer: AttemptAnswer, *, attempts: int, deadline: int
    ) -> bool:
        """True if the command is to be sent again; returns when it is time to."""
        left_ns = deadline - self._clock.mono_ns()
        if self._mesh is None or left_ns <= 0 or verdict.delivered:
            return False
        learned = await self._mesh.signing.learned(verdict, basis, answer.detail, within_s=left_ns / 1e9)
        most = self._patience.max_attempts
        if most is not None and attempts >= most:
            return False
        if verdict.reason in REFUSED:
            return await self._another_certificate(verdict, within_s=left_ns / 1e9)
        if learned and attempts <= MAX_LESSONS:
            # Costs no token: it happens once per lesson, but to all that is under way at once, and after a
            # restart of Shield the bucket would turn most of it away.
            return True
        if not verdict.retryable:
            return False
        ahead = self._mesh.signing.ahead_of_shield(verdict)
        hint_ms = max(answer.retry_after_ms, shield_behind_ms(attempts)) if ahead else answer.retry_after_ms
        pause = pause_s(attempts, hint_ms, self._jitter)
        now = self._clock.mono_ns()
        if now + pause * 1e9 >= deadline:
            return False
        # A Shield that is behind costs no token either: it will have caught up, and it refuses all at once.
        if not ahead and not self._budget.withdraw(now_mono_ns=now):
            return False
        await asyncio.sleep(pause)
        return True

    async def _another_certificate(self, verdict: Verdict, *, within_s: float) -> bool:
        """True once there is another certificate in place of the refused one, and the stream had time to follow it."""
        try:
            async with asyncio.timeout(within_s):
                refused = Unauthenticated(verdict.reason, reason=verdict.reason)
                if not await self._certificate.replaced(refused):
                    return False
                await asyncio.sleep(FOLLOWED_S)
        except (SnavioError, TimeoutError):
            # The verdict says it all: the principal may not have one either.
            return False
        return True

    # -- obeying -------------------------------------------------------------------------------------

    def _obedient(self, feed: KeyPoller, signing: CommandSigner) -> Obedience:
        from snavio.sdk.obedience import Obedience

        async def renew() -> None:
            await feed.renew(self._keyring.generation)

        return Obedience(
            clock=self._clock, shift=signing.shift, renew_keys=lambda: self._help(renew(), "producer keys")
        )

    def _help(self, work: Coroutine[Any, Any, None], name: str) -> None:
        helper = asyncio.create_task(work, name=name)
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    async def _follow_events(self) -> None:
        from snavio.sdk import EventStream
        from snavio.sdk.own_events import follow_own_events

        assert self._obedience is not None
        obedience = self._obedience

        def opened() -> EventStream:
            return EventStream(
                gateway=self._gateway_address,
                signer=self._signer_address,
                tenant=self.source.partition("/")[0],
                # A tenant's principal may read its stream; a service needs a capability for it.
                certificates=self._own_folder
                if self._capability
                else self._principal_folder or self._own_folder,
                sources=[self.source],
                capability=self._capability,
                trust_domain=self._trust_domain,
            )

        await follow_own_events(opened, lambda events: obedience.heard(self.source, events))

    # -- beginning -----------------------------------------------------------------------------------

    def _channel(self, address: str, service: str) -> MeshChannel:
        channel = MeshChannel(address, files=self._files, service=service, trust_domain=self._trust_domain)
        self._channels.append(channel)
        return channel

    async def _begin(self, feed: KeyPoller, dispatcher: BatchSubmitter) -> None:
        try:
            async with asyncio.timeout(self._patience.start_s):
                await dispatcher.start()
                async for attempt in persist(Unavailable, first_pause_s=0.1):
                    with attempt:
                        await self._fetch(feed)
                self._accepted = asyncio.create_task(
                    self._certificate.keep_accepted(lambda: dispatcher.link.trouble),
                    name="producer certificate",
                )
                self._following = asyncio.create_task(feed.follow(), name="producer keys")
                await dispatcher.connected()
        except TimeoutError:
            away = "Signer" if self._following is None else "Shield"
            trouble = dispatcher.link.trouble if self._following is not None else None
            if isinstance(trouble, SnavioError) and trouble.reason != Unavailable.reason:
                # It was reached, and said why not.
                sentence = f"{away} opened no stream within {self._patience.start_s:.0f} s. {trouble}"
                raise Unavailable(sentence, reason=trouble.reason) from None
            raise Unavailable(
                f"{away} could not be reached within {self._patience.start_s:.0f} s."
                + (f" {trouble}" if trouble is not None else "")
            ) from None

    async def _fetch(self, feed: KeyPoller) -> None:
        """The first keys; with another certificate if the one that is there was revoked."""
        try:
            await feed.fetch()
        except Unauthenticated as error:
            if not await self._certificate.replaced(error):
                raise
            for channel in self._channels:
                channel.reload()
            await feed.fetch()


def _refused(lots: list[BulkSend]) -> Iterator[tuple[int, AttemptAnswer]]:
    """Places among all commands, with what was said about them."""
    start = 0
    for lot in lots:
        for position in sorted(lot.explained):
            yield start + position, lot.explained[position]
        start += lot.count


def _verdict(code: int) -> Verdict:
    try:
        return Verdict(code)
    except ValueError:
        # A newer mesh has words that we do not know; none of them may pass for a delivery.
        return Verdict.OUTCOME_UNKNOWN


def _outcome(
    command_id: str, verdict: Verdict, answer: AttemptAnswer, attempts: int, *, doubt: bool
) -> Outcome:
    detail = answer.detail
    if doubt and not verdict.delivered and verdict is not Verdict.OUTCOME_UNKNOWN:
        # The refusal speaks of the last attempt only; an earlier one may have arrived.
        detail = f"{verdict.reason} after an attempt without an answer" + (f": {detail}" if detail else "")
        verdict = Verdict.OUTCOME_UNKNOWN
    return Outcome(
        verdict,
        command_id,
        attempts,
        answer.retry_after_ms,
        answer.throttle_until_unix_ns,
        detail,
        answer.shares,
    )
