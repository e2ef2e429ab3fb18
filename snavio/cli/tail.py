"""`snavio tail`: a tenant's signed events as they come, verified here, one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from snavio.cli.caller import By
from snavio.cli.installation import MeshOptions
from snavio.cli.output import line
from snavio.cli.render import one_line
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from snavio.launch.installation import Installation
    from snavio.sdk import EventStream, ReceivedEvents, StreamReset

DEMO: Final = "demo"
WIDTH: Final = 80
_PREFIX: Final = "snavio."


def tail(
    tenant: Annotated[
        str | None,
        typer.Argument(
            help="Whose events; of the certificate's tenant, or of the demo tenant, if not given."
        ),
    ] = None,
    *,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Only of this source, `<tenant>/<service>`; repeatable."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", help="Only events with this in their name, such as failed; repeatable."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="<duration>", help="Begin with what is kept of so long ago.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many events.")] = None,
    actor: By = None,
    here: MeshOptions,
) -> None:
    """Follow a tenant's events until Ctrl-C.

    Every envelope is verified on this machine: the tenant's signature, and that none is missing between two.

    \b
    Examples:
      snavio tail                               the demo tenant's events
      snavio tail acme --event failed           what failed
      snavio tail --as acme-ci --since 1h       of the last hour, then what comes
      snavio tail --json | jq .event
    """
    installation = here.attach()
    span_s = None if since is None else read_span(since, option="--since", least_s=1)
    stream, whose = _stream(installation, actor, tenant, source or [])
    asyncio.run(_follow(here, stream, whose, events=event or [], span_s=span_s, most=most or 0))


async def _follow(
    here: MeshOptions,
    stream: EventStream,
    whose: str,
    *,
    events: list[str],
    span_s: float | None,
    most: int,
) -> None:
    from snavio.clock import SystemClock
    from snavio.native import format_timestamp
    from snavio.sdk import StreamReset

    begin = "" if span_s is None else format_timestamp(SystemClock().unix_ns() - round(span_s * 1e9))
    shown = 0
    async with stream:
        if begin:
            await stream.rewind()
        if not here.json:
            line(f"Following the events of {whose}; Ctrl-C ends it.")
        async for item in stream:
            if isinstance(item, StreamReset):
                _missed(here, item)
                continue
            for found in _wanted(item, events, begin):
                here.show({"seq": item.seq, **found}, sentence(found))
                shown += 1
                if shown == most:
                    return


def _stream(
    installation: Installation, actor: str | None, tenant: str | None, sources: list[str]
) -> tuple[EventStream, str]:
    from snavio.cli.actor import find_folder, no_certificate, read_actor
    from snavio.sdk import EventStream

    mesh = installation.mesh
    folder = installation.identity if actor is None else find_folder(actor, mesh)
    if folder is None:
        assert actor is not None
        raise no_certificate(actor, mesh)
    identity = read_actor(folder, trust_domain=mesh.trust_domain).identity
    whose = tenant or identity.tenant or DEMO
    stream = EventStream(
        gateway=mesh.https,
        signer=mesh.signer,
        tenant=whose,
        certificates=folder,
        sources=sources,
        trust_domain=mesh.trust_domain,
    )
    return stream, whose


def _wanted(item: ReceivedEvents, events: list[str], begin: str) -> list[Mapping[str, Any]]:
    return [
        found
        for found in item.events
        if (not events or any(each in str(found["event"]) for each in events)) and str(found["at"]) >= begin
    ]


def _missed(here: MeshOptions, reset: StreamReset) -> None:
    position = reset.state.position
    here.show(
        {"event": "reset", "position": dict(reset.state.document["position"])},
        f"Events before number {position.low} are no longer kept; going on after {position.high}.",
    )


def sentence(event: Mapping[str, Any]) -> str:
    """One event in one line of a terminal."""
    name = str(event["event"]).removeprefix(_PREFIX).removeprefix("command.")
    target, command = event.get("target"), event.get("command.name")
    way = " → ".join(str(each) for each in (event.get("source"), target) if each)
    rest = [way, str(command or ""), str(event.get("reason") or "")]
    count = event.get("count")
    if isinstance(count, int) and count > 1:
        rest.append(f"x{count}")
    latency = event.get("dispatch_latency_ms")
    if isinstance(latency, float):
        rest.append(f"{latency:.1f} ms")
    told = "  ".join(filter(None, rest))
    return one_line(f"{str(event['at'])[11:23]}  {name:<10}  {told}", most=0)
