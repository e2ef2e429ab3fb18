"""The typed interface of the Rust extension, and the only importer of `snavio._native`.

Never runs on a library that was built from other sources than those beside it: a stale `.so` would go on judging
commands by yesterday's rules while its tests are read as today's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

try:
    from snavio._native import (
        MESH_BATCH_BYTES,
        MESH_BATCH_COMMANDS,
        SOURCE_DIGEST,
        Admission,
        Arbitration,
        Committed,
        Dispatch,
        IdClaim,
        Judgement,
        LaneKey,
        Ledger,
        NonceSet,
        PartBuffer,
        Plan,
        PlannedEscalation,
        PlannedSend,
        Received,
        ReplayWindow,
        Reply,
        Sending,
        SnapshotTables,
        Tombstones,
        WalWalk,
        WarmBan,
        batch_frame,
        batch_header,
        blake3_digest,
        blake3_hex,
        blocks_with,
        canonical_json,
        cut_by_tenant,
        ed25519_is_weak,
        ed25519_public_key,
        ed25519_sign,
        ed25519_sign_batch,
        ed25519_verify,
        envelope,
        format_timestamp,
        frame_leased_batch,
        group_topics,
        hmac_sha256,
        measure_submission,
        parse_timestamp,
        read_journal_page,
        read_leased_batches,
        read_message_groups,
        read_new_messages,
        read_single,
        read_verdicts,
        replay_keys,
        request_topic,
        reseal_wal,
        salvage_runs,
        seal_runs,
        shard_of,
        sign_batch,
        sign_command,
        slice_runs,
        snapshot_header,
        snapshot_suspensions,
        split_batch,
        telemetry_columns,
        telemetry_rows,
        uuid7,
    )
except ImportError as error:
    # Absent, built for another machine, or so old that a name is missing.
    raise ImportError("The native library is missing or cannot be loaded: run `make build`.") from error


def _digest_of_sources(crate: Path) -> str:
    """The digest that `native/build.rs` bakes into the library; both must compute it alike."""
    found = [crate / "Cargo.toml", crate / "Cargo.lock", *(crate / "src").rglob("*.rs")]
    named = sorted((path.relative_to(crate).as_posix(), path) for path in found if path.is_file())
    digest = hashlib.sha256()
    for name, path in named:
        body = path.read_bytes()
        digest.update(name.encode() + b"\0" + len(body).to_bytes(8, "little"))
        digest.update(body)
    return digest.hexdigest()


def _refuse_stale_library(root: Path, *, built_from: str) -> None:
    """ImportError when the sources under `root` are not those that the library was built from.

    An installed wheel has no sources beside it, and then there is nothing to compare.
    """
    crate = root / "native"
    if (crate / "Cargo.toml").is_file() and _digest_of_sources(crate) != built_from:
        raise ImportError(
            "The native library was built from other sources than those in native/: run `make build`."
        )


_refuse_stale_library(Path(__file__).resolve().parent.parent, built_from=SOURCE_DIGEST)
