"""The members of a tenant's signed state beside its position: restrictions, routes, alerts, and the times of its keys.

Never shows a secret, and never takes what cannot be asked for nothing: it is null then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from services.relay.tenant_restrictions import TenantRestrictions
from snavio.errors import SnavioError
from snavio.native import format_timestamp
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import DescribeKeysetsRequest, DescribeKeysetsResponse, KeysetStatus, KeyState

CALL_SECONDS: Final = 2.0
KEYSETS_IN_STATE: Final = 200
UNDECIDED_NS: Final = (1 << 63) - 1

Members = Callable[[str], Awaitable[dict[str, Any]]]


class StateMembers:
    """Asks anew each time; keeps nothing."""

    def __init__(self, *, signer: MeshChannel, restrictions: TenantRestrictions, alerts: Members) -> None:
        self._signer = signer
        self._restrictions = restrictions
        self._alerts = alerts

    async def of(self, tenant: str) -> dict[str, Any]:
        """All of them for one tenant."""
        return {
            **await self._alerts(tenant),
            # Readers cut `signature` out as the last member but one: no name may sort between it and `type`.
            "restrictions": self._restrictions.members(tenant),
            "keys": await self._keys(tenant),
        }

    async def _keys(self, tenant: str) -> list[dict[str, Any]] | None:
        try:
            page = await self._signer.call(
                "/snavio.v1.Signer/DescribeKeysets",
                DescribeKeysetsRequest(after_source=f"{tenant}/", limit=KEYSETS_IN_STATE),
                DescribeKeysetsResponse,
                timeout_s=CALL_SECONDS,
            )
        except SnavioError:
            return None
        # Ordered by source: those of other tenants are behind the last of this one.
        return [_told(each) for each in page.keyset if each.keyset.source.startswith(f"{tenant}/")]


def _told(status: KeysetStatus) -> dict[str, Any]:
    return {
        "source": status.keyset.source,
        "primary": status.primary,
        "versions": [
            {
                "version_id": version.version,
                "state": KeyState.Name(version.state).removeprefix("KEY_STATE_").lower(),
                "not_before": _time(version.not_before_unix_ns),
                "not_after": _time(version.not_after_unix_ns),
            }
            for version in status.keyset.version
        ],
    }


def _time(unix_ns: int) -> str | None:
    return format_timestamp(unix_ns) if 0 < unix_ns < UNDECIDED_NS else None
