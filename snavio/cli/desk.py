"""Reaches Registry for a command, under the operator's certificate or under one that `--as` names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from snavio.launch.installation import Installation
    from snavio.sdk.directory import DirectoryDesk

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
    folder = _certificates(by, installation)

    async def answer() -> T:
        async with DirectoryDesk(
            installation.mesh.registry, certificates=folder, trust_domain=installation.mesh.trust_domain
        ) as desk:
            return await question(desk)

    return asyncio.run(answer())


def _certificates(by: str | None, installation: Installation) -> Path:
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
