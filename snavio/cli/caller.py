"""Reaches a service of the running mesh for a command, under the operator's certificate or one that `--as` names.

Never acts under another certificate than the one that was named, and never leaves a client open behind an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from snavio.cli.exits import ASKED_AS
from snavio.cli.installation import MeshOptions

if TYPE_CHECKING:
    from snavio.admin.directory import DirectoryClient
    from snavio.config import MeshSettings
    from snavio.launch.installation import Installation
    from snavio.v1.registry_pb2 import WriteResponse

D = TypeVar("D")
T = TypeVar("T")

By = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Act under this certificate: a name, such as acme-ci or demo/billing, or a folder. Default: the "
        "context's, or the operator's.",
    ),
]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; kept in the log of changes.")]
Source = Annotated[str, typer.Argument(help="Who sends, `<tenant>/<service>`.")]
Target = Annotated[str, typer.Argument(help="Who shall act, such as discord-bot.")]
Command = Annotated[str, typer.Argument(help="What it shall do, such as notify-user.")]


@dataclass(frozen=True, slots=True)
class Right:
    """That a source may send a command to a target."""

    source: Source
    target: Target
    command: Command

    @property
    def triple(self) -> tuple[str, str, str]:
        """As the SDK takes it."""
        return read_source(self.source), self.target, self.command


def read_source(words: str, *, option: str = "SOURCE") -> str:
    """A source as the mesh names it; a sentence when the tenant was left out, or a letter is wrong."""
    from snavio.domain.directory.rules import split_source

    split_source(words, option)
    return words


def read_own(caller: Caller, words: str, *, option: str = "SOURCE") -> str:
    """A source or principal as the mesh names it. A tenant's principal may leave its own tenant out."""
    from snavio.cli.actor import read_actor

    if words and "/" not in words:
        mesh, certificates = caller.attached()
        if tenant := read_actor(certificates, trust_domain=mesh.trust_domain).identity.tenant:
            words = f"{tenant}/{words}"
    return read_source(words, option=option)


@dataclass(frozen=True, slots=True)
class OperatorCaller(MeshOptions):
    """A caller of a running mesh under the operator's certificate only: there is no `--as`."""

    def attached(self) -> tuple[MeshSettings, Path]:
        """The running mesh, and the certificate folder to act under."""
        installation = self.attach()
        return installation.mesh, installation.identity

    async def prepare(self, mesh: MeshSettings, certificates: Path) -> None:
        """Steps before the first call: none, an operator's certificate is renewed when its mesh starts."""

    def answer(self, question: Callable[[MeshSettings, Path], Awaitable[T]]) -> T:
        """The answer of the running mesh; `question` gets what `attached` finds."""
        from snavio.cli.actor import read_actor
        from snavio.clock import SystemClock
        from snavio.errors import NotAllowed, Unauthenticated

        mesh, certificates = self.attached()
        who = read_actor(certificates, trust_domain=mesh.trust_domain)
        who.require_living(SystemClock().unix_ns())

        async def prepared() -> T:
            await self.prepare(mesh, certificates)
            return await question(mesh, certificates)

        try:
            return asyncio.run(prepared())
        except Unauthenticated as error:
            raise who.refused(error) from None
        except NotAllowed as error:
            error.add_note(f"{ASKED_AS}{who.label}")
            raise

    def ask_client(
        self,
        client: Callable[[MeshSettings, Path], AbstractAsyncContextManager[D]],
        question: Callable[[D], Awaitable[T]],
    ) -> T:
        """The answer at a client, which is open for this one question."""

        async def with_client(mesh: MeshSettings, certificates: Path) -> T:
            async with client(mesh, certificates) as opened:
                return await question(opened)

        return self.answer(with_client)


@dataclass(frozen=True, slots=True)
class Caller(OperatorCaller):
    """A caller under the operator's certificate, or one that `--as` names."""

    by: By = None

    def attached(self) -> tuple[MeshSettings, Path]:
        """See `OperatorCaller`."""
        installation = self.attach()
        return installation.mesh, certificates_of(self.by, installation)

    async def prepare(self, mesh: MeshSettings, certificates: Path) -> None:
        """Renew a principal's certificate, if it is due."""
        await _renew_if_due(certificates, mesh)

    def ask(self, question: Callable[[DirectoryClient], Awaitable[T]]) -> T:
        """The answer of the running mesh's Registry about its directory."""
        return self.ask_client(directory_client, question)

    def wrote(self, sentence: str, done: WriteResponse) -> None:
        """Show the outcome of a write to the directory."""
        self.show({"version": done.version, "changed": done.changed}, sentence)


def directory_client(mesh: MeshSettings, certificates: Path) -> DirectoryClient:
    """Where an operator or a principal asks about the directory."""
    from snavio.admin.directory import DirectoryClient

    return DirectoryClient(mesh.registry, certificates=certificates, trust_domain=mesh.trust_domain)


async def _renew_if_due(folder: Path, mesh: MeshSettings) -> None:
    """A principal that is used now and then renews itself in passing; what fails here is tried the next time."""
    from contextlib import suppress

    from snavio.cli.actor import read_actor
    from snavio.clock import SystemClock
    from snavio.domain.identity import IdentityKind
    from snavio.errors import SnavioError
    from snavio.sdk.principal import principal_renewal

    with suppress(SnavioError):
        if read_actor(folder, trust_domain=mesh.trust_domain).identity.kind is IdentityKind.PRINCIPAL:
            await principal_renewal(
                folder, signer=mesh.signer, clock=SystemClock(), trust_domain=mesh.trust_domain
            ).renew_if_due()


def certificates_of(by: str | None, installation: Installation) -> Path:
    """The folder that `--as` means."""
    from snavio.cli.actor import find_folder, no_certificate

    if by is None:
        return installation.identity
    tenant = installation.context.tenant if installation.context is not None else ""
    if (found := find_folder(by, installation.mesh, tenant=tenant)) is not None:
        return found
    raise no_certificate(by, installation.mesh)
