"""Reaches Registry for a command, under the operator's certificate or under one that `--as` names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from snavio.cli.options import Config, StateDir

if TYPE_CHECKING:
    from snavio.config import MeshSettings
    from snavio.launch.installation import Installation
    from snavio.sdk.directory import DirectoryDesk
    from snavio.v1.registry_pb2 import WriteResponse

T = TypeVar("T")

By = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Act under this certificate: a folder, or its name in the state folder. Default: the operator.",
        show_default=False,
    ),
]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; kept in the log of changes.")]
Source = Annotated[str, typer.Argument(help="Who sends, `<tenant>/<service>`.", show_default=False)]
Target = Annotated[str, typer.Argument(help="Who shall act, such as discord-bot.", show_default=False)]
Command = Annotated[str, typer.Argument(help="What it shall do, such as notify-user.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks which mesh."""

    by: By = None
    state_dir: StateDir = None
    config: Config = None

    def ask(self, question: Callable[[DirectoryDesk], Awaitable[T]]) -> T:
        """The answer of the running mesh's Registry."""
        return ask(question, by=self.by, state_dir=self.state_dir, config=self.config)


def ask(
    question: Callable[[DirectoryDesk], Awaitable[T]],
    *,
    by: str | None,
    state_dir: Path | None,
    config: Path | None,
) -> T:
    """The answer of the running mesh's Registry."""
    from snavio.launch.installation import attach
    from snavio.sdk.directory import DirectoryDesk

    installation = attach(state_dir=state_dir, config=config)
    folder = certificates_of(by, installation)

    async def answer() -> T:
        if by is not None:
            await _renew_if_due(folder, installation.mesh)
        async with DirectoryDesk(
            installation.mesh.registry, certificates=folder, trust_domain=installation.mesh.trust_domain
        ) as desk:
            return await question(desk)

    return asyncio.run(answer())


async def _renew_if_due(folder: Path, mesh: MeshSettings) -> None:
    """A principal that is used now and then renews itself in passing; what fails here is tried the next time."""
    from contextlib import suppress

    from snavio.cli.actor import read_actor
    from snavio.clock import SystemClock
    from snavio.domain.identity import Kind
    from snavio.errors import SnavioError
    from snavio.sdk.principal import principal_renewal

    with suppress(SnavioError):
        if read_actor(folder, trust_domain=mesh.trust_domain).identity.kind is Kind.PRINCIPAL:
            await principal_renewal(
                folder, signer=mesh.signer, clock=SystemClock(), trust_domain=mesh.trust_domain
            ).renew_if_due()


def wrote(sentence: str, done: WriteResponse, *, json: bool) -> None:
    """What became of a write, in words or as a document."""
    from snavio.cli.output import line, print_json

    if json:
        print_json({"version": done.version, "changed": done.changed})
    else:
        line(sentence)


def certificates_of(by: str | None, installation: Installation) -> Path:
    """The folder that `--as` means."""
    from snavio.errors import BadRequest

    if by is None:
        return installation.operator_certificates
    for folder in (installation.mesh.certificates(by.replace("/", "-")), Path(by)):
        if (folder / "cert.pem").is_file():
            return folder
    raise BadRequest(
        f"No certificate folder {by!r}, neither here nor in {installation.mesh.certificates('x').parent}.",
        reason="no-certificate",
    )
