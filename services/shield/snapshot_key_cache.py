"""Keys that open and verify Signer's sealed snapshot, kept over restarts so that Shield can start while Signer is away.

The file is as secret as Shield's private key beside it, with which the key sets can be had from Signer in any case.
Never shows the key in a repr, a log or an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
import structlog

from snavio.clock import Clock
from snavio.errors import SnavioError, Unavailable
from snavio.host.store_worker import StoreWorker
from snavio.native import blake3_hex
from snavio.ports.archive import Watermark
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.signed.verification import VerifyingKey
from snavio.v1.signer_pb2 import SnapshotKeyRequest, SnapshotKeyResponse

CALL_SECONDS: Final = 2.0
DISK_SECONDS: Final = 3.0
# Both change about once a month, or in an emergency.
ASK_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _KeptKeys:
    key: bytes = field(repr=False)
    platform: tuple[VerifyingKey, ...]

    def encoded(self) -> bytes:
        body = orjson.dumps(
            {
                "key": b64encode(self.key).decode(),
                "platform": [
                    [
                        key.key_id,
                        key.public_key.hex(),
                        key.valid_from_unix_ns,
                        key.valid_until_unix_ns,
                    ]
                    for key in self.platform
                ],
            }
        )
        return blake3_hex(body).encode() + b"\n" + body


def _decoded(encoded: bytes | None) -> _KeptKeys | None:
    """None for a file that is not there or was cut; Signer is asked anew then."""
    checksum, _, body = (encoded or b"").partition(b"\n")
    try:
        if checksum != blake3_hex(body).encode():
            return None
        found = orjson.loads(body)
        return _KeptKeys(
            b64decode(found["key"], validate=True),
            tuple(
                VerifyingKey(key_id, bytes.fromhex(public), begin, end)
                for key_id, public, begin, end in found["platform"]
            ),
        )
    # Whatever is wrong, the message of the error could quote the key.
    except (KeyError, TypeError, ValueError):
        return None


class SnapshotKeyCache:
    """`start` before use."""

    def __init__(self, *, signer: MeshChannel, file: Watermark, clock: Clock) -> None:
        self._signer = signer
        self._file = file
        self._kept: _KeptKeys | None = None
        self._asked = False
        self._turn = asyncio.Lock()
        # A bound on waiting: a disk that hangs must not keep a Shield from starting that has its keys from Signer.
        self._disk = StoreWorker("opening key", max_waiting=2, timeout_s=DISK_SECONDS)
        self._pull = Poller("opening key", self._refresh, clock=clock, interval_s=ASK_EVERY_S)
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Ask Signer, or take the kept keys; then keep asking."""
        try:
            await self._refresh()
        except SnavioError as error:
            self._log.warning("opening key not asked for", reason=error.reason)
            # Had from Signer, but not kept, is good enough until the next restart.
            self._kept = self._kept or await self._read()
        self._pull.begin()

    async def learn(self) -> None:
        """Ask again, now that Signer has answered: a mesh starts all at once, and we may have asked too early."""
        async with self._turn:
            if not self._asked:
                with contextlib.suppress(SnavioError):
                    await self._ask()

    async def stop(self) -> None:
        """End the asking."""
        await self._pull.stop()
        with contextlib.suppress(SnavioError):
            await self._disk.close(lambda: None)

    def key(self) -> bytes:
        """The key that opens the snapshot; Unavailable when it was never had."""
        return self._present().key

    async def verifying(self) -> Sequence[VerifyingKey]:
        """The public keys that verify it."""
        return self._present().platform

    def _present(self) -> _KeptKeys:
        if self._kept is None:
            raise Unavailable("Signer is away, and no opening key was kept from before.")
        return self._kept

    async def _read(self) -> _KeptKeys | None:
        try:
            return _decoded(await self._disk.run(self._file.read))
        except SnavioError as error:
            self._log.warning("opening key not read", reason=error.reason)
            return None

    async def _refresh(self) -> None:
        async with self._turn:
            await self._ask()

    async def _ask(self) -> None:
        answer = await self._signer.call(
            "/snavio.v1.Signer/SnapshotKey", SnapshotKeyRequest(), SnapshotKeyResponse, timeout_s=CALL_SECONDS
        )
        told = _KeptKeys(
            answer.key,
            tuple(
                VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
                for key in answer.platform.key
            ),
        )
        if told != self._kept:
            self._kept = told
            await self._disk.run(lambda: self._file.keep(told.encoded()))
        self._asked = True
