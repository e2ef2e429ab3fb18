"""Signer and Registry in this process, over real mTLS, with real certificates and a clock that tests move."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.registry.app import RegistryApp
from services.registry.settings import RegistrySettings
from services.signer.app import SignerApp
from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.launch.free_ports import free_ports
from snavio.pki import make_key_and_csr, write_certificate_folder
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from tests.support.wire import WITHIN_S

ADMIN = "operator-admin"


@dataclass
class Control:
    """The control plane of one state folder. Callers are named by their certificate folders."""

    mesh: MeshSettings
    clock: ManualClock
    signer_settings: SignerSettings
    registry_settings: RegistrySettings
    signer: SignerApp | None = None
    registry: RegistryApp | None = None
    _channels: dict[tuple[str, str], MeshChannel] = field(default_factory=dict)

    async def start_signer(self) -> None:
        self.signer = SignerApp(self.mesh, self.signer_settings, self.clock)
        port = await self.signer.start()
        self.mesh = self.mesh.model_copy(update={"signer": f"127.0.0.1:{port}"})

    async def start_registry(self) -> None:
        self.registry = RegistryApp(self.mesh, self.registry_settings, self.clock)
        port = await self.registry.start()
        self.mesh = self.mesh.model_copy(update={"registry": f"127.0.0.1:{port}"})

    async def stop_signer(self) -> None:
        if self.signer is not None:
            await self.signer.drain()
            self.signer = None

    async def stop_registry(self) -> None:
        if self.registry is not None:
            await self.registry.drain()
            self.registry = None

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        await self.stop_registry()
        await self.stop_signer()

    async def spread_keys(self) -> None:
        """As long as a rotation takes at least, and then Signer's next look at who has what."""
        self.clock.advance(seconds=self.signer_settings.distribution_delay_s)
        assert self.signer is not None
        await self.signer.keys.rollout.turn()

    async def sign(self, caller: str, method: str, request: Any, response: type[Any]) -> Any:
        """A call to Signer."""
        return await self._call("signer", caller, method, request, response)

    async def write(self, caller: str, method: str, request: Any) -> reg.WriteResponse:
        """A write to Registry."""
        answer: reg.WriteResponse = await self.ask(caller, method, request, reg.WriteResponse)
        return answer

    async def ask(self, caller: str, method: str, request: Any, response: type[Any]) -> Any:
        """A call to Registry."""
        return await self._call("registry", caller, method, request, response)

    async def certify(self, path: str, folder: str, *, by: str = ADMIN, ttl_s: int = 0) -> str:
        """A certificate for `spiffe://<trust domain>/<path>` in the folder called `folder`; its serial."""
        key_pem, csr_pem = make_key_and_csr()
        issued = await self.sign(
            by,
            "IssueCertificate",
            sig.IssueCertificateRequest(
                csr_pem=csr_pem.decode(),
                spiffe_id=f"spiffe://{self.mesh.trust_domain}/{path}",
                ttl_seconds=ttl_s,
            ),
            sig.IssueCertificateResponse,
        )
        write_certificate_folder(
            self.mesh.certificates(folder),
            certificate_pem=issued.certificate_pem.encode(),
            private_key_pem=key_pem,
            ca_pem=issued.ca_pem.encode(),
        )
        serial: str = issued.serial
        return serial

    async def _call(self, service: str, caller: str, method: str, request: Any, response: type[Any]) -> Any:
        address = self.mesh.signer if service == "signer" else self.mesh.registry
        channel = self._channels.get((caller, address))
        if channel is None:
            channel = self._channels[caller, address] = MeshChannel(
                address, files=CertificateFiles.in_folder(self.mesh.certificates(caller)), service=service
            )
        name = f"/snavio.v1.{service.capitalize()}/{method}"
        return await channel.call(name, request, response, timeout_s=WITHIN_S)


_prepared: list[tempfile.TemporaryDirectory[str]] = []


async def _copy_prepared(mesh: MeshSettings, settings: SignerSettings, clock: ManualClock) -> None:
    """Fill an empty state folder from one that was prepared once: keys and fsyncs cost more than most tests."""
    if (mesh.state_dir / "signer").exists():
        return
    if not _prepared:
        folder = tempfile.TemporaryDirectory(prefix="snavio-prepared-")
        await prepare(mesh.model_copy(update={"state_dir": Path(folder.name)}), settings, clock=clock)
        _prepared.append(folder)
    shutil.copytree(_prepared[0].name, mesh.state_dir, symlinks=True, dirs_exist_ok=True)


@asynccontextmanager
async def control_plane(
    state_dir: Path,
    *,
    registry: bool = False,
    signer_settings: SignerSettings | None = None,
    registry_settings: RegistrySettings | None = None,
    fresh: bool = False,
    denylist_stale_s: float = 30 * 24 * 3600,
) -> AsyncIterator[Control]:
    """A prepared state folder with Signer, and with Registry if asked for, serving on free ports.

    All of one test run are one installation, with one CA, unless it is to be `fresh`.
    """
    # TLS judges certificates by the machine's clock, so ours begins there.
    clock, ports = ManualClock(time.time_ns()), free_ports(2)
    mesh = MeshSettings.model_validate(
        {
            "state_dir": state_dir,
            # Not of the system's choice: an outgoing connection could take such a port while its server is away.
            "signer": f"127.0.0.1:{ports[0]}",
            "registry": f"127.0.0.1:{ports[1]}",
            "pull_interval_ms": 50,
            # Tests move the clock by days in one step, and no denylist is pulled in between.
            "denylist_stale_s": denylist_stale_s,
        }
    )
    settings = (signer_settings or SignerSettings()).model_copy(update={"enrol_listen": "127.0.0.1:0"})
    if signer_settings is None and not fresh:
        await _copy_prepared(mesh, settings, clock)
    await prepare(mesh, settings, clock=clock)
    control = Control(mesh, clock, settings, registry_settings or RegistrySettings())
    try:
        await control.start_signer()
        if registry:
            await control.start_registry()
        yield control
    finally:
        await control.close()
