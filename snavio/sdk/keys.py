"""What an operator asks of Signer about HMAC keys: see them, rotate, revoke, set a minimum, read events.

Never receives a secret: Signer's answers to operators have none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.methods import Message
from snavio.v1 import signer_pb2 as wire

CALL_SECONDS = 5.0


class KeyDesk:
    """A client of Signer under an operator's certificate."""

    def __init__(self, signer: str, *, certificates: Path, trust_domain: str = DEFAULT_TRUST_DOMAIN) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._signer = MeshChannel(signer, files=files, service="signer", trust_domain=trust_domain)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._signer.close()

    async def status(self, source: str) -> wire.KeysetStatus:
        """One source's key versions with their traffic; NotFound if it has none."""
        found: wire.KeysetStatus = (await self._describe(wire.DescribeKeysetsRequest(source=source))).keyset[
            0
        ]
        return found

    async def all(self) -> AsyncIterator[wire.KeysetStatus]:
        """The same for every source, by name."""
        request = wire.DescribeKeysetsRequest()
        more = True
        while more:
            answer = await self._describe(request)
            for status in answer.keyset:
                yield status
                request.after_source = status.keyset.source
            more = answer.more

    async def rotate(self, source: str, *, expected_newest: str = "") -> wire.KeysetStatus:
        """Add a version; Conflict if one is on its way, or newer than `expected_newest`."""
        return await self._change(
            "RotateKeyset", wire.RotateKeysetRequest(source=source, expected_newest=expected_newest)
        )

    async def revoke(self, source: str, key_version: str) -> wire.KeysetStatus:
        """End a version at once."""
        return await self._change("RevokeKey", wire.RevokeKeyRequest(source=source, key_version=key_version))

    async def set_minimum(self, source: str, key_version: str) -> wire.KeysetStatus:
        """End every version below one at once."""
        request = wire.SetMinimumKeyRequest(source=source, key_version=key_version)
        return await self._change("SetMinimumKey", request)

    async def events(self, *, since: int = 0, epoch: int = 0) -> wire.EventsResponse:
        """What happened to keys after an event."""
        return await self._signer.call(
            "/snavio.v1.Signer/Events",
            wire.EventsRequest(since=since, epoch=epoch),
            wire.EventsResponse,
            timeout_s=CALL_SECONDS,
        )

    async def _describe(self, request: wire.DescribeKeysetsRequest) -> wire.DescribeKeysetsResponse:
        return await self._signer.call(
            "/snavio.v1.Signer/DescribeKeysets", request, wire.DescribeKeysetsResponse, timeout_s=CALL_SECONDS
        )

    async def _change(self, method: str, request: Message) -> wire.KeysetStatus:
        return await self._signer.call(
            f"/snavio.v1.Signer/{method}", request, wire.KeysetStatus, timeout_s=CALL_SECONDS
        )
