"""`snavio keys`: the HMAC keys of sources, and whether an old one can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import Caller, OperatorCaller, read_source
from snavio.cli.group import CommandGroup
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from snavio.admin.keys import KeyClient
    from snavio.config import MeshSettings
    from snavio.v1.signer_pb2 import KeysetStatus

keys = CommandGroup(
    "See, rotate and retire the HMAC keys that sources sign with.",
    examples=(
        "snavio keys ls",
        "snavio keys status acme/billing",
        "snavio keys rotate acme/billing",
    ),
)
Source = Annotated[str, typer.Argument(help="The source, `<tenant>/<service>`.")]
Version = Annotated[str, typer.Argument(help="The key version, such as hmac-v1.")]


@keys.command("ls")
def list_keys(*, caller: Caller) -> None:
    """Every source with its key versions, last poll and next rotation; a tenant's principal sees its own.

    \b
    Examples:
      snavio keys ls
      snavio keys ls --as acme-ci
      snavio keys ls --json | jq '.keysets[] | {source, last_poll}'
    """
    from snavio.cli.key_views import document, listed

    async def ask(client: KeyClient) -> list[KeysetStatus]:
        return [status async for status in client.all()]

    found = caller.ask_client(_client, ask)
    caller.show({"keysets": [document(status) for status in found]}, listed(found))


@keys.command()
def status(source: Source, *, caller: Caller) -> None:
    """One source's versions, their share of traffic, the last poll, and which of them can be retired.

    \b
    Examples:
      snavio keys status acme/billing
      snavio keys status acme/billing --as acme-ci
      snavio keys status acme/billing --json | jq '.versions[].safe_to_retire'
    """
    _show(caller, lambda client: client.status(read_source(source)))


@keys.command()
def rotate(
    source: Source,
    newest: Annotated[
        str, typer.Option(help="Refuse if there is a newer version than this one already.")
    ] = "",
    *,
    caller: OperatorCaller,
) -> None:
    """Add a key version, let it spread, then sign with it; the one before stays good for the overlap.

    Exit code 1 when a rotation is under way.

    \b
    Examples:
      snavio keys rotate acme/billing
      snavio keys rotate acme/billing --newest hmac-v1
    """
    _show(caller, lambda client: client.rotate(read_source(source), expected_newest=newest))


@keys.command()
def revoke(source: Source, version: Version, *, caller: OperatorCaller) -> None:
    """End a key version at once; Shield refuses it within seconds, whatever the signed time.

    \b
    Examples:
      snavio keys revoke acme/billing hmac-v1
    """
    _show(caller, lambda client: client.revoke(read_source(source), version))


@keys.command()
def minimum(source: Source, version: Version, *, caller: OperatorCaller) -> None:
    """Retire every version below this one at once, and for good.

    \b
    Examples:
      snavio keys minimum acme/billing hmac-v2
    """
    _show(caller, lambda client: client.set_minimum(read_source(source), version))


@keys.command()
def rehearse(
    source: Source,
    version: Annotated[str, typer.Argument(help="Versions below this one would be retired.")] = "",
    *,
    off: Annotated[bool, typer.Option("--off", help="End the rehearsal.")] = False,
    caller: OperatorCaller,
) -> None:
    """Rehearse `keys minimum`: everything is accepted, and what would be refused is counted and shown.

    Runs until a minimum is set or `--off`, also over a restart of Signer. `keys status` shows the count.

    \b
    Examples:
      snavio keys rehearse acme/billing hmac-v2
      snavio keys status acme/billing --json | jq .rehearsal
      snavio keys rehearse acme/billing --off
    """
    if bool(version) == off:
        raise BadRequest("Name the version that would be the lowest, or say --off.", reason="bad-field")
    _show(caller, lambda client: client.rehearse(read_source(source), version))


def _client(mesh: MeshSettings, certificates: Path) -> KeyClient:
    from snavio.admin.keys import KeyClient

    return KeyClient(mesh.signer, certificates=certificates, trust_domain=mesh.trust_domain)


def _show(caller: OperatorCaller, change: Callable[[KeyClient], Awaitable[KeysetStatus]]) -> None:
    from snavio.cli.key_views import document, status_blocks

    found = caller.ask_client(_client, change)
    caller.show(document(found), *status_blocks(found))
