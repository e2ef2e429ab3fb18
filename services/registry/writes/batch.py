"""Several writes as one: each sees what the earlier ones will leave, and all are written or none.

Never asks Signer for anything before every write of the batch was allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.registry.reads.preflight import Facts
from services.registry.signer.joint_writes import JointWrites
from services.registry.signer.signer_calls import SignerCalls
from services.registry.signer.signer_sync import ServiceNotice, SignerSync
from services.registry.writes.ownership import Ownership, expecting
from services.registry.writes.queue_proofs import QueueProofs, newly_sent_to
from snavio.domain.directory import (
    Difference,
    DirectoryView,
    Draft,
    Overlay,
    Principal,
    Service,
    Tenant,
    Value,
)
from snavio.domain.identity import Identity
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, SnavioError
from snavio.ports.directory import Decision, Directory, Written
from snavio.replication.directory_wire import entry_from_wire
from snavio.v1 import registry_pb2 as wire

MAX_WRITES: Final = 1000
MAX_CHECKS: Final = 100
MAX_MISTAKES: Final = 200

REFUSALS: Final = (BadRequest, NotAllowed, NotFound, Conflict)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write of a batch."""

    value: Value
    deleted: bool
    expected_version: int | None


class Mistakes(BadRequest):
    """The writes of a batch that are refused, by their numbers."""

    def __init__(self, found: Sequence[tuple[int, SnavioError]]) -> None:
        super().__init__(f"{len(found)} writes are refused.", reason="refused-writes")
        self.found = found


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Outcome of a batch."""

    written: Written
    differences: Sequence[Difference]
    facts: Sequence[Facts]
    enrolments: Sequence[wire.TenantEnrolment] = field(default=(), repr=False)
    """A token for each new tenant; returned to its creator and stored nowhere."""

    @property
    def provided(self) -> frozenset[str]:
        """Sources that have keys through this batch, or would have."""
        services = (difference.after for difference in self.differences)
        return frozenset(service.source for service in services if isinstance(service, Service))


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Applies batches to the directory."""

    directory: Directory
    ownership: Ownership
    trust: SignerCalls
    signer_sync: SignerSync
    queues: QueueProofs
    joint_writes: JointWrites = field(default_factory=JointWrites)

    async def apply(
        self,
        wanted: Sequence[WriteRequest],
        *,
        actor: Identity,
        reason: str,
        dry_run: bool,
        questions: Sequence[Callable[[DirectoryView], Facts]] = (),
        tell_mistakes: bool = False,
    ) -> BatchResult:
        """Write them all, or with `dry_run` only report the changes; `questions` are answered as if it were written.

        The first write that is refused fails the batch; with `tell_mistakes` Mistakes does, which has them all.
        """
        differences: Sequence[Difference] = ()
        facts: Sequence[Facts] = ()

        def decide(view: DirectoryView) -> Sequence[Draft]:
            nonlocal differences, facts
            overlay = Overlay(view)
            mistakes: list[tuple[int, SnavioError]] = []
            for number, write in enumerate(wanted):
                try:
                    rule = self.ownership.decision(actor, write.value, deleted=write.deleted)
                    decided = expecting(rule, write.expected_version)(overlay)
                    for draft in (decided,) if isinstance(decided, Draft) else decided:
                        overlay.add(draft)
                except REFUSALS as refused:
                    if not tell_mistakes:
                        raise
                    mistakes.append((number, refused))
            if mistakes:
                raise Mistakes(mistakes)
            differences = overlay.differences()
            facts = [question(overlay) for question in questions]
            return overlay.drafts

        version, suspended = await self.directory.read(
            lambda view: (decide(view), self._suspended(view, wanted))[1]
        )
        await self.queues.require(newly_sent_to(differences))
        if dry_run:
            return BatchResult(Written(version, changed=False), differences, facts)
        written = await self.joint_writes.whole(
            self._write(decide, differences, suspended, actor=actor, reason=reason), tenant=actor.tenant
        )
        return BatchResult(written, differences, facts, await self._enrolments(differences))

    async def carry_out(
        self,
        rule: Callable[[DirectoryView], Sequence[Draft]],
        *,
        actor: Identity,
        reason: str,
        dry_run: bool = False,
    ) -> Written:
        """Write the drafts of a rule, which is asked twice: for Signer's part first, and in the transaction."""
        differences: Sequence[Difference] = ()

        def decide(view: DirectoryView) -> Sequence[Draft]:
            nonlocal differences
            overlay = Overlay(view)
            for draft in rule(view):
                overlay.add(draft)
            differences = overlay.differences()
            return overlay.drafts

        version, suspended = await self.directory.read(
            lambda view: self._suspended_among(view, [draft.value for draft in decide(view)])
        )
        if dry_run:
            return Written(version, changed=False)
        return await self.joint_writes.whole(
            self._write(decide, differences, suspended, actor=actor, reason=reason), tenant=actor.tenant
        )

    async def _write(
        self,
        decide: Decision,
        differences: Sequence[Difference],
        suspended: frozenset[str],
        *,
        actor: Identity,
        reason: str,
    ) -> Written:
        told: list[ServiceNotice] = []
        try:
            await self._tell(differences, suspended, told, trust_domain=actor.trust_domain)
            written = await self.directory.write(decide, actor=actor.spiffe_id, reason=reason)
        except SnavioError:
            # Signer must not go on with what the directory never took.
            await self._agree(told)
            raise
        await self._agree(told)
        return written

    async def _tell(
        self,
        differences: Sequence[Difference],
        suspended: frozenset[str],
        told: list[ServiceNotice],
        *,
        trust_domain: str,
    ) -> None:
        for difference in differences:
            service, gone = difference.after, difference.before
            if isinstance(gone, Principal) and service is None:
                # Before the write: named or not, it is then without certificates even if we fail here.
                await self.trust.dismiss(gone, trust_domain=trust_domain)
            if isinstance(gone, Service) and service is None:
                # Before the write, so that none of its certificates outlives it; a failed write gives the right back.
                told.append(await self.signer_sync.remove(gone))
            if isinstance(service, Service):
                # Before the write, as for a single registration: a service without keys could send nothing.
                await self.trust.keyset(service.source)
                told.append(await self.signer_sync.tell(service, suspended=service.source in suspended))

    async def _agree(self, told: Sequence[ServiceNotice]) -> None:
        for each in told:
            await self.signer_sync.agree(each.service.source, each)

    def _suspended(self, view: DirectoryView, wanted: Sequence[WriteRequest]) -> frozenset[str]:
        return self._suspended_among(view, [write.value for write in wanted])

    def _suspended_among(self, view: DirectoryView, values: Sequence[Value]) -> frozenset[str]:
        sources = {value.source for value in values if isinstance(value, Service)}
        return frozenset(source for source in sources if self.signer_sync.suspended(view, source))

    async def _enrolments(self, differences: Sequence[Difference]) -> list[wire.TenantEnrolment]:
        """Make tokens after the write, which shows which tenants are new: repeating a batch gets no further tokens."""
        made = [
            difference.after
            for difference in differences
            if isinstance(difference.after, Tenant) and difference.before is None
        ]
        tokens = []
        for tenant in made:
            token = await self.trust.enrolment(tenant.tenant, "")
            tokens.append(
                wire.TenantEnrolment(
                    tenant=tenant.tenant,
                    token=token.token if token is not None else "",
                    expires_unix_ns=token.expires_unix_ns if token is not None else 0,
                )
            )
        return tokens


def wanted_from_wire(request: wire.ApplyRequest) -> list[WriteRequest]:
    """The writes of a request; BadRequest names the one that is wrong."""
    if len(request.write) > MAX_WRITES:
        raise BadRequest(f"write: must be at most {MAX_WRITES}.", reason="too-many-writes")
    if len(request.check) > MAX_CHECKS:
        raise BadRequest(f"check: must be at most {MAX_CHECKS}.", reason="too-many-checks")
    return [
        WriteRequest(
            entry_from_wire(_named(write.entry) if write.delete else write.entry, f"write[{number}].entry"),
            write.delete,
            write.expected_version if write.HasField("expected_version") else None,
        )
        for number, write in enumerate(request.write)
    ]


def _named(entry: wire.Entry) -> wire.Entry:
    """An entry to delete, of which the key is enough; its tombstone has the deleted value."""
    match entry.WhichOneof("value"):
        case "source_quota":
            entry.source_quota.max = entry.source_quota.interval_seconds = 1
        case "alert_channel":
            entry.alert_channel.channel = wire.CHANNEL_KIND_DASHBOARD
            entry.alert_channel.address = ""
        case "profile_limit":
            entry.profile_limit.limit.max = entry.profile_limit.limit.interval_seconds = 1
    return entry
