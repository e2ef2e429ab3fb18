"""Signer's state when registrations, suspensions and their ends coincide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.registry.reads.forecast import Forecast
from services.registry.reads.live_gates import LiveGates
from services.registry.signer.joint_writes import JointWrites
from services.registry.signer.signer_calls import SignerCalls
from services.registry.signer.signer_sync import SignerSync
from services.registry.wire.write_servicer import WriteServicer
from services.registry.writes.batch import BatchWriter, WriteRequest
from services.registry.writes.entry_limits import EntryLimits
from services.registry.writes.ownership import Ownership
from services.registry.writes.queue_proofs import QueueProofs
from services.registry.writes.sweeper import AT_ONCE, Sweeper
from snavio.clock import ManualClock
from snavio.domain.directory import Draft, Route, Service, Suspension, Tenant
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import Conflict, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call
from snavio.v1 import registry_pb2 as wire
from tests.support.memory_directory import MemoryDirectory

SOURCE = "acme/billing"
ADMIN = Identity("snavio.local", IdentityKind.OPERATOR, "admin")
CALL = cast("Call", SimpleNamespace(peer=SimpleNamespace(identity=ADMIN)))


@dataclass
class Signer:
    """Remembers the last call; `meanwhile` runs once, during a call."""

    told: tuple[tuple[str, ...], bool] | None = None
    meanwhile: list[Callable[[], Awaitable[Any]]] = field(default_factory=list)

    async def keyset(self, source: str) -> None:
        pass

    async def principals(self, service: Service, *, suspended: bool) -> None:
        if self.meanwhile:
            await self.meanwhile.pop()()
        self.told = (service.principals, suspended)


@dataclass
class Scene:
    clock: ManualClock = field(default_factory=ManualClock)
    signer: Signer = field(default_factory=Signer)

    def __post_init__(self) -> None:
        self.directory = MemoryDirectory(clock=self.clock)
        self.trust = cast("SignerCalls", self.signer)
        self.ownership = Ownership(EntryLimits(), self.clock)
        # Nothing is forecast here.
        self.queues = QueueProofs(cast("MeshChannel", self.signer))
        live = LiveGates(cast("MeshChannel", self.signer), self.clock)
        self.servicer = WriteServicer(
            directory=self.directory,
            ownership=self.ownership,
            trust=self.trust,
            forecast=Forecast(self.trust, live, self.clock),
            queues=self.queues,
        )

    async def begin(self) -> None:
        drafts = [Draft(Tenant("acme")), Draft(Service("acme", "billing", ("ci",)))]
        await self.directory.write(lambda _view: drafts, actor="test")

    async def suspend(self, seconds: float = 0) -> None:
        until = self.clock.unix_ns() + round(seconds * 1e9) if seconds else 0
        suspension = wire.Suspension(source=SOURCE, until_unix_ns=until)
        request = wire.SetSuspensionRequest(suspension=suspension, suspended=True)
        await self.servicer.set_suspension(request, CALL)

    async def register(self, *principals: str, expected: int | None = None) -> None:
        request = wire.RegisterServiceRequest(
            service=wire.Service(tenant="acme", service="billing", principal=principals)
        )
        if expected is not None:
            request.options.expected_version = expected
        await self.servicer.register_service(request, CALL)


@pytest.fixture
async def scene() -> Scene:
    made = Scene()
    await made.begin()
    return made


async def test_a_registration_does_not_undo_a_suspension_that_comes_between(scene: Scene) -> None:
    scene.signer.meanwhile.append(scene.suspend)
    await scene.register("ci", "cd")
    assert scene.signer.told == (("cd", "ci"), True)


async def test_a_batch_does_not_undo_a_suspension_that_comes_between(scene: Scene) -> None:
    scene.signer.meanwhile.append(scene.suspend)
    batches = BatchWriter(
        scene.directory,
        scene.ownership,
        scene.trust,
        SignerSync(scene.directory, scene.trust, scene.clock),
        scene.queues,
        JointWrites(),
    )
    wanted = [WriteRequest(Service("acme", "billing", ("cd",)), deleted=False, expected_version=None)]
    await batches.apply(wanted, actor=ADMIN, reason="", dry_run=False)
    assert scene.signer.told == (("cd",), True)


async def test_the_end_of_a_suspension_does_not_undo_the_next_one(scene: Scene) -> None:
    await scene.suspend(seconds=60)
    scene.clock.advance(seconds=61)
    scene.signer.meanwhile.append(scene.suspend)
    sweeper = Sweeper(
        directory=scene.directory, trust=scene.trust, clock=scene.clock, trust_domain="snavio.local"
    )
    await sweeper.sweep()
    assert scene.signer.told == (("ci",), True)
    assert scene.directory.find(Suspension, SOURCE) == Suspension(SOURCE)


async def test_a_sweep_waits_once_for_a_signer_that_is_away_and_ends_everything_else(scene: Scene) -> None:
    asked = 0

    async def away(*_service: Service, suspended: bool) -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("away")

    scene.signer.principals = away  # type: ignore[assignment, method-assign]
    soon = scene.clock.unix_ns() + 1
    names = [f"s{number}" for number in range(2 * AT_ONCE)]
    drafts = [
        *(Draft(Service("acme", name)) for name in names),
        *(Draft(Suspension(f"acme/{name}", until_unix_ns=soon)) for name in names),
        Draft(Route("bot", "Brief", expires_unix_ns=soon + 1)),
    ]
    await scene.directory.write(lambda _view: drafts, actor="test")
    scene.clock.advance(seconds=1)
    sweeper = Sweeper(
        directory=scene.directory, trust=scene.trust, clock=scene.clock, trust_domain="snavio.local"
    )
    await sweeper.sweep()
    assert scene.directory.find(Route, "bot", "Brief") is None
    assert scene.directory.find(Suspension, "acme/s0") is not None
    assert asked == 1


async def test_a_suspension_that_has_ended_is_told_as_ended(scene: Scene) -> None:
    await scene.suspend(seconds=60)
    scene.clock.advance(seconds=61)
    await scene.register("ci", "cd")
    assert scene.signer.told == (("cd", "ci"), False)


async def test_a_batch_that_was_refused_in_between_leaves_signer_with_what_stands(scene: Scene) -> None:
    async def another() -> None:
        await scene.directory.write(lambda _view: Draft(Service("acme", "billing", ("ops",))), actor="test")

    scene.signer.meanwhile.append(another)
    batches = BatchWriter(
        scene.directory,
        scene.ownership,
        scene.trust,
        SignerSync(scene.directory, scene.trust, scene.clock),
        scene.queues,
        JointWrites(),
    )
    version = scene.directory.version_of(Service, "acme", "billing")
    wanted = [WriteRequest(Service("acme", "billing", ("cd",)), deleted=False, expected_version=version)]
    with pytest.raises(Conflict):
        await batches.apply(wanted, actor=ADMIN, reason="", dry_run=False)
    assert scene.signer.told == (("ops",), False)
