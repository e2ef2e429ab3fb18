"""Client of operators for HMAC keys at Signer: list, rotate, revoke, set a minimum, read events.

Never receives a secret: Signer's answers to operators have none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from snavio.admin.client import SignerClient
from snavio.rpc.proto_message import ProtoMessage
from snavio.v1 import signer_pb2 as wire


class KeyClient(SignerClient):
    """A client of Signer under an operator's certificate."""

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

    async def rehearse(self, source: str, key_version: str) -> wire.KeysetStatus:
        """Count what a minimum would refuse, and refuse nothing; an empty version ends it."""
        request = wire.SetMinimumKeyRequest(source=source, key_version=key_version, rehearse=True)
        return await self._change("SetMinimumKey", request)

    async def events(self, *, since: int = 0, epoch: int = 0) -> wire.EventsResponse:
        """Key events after a given event."""
        return await self._call("Events", wire.EventsRequest(since=since, epoch=epoch), wire.EventsResponse)

    async def _describe(self, request: wire.DescribeKeysetsRequest) -> wire.DescribeKeysetsResponse:
        return await self._call("DescribeKeysets", request, wire.DescribeKeysetsResponse)

    async def _change(self, method: str, request: ProtoMessage) -> wire.KeysetStatus:
        return await self._call(method, request, wire.KeysetStatus)
