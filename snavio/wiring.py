"""Chooses adapters: the only place that knows which implementation stands behind a port.

Never holds a rule of the product.
"""

from __future__ import annotations

from pathlib import Path

from snavio.clock import Clock
from snavio.native import blake3_digest
from snavio.ports.archive import Archive, Watermark
from snavio.ports.certificates import CertificateLedger
from snavio.ports.directory import Directory
from snavio.ports.keystore import KeyStore
from snavio.ports.mailbox_store import MailboxStore
from snavio.transport.channel import MeshChannel
from snavio.transport.link import BatchLink


def mailbox_queue(mailbox: MeshChannel, *, clock: Clock, instance: str, epoch: int) -> BatchLink:
    """The built-in target queue. It recognises what it has stored, so an unanswered batch is sent again."""
    return BatchLink(
        mailbox, "/snavio.v1.Mailbox/SendStream", clock=clock, instance=instance, epoch=epoch, resend=True
    )


def open_mailbox_store(folder: Path | None, *, max_bytes: int) -> MailboxStore:
    """The mailbox's store in `folder`, or in memory alone when there is none."""
    if folder is None:
        from snavio.adapters.memory.mailbox_store import MemoryMailboxStore

        return MemoryMailboxStore(max_bytes=max_bytes)
    from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore

    return SqliteMailboxStore(folder / "mailbox.db", digest=blake3_digest, max_bytes=max_bytes)


async def open_directory(path: Path, *, clock: Clock) -> Directory:
    """Registry's directory."""
    from snavio.adapters.embedded.sqlite_directory import SqliteDirectory

    return await SqliteDirectory.open(path, clock=clock)


async def open_certificate_ledger(path: Path) -> CertificateLedger:
    """Signer's list of issued certificates."""
    from snavio.adapters.embedded.sqlite_certificates import SqliteCertificateLedger

    return await SqliteCertificateLedger.open(path)


def open_archive(folder: Path) -> Archive:
    """Where snapshots lie."""
    from snavio.adapters.embedded.folder_archive import FolderArchive

    return FolderArchive(folder)


def open_watermark(path: Path) -> Watermark:
    """What one reader of snapshots remembers."""
    from snavio.adapters.embedded.folder_archive import FileWatermark

    return FileWatermark(path)


async def open_key_store(path: Path, *, sealing_key: Path, create: bool = False) -> KeyStore:
    """Signer's key store; `create` makes it, and its sealing key, where there is none."""
    from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
    from snavio.adapters.embedded.sealing import make_sealing_key, read_sealing_key

    key = make_sealing_key(sealing_key, store_path=path) if create else read_sealing_key(sealing_key)
    return await SealedKeyStore.open(path, key=key, create=create)
