"""Composes the keys of Signer: HMAC key sets, their rotation and rollout, platform signatures, key snapshots.

Never loses at an orderly end what it counted of their use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.signer.keys.key_expiry_watch import KeyExpiryWatch
from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_rollout import KeyRollout
from services.signer.keys.key_snapshots import KeySnapshots
from services.signer.keys.key_traffic import KeyTraffic
from services.signer.keys.keysets import Keysets
from services.signer.keys.rotation_schedule import RotationSchedule
from services.signer.keys.signatures import Signatures
from services.signer.keys.traffic_ledger import MAX_FILE_BYTES, TrafficLedger
from services.signer.settings import SignerSettings
from services.signer.wire.keyset_servicer import KeysetServicer
from services.signer.wire.signature_servicer import SignatureServicer
from snavio.host.service import ServiceHost
from snavio.ports.archive import Archive
from snavio.ports.keystore import KeyStore
from snavio.rpc.methods import Methods
from snavio.telemetry.events import EventJournal
from snavio.wiring import open_archive, open_watermark

UPKEEP_SECONDS: Final = 20.0
PROMOTE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class SignerKeys:
    """The parts of it that tests look at."""

    rollout: KeyRollout
    traffic_ledger: TrafficLedger
    archive: Archive
    snapshots: KeySnapshots
    events: EventJournal


async def compose_keys(
    host: ServiceHost, settings: SignerSettings, *, store: KeyStore, methods: Methods
) -> SignerKeys:
    """Load what is kept about keys, begin their upkeep, and register the methods."""
    clock, introspection = host.clock, host.introspection
    delay_ns, overlap_ns = round(settings.distribution_delay_s * 1e9), round(settings.overlap_s * 1e9)
    cadence_ns = round(settings.rotate_every_s * 1e9)
    events = EventJournal(epoch=host.epoch, onward=host.reporting.record)
    polls = KeyPolls(store=store, clock=clock)
    await polls.load()
    keysets = Keysets(store=store, polls=polls, clock=clock, overlap_ns=overlap_ns)
    rollout = KeyRollout(keysets=keysets, store=store, clock=clock, least_ns=delay_ns)
    scheduler = RotationSchedule(keysets=keysets, store=store, clock=clock, cadence_ns=cadence_ns)
    usage = KeyTraffic(clock=clock)
    key_expiry_watch = KeyExpiryWatch(store=store, usage=usage, polls=polls, events=events, clock=clock)
    ledger = TrafficLedger(
        file=open_watermark(settings.usage_path(host.mesh), max_bytes=MAX_FILE_BYTES),
        usage=usage,
        key_expiry_watch=key_expiry_watch,
        clock=clock,
    )
    await ledger.load()
    host.hold(ledger)
    # What cannot be written now only makes sources look as if they had polled a little earlier.
    host.at_stop("polls of keys", lambda: polls.write(now=True))
    KeysetServicer(
        keysets=keysets,
        distribution=rollout,
        polls=polls,
        usage=usage,
        key_expiry_watch=key_expiry_watch,
        events=events,
        clock=clock,
        poll_after_s=settings.poll_after_s,
        cadence_ns=cadence_ns,
    ).register(methods)
    signatures = Signatures(
        store=store,
        clock=clock,
        events=events,
        trust_domain=host.mesh.trust_domain,
        delay_ns=delay_ns,
        overlap_ns=overlap_ns,
    )
    await signatures.announce_rotations()
    archive = host.hold(open_archive(host.mesh.snapshots()))
    snapshots = KeySnapshots(
        store=store,
        archive=archive,
        signatures=signatures,
        clock=clock,
        lifetime_s=settings.snapshot_lifetime_s,
        key_life_ns=cadence_ns,
        events=events,
    )
    SignatureServicer(signatures=signatures, snapshots=snapshots, clock=clock).register(methods)
    introspection.gauges(rollout.gauges, prefix="rotation.")
    introspection.counts(snapshots.meter.counters)
    introspection.gauges(snapshots.meter.gauges)
    introspection.counts(events.counters, prefix="event.")

    async def upkeep() -> None:
        await polls.write()
        await ledger.write()
        await scheduler.turn()

    await host.now_and_every(UPKEEP_SECONDS, "upkeep of keys", upkeep, within_s=settings.start_within_s)
    host.every(PROMOTE_SECONDS, "distribution of keys", rollout.turn, at_once=True, longest_s=PROMOTE_SECONDS)
    if settings.write_snapshots:
        host.every(settings.snapshot_interval_s, "snapshot of key sets", snapshots.turn, at_once=True)
    return SignerKeys(rollout, ledger, archive, snapshots, events)
