"""Commands that a mesh must refuse, made by hand because the SDK would not send them; for `snavio demo`.

Never uses more than what a producer of the demo tenant may have: its certificate and its keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.verdict import Verdict
from snavio.launch.demo_tenant import CONSUMER, NAME, PRODUCER, TARGET, folder_name
from snavio.native import read_verdicts, sign_command, uuid7
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.lifetime import Startable
from snavio.v1.batch_pb2 import Hello
from snavio.v1.command_pb2 import Command
from snavio.v1.shield_pb2 import GreetRequest, SubmitRequest
from snavio.v1.signer_pb2 import TenantConfigRequest, TenantConfigResponse

CALL_SECONDS: Final = 10.0
MINUTE_NS: Final = 60_000_000_000
OVER_THE_LIMIT: Final = (256 << 10) + 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """One attempt and its answer."""

    attempt: str
    expected: Verdict
    answered: Verdict


class Forger(Startable):
    """A client that signs and alters as it likes, under one service's certificate."""

    def __init__(self, mesh: MeshSettings, *, certificates: Path, clock: Clock) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._shield = MeshChannel(mesh.shield, files=files, service="shield", trust_domain=mesh.trust_domain)
        self._signer = MeshChannel(mesh.signer, files=files, service="signer", trust_domain=mesh.trust_domain)
        self._clock = clock
        self._audience = ""
        self._version = ""
        self._secret = b""

    async def start(self) -> None:
        """Learn the audience and the key, as any producer does."""
        hello = await self._shield.call(
            "/snavio.v1.Shield/Greet", GreetRequest(wire_version=1), Hello, timeout_s=CALL_SECONDS
        )
        config = await self._signer.call(
            "/snavio.v1.Signer/TenantConfig",
            TenantConfigRequest(),
            TenantConfigResponse,
            timeout_s=CALL_SECONDS,
        )
        self._audience, self._version = hello.audience, config.primary
        self._secret = next(key.secret for key in config.keyset.version if key.version == config.primary)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._shield.close()
        await self._signer.close()

    def signed(self, *, target: str = TARGET, ahead_ns: int = 0, secret: bytes | None = None) -> bytes:
        """A command, signed with the right key unless another is given."""
        return sign_command(
            self._secret if secret is None else secret,
            key_version=self._version,
            audience=self._audience,
            command_id=uuid7(),
            timestamp_unix_ns=self._clock.unix_ns() + ahead_ns,
            target=target,
            name=NAME,
            payload=b"invalid",
        )

    async def submit(self, command: bytes) -> Verdict:
        """The verdict of Shield."""
        answer = await self._shield.call_raw(
            "/snavio.v1.Shield/Submit",
            SubmitRequest(command=command, budget_ms=5000).SerializeToString(),
            timeout_s=CALL_SECONDS,
        )
        return Verdict(read_verdicts(answer).codes[0])


async def try_invalid_commands(mesh: MeshSettings, *, clock: Clock) -> AsyncIterator[Refusal]:
    """One of each kind, each with the answer that it got."""
    async with (
        Forger(mesh, certificates=mesh.certificates(folder_name(PRODUCER)), clock=clock) as billing,
        Forger(mesh, certificates=mesh.certificates(folder_name(CONSUMER)), clock=clock) as bot,
    ):
        forged = billing.signed(secret=bytes(32))
        yield Refusal("forged signature", Verdict.HMAC_MISMATCH, await billing.submit(forged))
        captured = billing.signed()
        await billing.submit(captured)
        yield Refusal("replayed, byte for byte", Verdict.REPLAYED, await billing.submit(captured))
        # Ahead, not late: the key is younger than ten minutes, and that would be another refusal.
        early = billing.signed(ahead_ns=10 * MINUTE_NS)
        yield Refusal(
            "stamped ten minutes ahead", Verdict.TIMESTAMP_OUTSIDE_WINDOW, await billing.submit(early)
        )
        yield Refusal("not allowed to", Verdict.ACL_DENY, await bot.submit(bot.signed()))
        claiming = Command.FromString(billing.signed())
        claiming.source = "demo/billing"
        claimed = await billing.submit(claiming.SerializeToString())
        yield Refusal("says who it is from", Verdict.SOURCE_PRESENT, claimed)
        large = Command.FromString(billing.signed())
        large.payload = bytes(OVER_THE_LIMIT)
        oversized = await billing.submit(large.SerializeToString())
        yield Refusal("payload over 256 KiB", Verdict.OVERSIZED, oversized)
        nowhere = billing.signed(target="nobody-home")
        yield Refusal("to an unknown route", Verdict.ROUTE_MISSING, await billing.submit(nowhere))
