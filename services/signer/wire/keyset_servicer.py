"""The wire face of HMAC key sets: protobuf in, decisions, protobuf out.

Never puts a secret into an answer except those of KeysetChanges and TenantConfig, which the authorisation
table reserves for Shield and for the source itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from services.signer.keys.key_expiry_watch import KeyExpiryWatch
from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_rollout import KeyRollout
from services.signer.keys.key_traffic import KeyTraffic
from services.signer.keys.keysets import Keysets
from snavio.clock import Clock
from snavio.domain.identity import IdentityKind
from snavio.domain.key_retirement import Rehearsal, retirement
from snavio.domain.key_rollout import Holder
from snavio.domain.keyset import Keyset, KeyState, KeyVersion, rotation_due_ns
from snavio.errors import BadRequest, NotAllowed
from snavio.rpc.server import Call, Methods
from snavio.telemetry.events import EventJournal
from snavio.v1 import signer_pb2 as wire

MAX_EVENTS = 1000
MAX_HOLDER_CHARACTERS = 128
_STATES = {
    KeyState.SPREADING: wire.KEY_STATE_SPREADING,
    KeyState.PRIMARY: wire.KEY_STATE_PRIMARY,
    KeyState.PREVIOUS: wire.KEY_STATE_PREVIOUS,
    KeyState.ENDED: wire.KEY_STATE_ENDED,
    KeyState.REVOKED: wire.KEY_STATE_REVOKED,
}


class KeysetServicer:
    """The methods of `snavio.v1.Signer` that are about HMAC keys and what happens to keys."""

    def __init__(
        self,
        *,
        keysets: Keysets,
        distribution: KeyRollout,
        polls: KeyPolls,
        usage: KeyTraffic,
        key_expiry_watch: KeyExpiryWatch,
        events: EventJournal,
        clock: Clock,
        poll_after_s: int,
        cadence_ns: int,
    ) -> None:
        self._keysets = keysets
        self._distribution = distribution
        self._polls = polls
        self._usage = usage
        self._key_expiry_watch = key_expiry_watch
        self._events = events
        self._clock = clock
        self._poll_after_s = poll_after_s
        self._cadence_ns = cadence_ns

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        at = "/snavio.v1.Signer/"
        methods.unary(at + "CreateKeyset", self.create_keyset, wire.CreateKeysetRequest)
        methods.unary(at + "RotateKeyset", self.rotate_keyset, wire.RotateKeysetRequest)
        methods.unary(at + "RevokeKey", self.revoke_key, wire.RevokeKeyRequest)
        methods.unary(at + "SetMinimumKey", self.set_minimum_key, wire.SetMinimumKeyRequest)
        methods.unary(at + "DescribeKeysets", self.describe_keysets, wire.DescribeKeysetsRequest)
        methods.unary(at + "KeysetChanges", self.keyset_changes, wire.KeysetChangesRequest)
        methods.unary(at + "TenantConfig", self.tenant_config, wire.TenantConfigRequest)
        methods.unary(at + "ReportKeyUsage", self.report_key_usage, wire.ReportKeyUsageRequest)
        methods.unary(at + "Events", self.events, wire.EventsRequest)

    async def create_keyset(self, request: wire.CreateKeysetRequest, call: Call) -> wire.KeysetStatus:
        return await self._status(await self._keysets.create(request.source, actor=str(call.peer.identity)))

    async def rotate_keyset(self, request: wire.RotateKeysetRequest, call: Call) -> wire.KeysetStatus:
        keyset = await self._keysets.rotate(
            request.source, actor=str(call.peer.identity), expected_newest=request.expected_newest
        )
        return await self._status(keyset)

    async def revoke_key(self, request: wire.RevokeKeyRequest, call: Call) -> wire.KeysetStatus:
        keyset = await self._keysets.revoke(
            request.source, request.key_version, actor=str(call.peer.identity)
        )
        return await self._status(keyset)

    async def set_minimum_key(self, request: wire.SetMinimumKeyRequest, call: Call) -> wire.KeysetStatus:
        if request.rehearse:
            keyset = await self._keysets.could_be_minimum(request.source, request.key_version)
            self._usage.rehearse(keyset.source, request.key_version)
            return await self._status(keyset)
        self._usage.rehearse(request.source, "")
        keyset = await self._keysets.set_minimum(
            request.source, request.key_version, actor=str(call.peer.identity)
        )
        return await self._status(keyset)

    async def describe_keysets(
        self, request: wire.DescribeKeysetsRequest, call: Call
    ) -> wire.DescribeKeysetsResponse:
        reader = call.peer.identity
        tenant = reader.tenant if reader.kind is IdentityKind.PRINCIPAL else ""
        if tenant and request.source and request.source.partition("/")[0] != tenant:
            # Before the store is asked: the answer must not tell whether there is such a source.
            raise NotAllowed(f"{reader} may read the keys of its own tenant's sources.", reason="not-owner")
        page, more = await self._keysets.described(
            request.source, after=request.after_source, limit=request.limit, tenant=tenant
        )
        statuses = await self._statuses(page)
        for holder in (holder for status in statuses if tenant for holder in status.holder):
            # How many Shields there are shows a rotation's progress; their names are the installation's.
            holder.name = ""
        return wire.DescribeKeysetsResponse(keyset=statuses, more=more)

    async def keyset_changes(
        self, request: wire.KeysetChangesRequest, _call: Call
    ) -> wire.KeysetChangesResponse:
        if len(request.holder) > MAX_HOLDER_CHARACTERS or not request.holder.isprintable():
            raise BadRequest(
                f"holder: at most {MAX_HOLDER_CHARACTERS} printable characters.", reason="bad-field"
            )
        # Who names nobody lets nobody in: a person who looks.
        if request.holder:
            self._distribution.hear(
                request.holder,
                store_epoch=request.store_epoch,
                version=request.since_version,
                good_for_ns=request.good_for_ms * 1_000_000,
            )
        page = await self._keysets.changes(request.since_version, limit=request.limit)
        now = self._clock.unix_ns()
        return wire.KeysetChangesResponse(
            version=page.version,
            keyset=[_keyset(keyset, keyset.versions, secrets=True, now_ns=now) for keyset in page.keysets],
            more=page.more,
            store_epoch=page.store_epoch,
        )

    async def tenant_config(
        self, _request: wire.TenantConfigRequest, call: Call
    ) -> wire.TenantConfigResponse:
        # The source comes from the certificate; there is no field in which to ask for another's.
        keyset = await self._keysets.of(call.peer.identity.source)
        now = self._clock.unix_ns()
        # A producer has no use for the secret of a version that Shield refuses.
        return wire.TenantConfigResponse(
            keyset=_keyset(keyset, keyset.accepted(now), secrets=True, now_ns=now),
            primary=_primary(keyset, now),
            poll_after_seconds=self._poll_after_s,
        )

    async def report_key_usage(
        self, request: wire.ReportKeyUsageRequest, _call: Call
    ) -> wire.ReportKeyUsageResponse:
        await self._key_expiry_watch.report(
            (use.source, use.key_version, use.commands) for use in request.use
        )
        return wire.ReportKeyUsageResponse()

    async def events(self, request: wire.EventsRequest, _call: Call) -> wire.EventsResponse:
        since = request.since if request.epoch == self._events.epoch else 0
        limit = min(request.limit, MAX_EVENTS) or MAX_EVENTS
        found = self._events.after(since, limit=limit)
        return wire.EventsResponse(
            epoch=self._events.epoch,
            event=[
                wire.Event(
                    seq=recorded.seq,
                    name=recorded.event.name,
                    at_unix_ns=recorded.at_unix_ns,
                    fields=orjson.dumps(recorded.event.fields()).decode(),
                )
                for recorded in found
            ],
            missed=self._events.missed_since(since),
            more=bool(found) and found[-1].seq < self._events.last_seq,
        )

    async def _status(self, keyset: Keyset) -> wire.KeysetStatus:
        return (await self._statuses([keyset]))[0]

    async def _statuses(self, keysets: Sequence[Keyset]) -> list[wire.KeysetStatus]:
        now, holders = self._clock.unix_ns(), await self._distribution.holders_of(keysets)
        return [
            wire.KeysetStatus(
                keyset=_keyset(keyset, keyset.versions, secrets=False, now_ns=now),
                primary=_primary(keyset, now),
                last_poll_unix_ns=self._polls.last_ns(keyset.source) or 0,
                next_rotation_unix_ns=rotation_due_ns(keyset, cadence_ns=self._cadence_ns),
                use=[self._use(keyset, version, now) for version in keyset.versions],
                observed_since_unix_ns=self._usage.observed_since_ns,
                now_unix_ns=now,
                rehearsal=_rehearsal(self._usage.rehearsal(keyset.source)),
                holder=[self._holder(holder, has) for holder, has in holders.get(keyset.source, ())],
            )
            for keyset in keysets
        ]

    def _holder(self, holder: Holder, has: bool) -> wire.KeyHolder:
        return wire.KeyHolder(
            name=holder.name,
            up_to_date=has,
            heard_unix_ns=holder.heard_ns,
            ends_unix_ns=self._distribution.ends_ns(holder),
        )

    def _use(self, keyset: Keyset, version: KeyVersion, now_ns: int) -> wire.KeyVersionUse:
        use = self._usage.of(keyset.source, version.name)
        answer = retirement(
            keyset,
            version,
            use=use,
            polled_at_ns=self._polls.last_ns(keyset.source),
            observed_since_ns=self._usage.observed_since_ns,
            now_ns=now_ns,
        )
        return wire.KeyVersionUse(
            version=version.name,
            last_hour=use.last_hour,
            last_day=use.last_day,
            last_used_unix_ns=use.last_used_ns,
            safe_to_retire=answer.safe,
            retire_reason=answer.reason,
            last_two_days=use.last_two_days,
        )


def _rehearsal(rehearsal: Rehearsal | None) -> wire.KeyRehearsal | None:
    if rehearsal is None:
        return None
    return wire.KeyRehearsal(
        minimum=rehearsal.minimum,
        since_unix_ns=rehearsal.since_ns,
        would_refuse=rehearsal.would_refuse,
        last_unix_ns=rehearsal.last_ns,
    )


def _primary(keyset: Keyset, now_ns: int) -> str:
    primary = keyset.primary(now_ns)
    return primary.name if primary is not None else ""


def _keyset(keyset: Keyset, versions: tuple[KeyVersion, ...], *, secrets: bool, now_ns: int) -> wire.Keyset:
    return wire.Keyset(
        source=keyset.source,
        version=[
            wire.KeyVersion(
                version=version.name,
                secret=version.secret if secrets else b"",
                not_before_unix_ns=version.not_before_ns,
                not_after_unix_ns=version.not_after_ns,
                primary_from_unix_ns=version.primary_from_ns,
                revoked=version.revoked,
                state=_STATES[keyset.state(version, now_ns)],
            )
            for version in versions
        ],
        minimum=f"hmac-v{keyset.minimum}" if keyset.minimum else "",
    )
