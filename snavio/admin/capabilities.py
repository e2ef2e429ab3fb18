"""Client of operators and principals for mailbox capabilities at Signer.

Never keeps a capability: its place is the caller's to choose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from snavio.admin.client import SignerClient
from snavio.domain.caveat import Quota
from snavio.v1 import signer_pb2 as wire


class CapabilityClient(SignerClient):
    """A client of Signer, under the certificate in `certificates`."""

    async def issue(
        self,
        realm: str,
        operations: Sequence[str],
        *,
        holder: str = "",
        ttl_s: int = 0,
        quota: Quota | None = None,
    ) -> wire.IssueCapabilityResponse:
        """A capability for a topic, `<tenant>/*` or `*`; without a holder, for the caller."""
        request = wire.IssueCapabilityRequest(
            realm=realm,
            operation=operations,
            holder=holder,
            ttl_seconds=ttl_s,
            quota_messages=quota.messages if quota else 0,
            quota_interval_ms=quota.interval_ms if quota else 0,
        )
        return await self._call("IssueCapability", request, wire.IssueCapabilityResponse)

    async def revoke(self, cap_id: str, *, reason: str = "") -> None:
        """End one, with all that was narrowed from it."""
        await self._revoke(wire.RevokeCapabilityRequest(id=cap_id, reason=reason))

    async def revoke_holder(self, holder: str, *, bar: bool = False, reason: str = "") -> None:
        """End all that a holder was given so far; with `bar` it gets no other."""
        await self._revoke(wire.RevokeCapabilityRequest(holder=holder, bar=bar, reason=reason))

    async def restore_holder(self, holder: str) -> None:
        """Let a barred holder have capabilities again."""
        await self._revoke(wire.RevokeCapabilityRequest(holder=holder, restore=True))

    async def revoke_root(self, realm: str, version: int, *, reason: str = "") -> None:
        """End all that was made under a root key of that version or before."""
        root = wire.RootVersion(realm=realm, version=version)
        await self._revoke(wire.RevokeCapabilityRequest(root=root, reason=reason))

    async def rotate(self, realm: str = "") -> wire.RotateCapabilityRootResponse:
        """A new root key for a realm, or for all of them."""
        request = wire.RotateCapabilityRootRequest(realm=realm)
        return await self._call("RotateCapabilityRoot", request, wire.RotateCapabilityRootResponse)

    async def living(self, *, realm: str = "", holder: str = "") -> AsyncIterator[wire.CapabilityRecord]:
        """Capabilities that have not expired, oldest first."""
        after, more = "", True
        while more:
            page = await self._call(
                "ListCapabilities",
                wire.ListCapabilitiesRequest(realm=realm, holder=holder, after_id=after),
                wire.ListCapabilitiesResponse,
            )
            for record in page.capability:
                yield record
                after = record.id
            more = page.more

    async def _revoke(self, request: wire.RevokeCapabilityRequest) -> None:
        await self._call("RevokeCapability", request, wire.RevokeCapabilityResponse)
