"""Two tenants for tests of the directory: `acme` owns the target `bot`, `rival` would like to use it."""

from __future__ import annotations

from collections.abc import Iterable

from snavio.domain.directory import AclEntry, Route, Service, Target, Tenant, Value
from snavio.replication.directory_wire import entry_to_wire
from snavio.v1 import registry_pb2 as wire
from tests.support.control import ADMIN, Control

ACME: tuple[Value, ...] = (
    Tenant("acme"),
    Service("acme", "billing"),
    Target("bot", "acme"),
    Route("bot", "Ping"),
    AclEntry("acme/billing", "bot", "Ping"),
)
RIVAL: tuple[Value, ...] = (Tenant("rival"), Service("rival", "shop"))


def writes(values: Iterable[Value], *, delete: bool = False) -> list[wire.Write]:
    return [wire.Write(entry=entry_to_wire(value), delete=delete) for value in values]


async def apply(
    control: Control,
    *values: Value,
    by: str = ADMIN,
    dry_run: bool = False,
    deleted: Iterable[Value] = (),
    check: Iterable[wire.CheckRequest] = (),
    reason: str = "",
) -> wire.ApplyResponse:
    """Apply values in one batch."""
    request = wire.ApplyRequest(
        write=[*writes(values), *writes(deleted, delete=True)], dry_run=dry_run, check=check, reason=reason
    )
    answer: wire.ApplyResponse = await control.ask(by, "Apply", request, wire.ApplyResponse)
    return answer


async def settle(control: Control) -> None:
    """Both tenants, with a principal `ci` each whose certificate folder is called like the tenant."""
    await apply(control, *ACME, *RIVAL)
    for tenant in ("acme", "rival"):
        await control.certify(f"tenant/{tenant}/principal/ci", tenant)


async def version(control: Control) -> int:
    answer = await control.ask("fast", "Changes", wire.ChangesRequest(), wire.ChangesResponse)
    number: int = answer.version
    return number
