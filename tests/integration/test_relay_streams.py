"""Relay's streams over mTLS: what a service reports reaches the gateway signed, in order, and for its tenant alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from services.relay.app import RelayApp
from services.relay.settings import RelaySettings
from snavio.clock import SystemClock
from snavio.config import MeshSettings
from snavio.domain.stream import POSITION_TYPE, STATE_TYPE, begin_epoch
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, StateError
from snavio.native import canonical_json, ed25519_verify
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.status import error_of
from snavio.signed.stream_envelope import chained_digest, decoded, envelope_verified, signed_form
from snavio.signed.verification import VerifyingKey
from snavio.telemetry import schema
from snavio.telemetry.journal_uploader import METHOD
from snavio.v1 import relay_pb2 as wire
from snavio.v1 import signer_pb2
from snavio.v1.registry_pb2 import CreateTenantRequest, Tenant
from tests.support.control import ADMIN, Control, control_plane
from tests.support.telemetry import SOURCE, block, page

PATIENCE_S = 60.0
READ = "/snavio.v1.Relay/ReadStream"
EPOCH = 7


class StreamingRelay:
    """A Relay in this process with Signer and Registry, and the gateway's certificate."""

    def __init__(self, control: Control, settings: RelaySettings) -> None:
        self.control = control
        self.settings = settings
        self.mesh: MeshSettings = control.mesh.model_copy(update={"relay": "127.0.0.1:0"})
        self._app: RelayApp | None = None
        self._channels: list[MeshChannel] = []
        self._sent = 0

    async def start(self) -> None:
        self._app = RelayApp(self.mesh, self.settings, SystemClock())
        port = await self._app.start()
        self.mesh = self.mesh.model_copy(update={"relay": f"127.0.0.1:{port}"})

    async def stop(self) -> None:
        for channel in self._channels:
            await channel.close()
        self._channels.clear()
        if self._app is not None:
            await self._app.drain()
            self._app = None

    def channel(self, caller: str = "gateway") -> MeshChannel:
        files = CertificateFiles.in_folder(self.mesh.certificates(caller))
        opened = MeshChannel(self.mesh.relay, files=files, service="relay")
        self._channels.append(opened)
        return opened

    async def report(self, *verdicts: int) -> None:
        """Events of fast's journal, durable when this returns."""
        stream = self.channel("fast").stream(METHOD)
        await stream.write(page(instance="fast-0", epoch=EPOCH, first_seq=0))
        await stream.read()
        blocks = [block(verdicts)]
        await stream.write(page(*blocks, instance="fast-0", epoch=EPOCH, first_seq=self._sent + 1))
        answer = wire.JournalReceipt.FromString(await stream.read())
        self._sent += len(verdicts)
        assert answer.durable_seq == self._sent
        await stream.done_writing()

    async def window(self, tenant: str = "acme", *, signed: bool = False) -> wire.StreamWindowResponse:
        return await self.channel().call(
            "/snavio.v1.Relay/StreamWindow",
            wire.StreamWindowRequest(tenant=tenant, signed=signed),
            wire.StreamWindowResponse,
            timeout_s=PATIENCE_S,
        )

    async def read(
        self, count: int, *, after: int | None = None, caller: str = "gateway", **more: Any
    ) -> list[wire.StreamEnvelope]:
        """So many envelopes, once they are there."""
        start = (await self.window()).position.low if after is None else after
        request = wire.ReadStreamRequest(tenant="acme", after=start, **more)
        stream = self.channel(caller).stream(READ)
        found: list[wire.StreamEnvelope] = []
        try:
            await stream.write(request.SerializeToString())
            await stream.done_writing()
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    message = await stream.read()
                    if message is grpc.aio.EOF:
                        raise error_of_call(stream, await stream.code())
                    found += wire.StreamPage.FromString(message).envelope
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None
        finally:
            stream.cancel()
        return found

    async def keys(self) -> Sequence[VerifyingKey]:
        answer = await self.control.sign(
            ADMIN,
            "GetPublicKeys",
            signer_pb2.GetPublicKeysRequest(scope="tenant:acme", include_ended=True),
            signer_pb2.PublicKeys,
        )
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
            for key in answer.key
        ]

    async def events(self, envelopes: Sequence[wire.StreamEnvelope]) -> list[dict[str, Any]]:
        """The events of a chain that holds."""
        keys = await self.keys()
        found: list[dict[str, Any]] = []
        prev: str | None = None
        for one in envelopes:
            envelope = decoded(one.body)
            form = signed_form(envelope)
            assert envelope_verified(envelope, form, keys)
            assert envelope.seq == one.seq and prev in (None, envelope.prev)
            prev = chained_digest(form)
            assert prev == one.digest
            found += orjson.loads(one.body)["payload"]["events"]
        return found


def error_of_call(_stream: Any, code: grpc.StatusCode) -> AssertionError:
    return AssertionError(f"the stream ended with {code}")


@asynccontextmanager
async def streaming(folder: Path, *, known: bool = True, **settings: Any) -> AsyncIterator[StreamingRelay]:
    async with control_plane(folder / "state", registry=True) as control:
        if known:
            await control.write(ADMIN, "CreateTenant", CreateTenantRequest(tenant=Tenant(tenant="acme")))
        relay = StreamingRelay(control, RelaySettings(revocations_wait_s=0.0, **settings))
        await relay.start()
        try:
            yield relay
        finally:
            await relay.stop()


async def test_what_a_service_reports_reaches_its_tenant_signed_and_in_order(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        await relay.report(1, 2)
        first = await relay.read(1)
        await relay.report(1)
        both = [*first, *await relay.read(1, after=first[0].seq)]
        names = [event["event"] for event in await relay.events(both)]
        assert names == [schema.DELIVERED, schema.DUPLICATE, schema.DELIVERED]
        assert (both[0].source, both[0].family) == (SOURCE, "command")
        window = (await relay.window()).position
        assert (window.high, window.head) == (both[-1].seq, both[-1].digest)


async def test_a_reader_who_follows_gets_what_is_sealed_later(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        high = (await relay.window()).position.high
        reading = asyncio.create_task(relay.read(2, after=high))
        await relay.report(1)
        await relay.read(1)
        await relay.report(2)
        assert [one.seq for one in await reading] == [high + 1, high + 2]


async def test_another_life_of_relay_continues_the_chain(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        await relay.report(1)
        first = await relay.read(1)
        await relay.stop()
        await relay.start()
        await relay.report(2)
        both = await relay.read(2)
        assert both[0] == first[0]
        assert [event["event"] for event in await relay.events(both)] == [schema.DELIVERED, schema.DUPLICATE]


async def test_filters_choose_whole_envelopes(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        await relay.report(1)
        (one,) = await relay.read(1, source=[SOURCE], family=["command", "audit"])
        assert one.source == SOURCE
        low = (await relay.window()).position.low
        stream = relay.channel().stream(READ)
        request = wire.ReadStreamRequest(tenant="acme", after=low, source=["acme/other"])
        await stream.write(request.SerializeToString())
        answer = wire.StreamPage.FromString(await stream.read())
        assert (len(answer.envelope), answer.through) == (0, one.seq)
        stream.cancel()
        with pytest.raises(BadRequest):
            await relay.read(1, family=["other"])


async def test_a_bookmark_outside_the_window_ends_with_its_reason(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        low = (await relay.window()).position.low
        with pytest.raises(Conflict) as raised:
            await relay.read(1, after=low - 1)
        assert raised.value.reason == "last_event_id_outside_replay_window"


async def test_only_the_gateway_reads_streams(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        for caller in ("fast", ADMIN):
            with pytest.raises(NotAllowed):
                await relay.read(1, after=1, caller=caller)


async def test_a_statement_of_the_window_and_of_the_state_is_signed_with_the_tenants_key(
    tmp_path: Path,
) -> None:
    async with streaming(tmp_path) as relay:
        with pytest.raises(NotFound) as raised:
            await relay.window(signed=True)
        assert raised.value.reason == "not-provisioned"
        await relay.report(1, 1)
        (one,) = await relay.read(1)
        signed = await relay.window(signed=True)
        state = await relay.channel().call(
            "/snavio.v1.Relay/TenantState",
            wire.TenantStateRequest(tenant="acme"),
            wire.TenantStateResponse,
            timeout_s=PATIENCE_S,
        )
        (key,) = await relay.keys()
        for statement, kind in ((signed.statement, POSITION_TYPE), (state.statement, STATE_TYPE)):
            document = orjson.loads(statement)
            signature = bytes.fromhex(document.pop("signature"))
            assert ed25519_verify(key.public_key, canonical_json(orjson.dumps(document)), signature)
            assert (document["type"], document["scope"]) == (kind, "tenant:acme")
            position = document.get("position", document)
            assert (position["high"], position["head"]) == (str(one.seq), one.digest)
        assert orjson.loads(state.statement)["events"] == {"command": 2}


async def test_while_signer_is_away_events_wait_and_then_come(tmp_path: Path) -> None:
    async with streaming(tmp_path) as relay:
        await relay.report(1)
        await relay.read(1)
        address = relay.control.mesh.signer
        await relay.control.stop_signer()
        await relay.report(2, 2)
        high = (await relay.window()).position.high
        relay.control.mesh = relay.control.mesh.model_copy(update={"signer": address})
        await relay.control.start_signer()
        (one,) = await relay.read(1, after=high)
        assert [event["event"] for event in await relay.events([one])] == [schema.DUPLICATE] * 2


async def test_a_tenant_that_the_directory_comes_to_know_gets_its_key_and_its_events(tmp_path: Path) -> None:
    async with streaming(tmp_path, known=False) as relay:
        await relay.report(1)
        window = (await relay.window()).position
        assert (window.high, window.head) == (begin_epoch(window.epoch).high, "")
        await relay.control.write(ADMIN, "CreateTenant", CreateTenantRequest(tenant=Tenant(tenant="acme")))
        assert len(await relay.read(1)) == 1


def test_more_relays_than_the_store_can_have_are_refused_at_start(tmp_path: Path) -> None:
    settings = RelaySettings(stream_replicas=2)
    with pytest.raises(StateError, match="set it to 1"):
        settings.require_one_owner()
