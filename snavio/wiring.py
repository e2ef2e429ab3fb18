"""Chooses adapters: the only place that knows the implementation behind a port.

Never holds a rule of the product.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from snavio.errors import StateError, Unavailable
from snavio.host.shares import ShareLimit
from snavio.native import blake3_digest

# A process loads only the adapters that are chosen for it, and the ports that its own modules use.
if TYPE_CHECKING:
    from collections.abc import Mapping

    from snavio.clock import Clock
    from snavio.config import MeshSettings
    from snavio.domain.claim import Terms
    from snavio.domain.directory import QueueKind
    from snavio.edge.references import SecretSource
    from snavio.hop.client import BatchClient
    from snavio.ports.alert_store import AlertStore
    from snavio.ports.archive import Archive, Watermark
    from snavio.ports.capabilities import CapabilityLedger
    from snavio.ports.certificates import CertificateLedger
    from snavio.ports.coordination import Coordination
    from snavio.ports.dead_letters import DeadLetters
    from snavio.ports.directory import Directory
    from snavio.ports.journal_mark import JournalMark
    from snavio.ports.key_wrapping import KmsKey
    from snavio.ports.keystore import KeyStore
    from snavio.ports.mailbox_store import MailboxStore
    from snavio.ports.outbox import Outbox
    from snavio.ports.queue import TargetQueue
    from snavio.ports.queue_looks import QueueLooks
    from snavio.ports.tenant_streams import TenantStreams
    from snavio.rpc.channel import MeshChannel


def foreign_queue_looks(mesh: MeshSettings, *, clock: Clock) -> dict[QueueKind, QueueLooks]:
    """Looks at the queues that are not our own, by kind."""
    from snavio.domain.directory import QueueKind

    found: dict[QueueKind, QueueLooks] = {}
    if mesh.redis_url is not None:
        with _needing("redis"):
            from snavio.adapters.redis.stream_looks import RedisStreamLooks
        found[QueueKind.REDIS] = RedisStreamLooks(mesh.redis_url.get_secret_value(), clock=clock)
    if mesh.sqs_region is not None:
        with _needing("aws"):
            from snavio.adapters.aws.sqs_looks import SqsLooks
        found[QueueKind.SQS] = SqsLooks(
            region=mesh.sqs_region, clock=clock, endpoint_url=mesh.aws_endpoint_url
        )
    return found


def redis_dead_letters(mesh: MeshSettings, *, clock: Clock) -> DeadLetters | None:
    """Dead letters of Redis streams; None where the installation has set up no Redis."""
    if mesh.redis_url is None:
        return None
    with _needing("redis"):
        from snavio.adapters.redis.dead_letters import RedisDeadLetters
    return RedisDeadLetters(
        mesh.redis_url.get_secret_value(), clock=clock, max_stream_length=mesh.redis_stream_length
    )


def mailbox_queue(mailbox: MeshChannel, *, clock: Clock, instance: str, epoch: int) -> BatchClient:
    """The built-in target queue. It recognises resends, so an unanswered batch is sent again."""
    from snavio.hop.client import BatchClient

    return BatchClient(
        mailbox, "/snavio.v1.Mailbox/SendStream", clock=clock, instance=instance, epoch=epoch, resend=True
    )


def target_queues(
    mesh: MeshSettings, mailbox: MeshChannel, *, clock: Clock, instance: str, epoch: int
) -> list[TargetQueue]:
    """Every kind of target queue, in the order of `QueueKind`: index 0 is kind number 1."""
    from snavio.adapters.absent_queue import AbsentQueue
    from snavio.adapters.retrying_queue import RetryingQueue

    redis: TargetQueue = AbsentQueue("Redis")
    if mesh.redis_url is not None:
        from snavio.adapters.redis.stream_queue import RedisStreamDriver

        streams = RedisStreamDriver(
            mesh.redis_url.get_secret_value(),
            max_stream_length=mesh.redis_stream_length,
            require_fsync=mesh.redis_fsync,
        )
        redis = RetryingQueue(streams, clock=clock, instance=instance, epoch=epoch, recognises_resends=True)
    sqs: TargetQueue = AbsentQueue("SQS")
    if mesh.sqs_region is not None:
        from snavio.adapters.aws.sqs_queue import SqsDriver

        standard = SqsDriver(region=mesh.sqs_region, clock=clock, endpoint_url=mesh.aws_endpoint_url)
        sqs = RetryingQueue(standard, clock=clock, instance=instance, epoch=epoch, recognises_resends=False)
    return [mailbox_queue(mailbox, clock=clock, instance=instance, epoch=epoch), redis, sqs]


@dataclass(frozen=True, slots=True)
class CoordinationChoice:
    """The chosen coordination store, and its bounds. Settings of the other kinds are ignored."""

    kind: str
    folder: Path
    instance: str
    url: str = field(repr=False)
    """May hold a password."""
    prefix: str
    table: str
    region: str
    endpoint_url: str | None
    terms: Terms
    max_claims: int
    max_claims_per_source: int
    timeout_s: float
    replicas: int = 0


async def open_coordination(choice: CoordinationChoice, *, clock: Clock) -> Coordination:
    """Slow's coordination store. A server need not be up yet: calls fail until it is.

    The store's epoch is kept beside the state: a store that comes back with another epoch has lost its records.
    """
    watermark = open_watermark(choice.folder / f"{choice.instance}.epoch")
    kept = watermark.read()
    # An unreadable file names no epoch, but proves that there was one: the store is not new.
    known = (kept.decode(errors="replace") or "unreadable") if kept is not None else None
    fresh = uuid.uuid4().hex

    def met(name: str) -> None:
        watermark.keep(name.encode())

    if choice.kind == "redis":
        with _needing("redis"):
            from snavio.adapters.redis.coordination import RedisCoordination

        redis = RedisCoordination(
            choice.url,
            prefix=choice.prefix,
            known_epoch=known,
            fresh_epoch=fresh,
            terms=choice.terms,
            max_claims=choice.max_claims,
            max_claims_per_source=choice.max_claims_per_source,
            timeout_s=choice.timeout_s,
            replicas=choice.replicas,
            met_epoch=met,
        )
        with contextlib.suppress(Unavailable):
            await redis.check()
        return redis
    if choice.kind == "aws":
        with _needing("aws"):
            import aioboto3

            from snavio.adapters.aws.dynamo_coordination import DynamoCoordination

        dynamo = DynamoCoordination(
            session=aioboto3.Session(region_name=choice.region),
            table=choice.table,
            endpoint_url=choice.endpoint_url,
            known_epoch=known,
            fresh_epoch=fresh,
            terms=choice.terms,
            clock=clock,
            timeout_s=choice.timeout_s,
            met_epoch=met,
        )
        with contextlib.suppress(Unavailable):
            await dynamo.prepare()
            await dynamo.calibrate()
        return dynamo
    from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination

    try:
        embedded = await SqliteCoordination.open(
            choice.folder / "coordination.db",
            clock=clock,
            known_epoch=known,
            fresh_epoch=fresh,
            boot=_boot(),
            terms=choice.terms,
            max_claims=choice.max_claims,
            max_claims_per_source=choice.max_claims_per_source,
        )
    except StateError as error:
        if error.reason != "store-locked":
            raise
        raise StateError(
            "Another Slow has the embedded coordination store. Several Slows need one that they can share: set "
            '[slow] coordination to "redis" or "aws".',
            reason=error.reason,
        ) from None
    met(embedded.epoch.name)
    return embedded


@contextlib.contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Names the package to install when an optional library is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StateError(
            f"{error.name} is not installed: install snavio[{extra}].", reason="missing-library"
        ) from None


def _boot() -> str:
    """Identifies this boot of the machine, within which monotonic times can be compared; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def open_mailbox_store(folder: Path | None, *, max_bytes: int, max_keys: int = 10_000_000) -> MailboxStore:
    """The mailbox's store in `folder`, or in memory alone when there is none."""
    if folder is None:
        from snavio.adapters.memory.mailbox_store import MemoryMailboxStore

        return MemoryMailboxStore(max_bytes=max_bytes, max_keys=max_keys)
    from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore

    return SqliteMailboxStore(
        folder / "mailbox.db", digest=blake3_digest, max_bytes=max_bytes, max_keys=max_keys
    )


async def open_directory(path: Path, *, clock: Clock) -> Directory:
    """Registry's directory."""
    from snavio.adapters.embedded.sqlite_directory import SqliteDirectory

    return await SqliteDirectory.open(path, clock=clock)


async def open_certificate_ledger(path: Path, *, limit: ShareLimit, per_identity: int) -> CertificateLedger:
    """Signer's ledger of issued certificates."""
    from snavio.adapters.embedded.sqlite_certificates import SqliteCertificateLedger

    return await SqliteCertificateLedger.open(path, limit=limit, per_identity=per_identity)


async def open_capability_ledger(path: Path, *, limit: ShareLimit) -> CapabilityLedger:
    """Signer's ledger of issued capabilities."""
    from snavio.adapters.embedded.sqlite_capabilities import SqliteCapabilityLedger

    return await SqliteCapabilityLedger.open(path, limit=limit)


def open_archive(folder: Path) -> Archive:
    """The archive of snapshots."""
    from snavio.adapters.embedded.folder_archive import FolderArchive

    return FolderArchive(folder)


def open_journal_mark(folder: Path, *, instance: str, epoch: int) -> JournalMark:
    """The durable state of a process's journal."""
    from snavio.adapters.embedded.journal_files import FileJournalMark

    return FileJournalMark(folder, instance=instance, epoch=epoch)


async def open_outbox(path: Path, *, max_bytes: int) -> Outbox:
    """Relay's outbox."""
    from snavio.adapters.embedded.sqlite_outbox import SqliteOutbox

    return await SqliteOutbox.open(path, max_bytes=max_bytes)


async def open_tenant_streams(path: Path, *, clock: Clock) -> TenantStreams:
    """The signed streams of tenants, kept by the one Relay; StateError when another process has them."""
    from snavio.adapters.embedded.sqlite_tenant_streams import SqliteTenantStreams

    return await SqliteTenantStreams.open(path, clock=clock)


async def open_alerts(path: Path, *, messages: int, messages_per_tenant: int) -> AlertStore:
    """Alerts and their deliveries; secrets of webhooks are sealed under a key beside the file."""
    from snavio.adapters.embedded.sealing import make_sealing_key
    from snavio.adapters.embedded.sqlite_alerts import AlertBounds, SqliteAlerts

    key = make_sealing_key(path.with_suffix(".key"), store_path=path)
    bounds = AlertBounds(messages=messages, messages_per_tenant=messages_per_tenant)
    return await SqliteAlerts.open(path, key=key, bounds=bounds)


def open_watermark(path: Path, *, max_bytes: int = 4096) -> Watermark:
    """A process's watermark in one file."""
    from snavio.adapters.embedded.folder_archive import FileWatermark

    return FileWatermark(path, max_bytes=max_bytes)


async def open_key_store(
    path: Path, *, sealing_key: Path, kms: KmsKey | None = None, create: bool = False
) -> KeyStore:
    """Signer's key store; `create` makes it, and its sealing key, where there is none.

    The sealing key comes from the environment or the file `sealing_key`; with `kms` the file holds it wrapped.
    """
    from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
    from snavio.adapters.embedded.sealing import SEALING_KEY_VARIABLE, make_sealing_key, read_sealing_key

    if kms is None:
        key = make_sealing_key(sealing_key, store_path=path) if create else read_sealing_key(sealing_key)
        return await SealedKeyStore.open(path, key=key, create=create)
    if SEALING_KEY_VARIABLE in os.environ:
        raise StateError(
            f"{SEALING_KEY_VARIABLE} is set, and [signer] sealing_kms_key too: which of them seals the key store?",
            reason="two-sealing-keys",
        )
    try:
        from snavio.adapters.aws.kms import KmsKeyWrapping
    except ModuleNotFoundError:
        raise StateError(
            "[signer] sealing_kms_key needs the extra `aws`: pip install 'snavio[aws]'.",
            reason="extra-missing",
        ) from None
    from snavio.adapters.embedded.wrapped_sealing import unwrapped_sealing_key

    key = await unwrapped_sealing_key(
        sealing_key, wrapping=KmsKeyWrapping(kms), store_path=path, create=create
    )
    return await SealedKeyStore.open(path, key=key, create=create)


def open_secret_source(environment: Mapping[str, str]) -> SecretSource:
    """Where the edge reads the bytes of its secrets."""
    from snavio.adapters.secret_sources import SecretSources

    return SecretSources(environment)
