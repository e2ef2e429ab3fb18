"""`snavio edge try|explain|recent|ls|orphans`: what an edge would do, did, and has left behind.

Never stores, sends or changes anything without being told to: a try takes every step but the last.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.options import Context as ContextOption
from snavio.cli.options import Json
from snavio.cli.output import count
from snavio.cli.render import NUMBER, Record, Table, TableColumn, show, time_text
from snavio.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from snavio.admin.queue import QueueClient, TopicStats
    from snavio.launch.edge_control import EdgeControl
    from snavio.launch.installation import Installation

MOST_BODY: Final = 8 << 20
Db = Annotated[
    Path | None,
    typer.Option(
        "--db",
        metavar="<folder>",
        help="The folder that `snavio edge run --db` was given.",
        show_default=False,
    ),
]


def attempt(
    path: Annotated[
        str, typer.Argument(help="Path of the request, with its query, such as /webhooks/github.")
    ],
    *,
    method: Annotated[str, typer.Option("-X", "--request", help="Its method.")] = "POST",
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", help="A header, `Name: value`; may be said several times."),
    ] = None,
    data: Annotated[
        str, typer.Option("-d", "--data", help="Its body; `@file` reads a file, `@-` standard input.")
    ] = "",
    remote: Annotated[str, typer.Option("--remote", help="The address that it comes from.")] = "127.0.0.1",
    db: Db = None,
    context: ContextOption = None,
    json: Json = False,
) -> None:
    """Show what the running edge would answer to a request; nothing is stored.

    Every step is shown, and no rate is used up. Exit code 0 when it would be let in, 1 when it would be refused.

    \b
    Examples:
      snavio edge try /webhooks/github -H 'X-GitHub-Event: push' -d @body.json
      snavio edge try '/webhooks/github?x=1' -X PUT --remote 203.0.113.7
    """
    headers = []
    for each in header or []:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise BadRequest("--header: must be `Name: value`.", reason="bad-header")
        headers.append([name.strip(), value.strip()])
    where, _, query = path.partition("?")
    found = _control(db, context).attempt(
        {
            "method": method,
            "path": where,
            "query": query,
            "headers": headers,
            "body": base64.b64encode(_body(data)).decode(),
            "remote": remote,
        }
    )
    _show_request(found, json=json, would=True)
    if found["status"] != 202:
        raise typer.Exit(ExitCode.REFUSED)


def explain(
    name: Annotated[
        str, typer.Argument(help="Id of a request (the answer's X-Request-ID), of an event or of a command.")
    ],
    db: Db = None,
    context: ContextOption = None,
    json: Json = False,
) -> None:
    """Show what became of a request, step by step, also of one that was refused.

    The edge remembers the newest requests that it accepted, and the newest that it refused. It never remembers headers
    or bodies.

    \b
    Examples:
      snavio edge explain req_pn4x7ocadgkqskqd
      snavio edge explain evt_5tc6olkeaaaaaaahlpgrk --json
    """
    _show_request(_control(db, context).explain(name), json=json, would=False)


def recent(
    *,
    refused: Annotated[bool, typer.Option("--refused", help="Only those that were refused.")] = False,
    route: Annotated[str, typer.Option("--route", help="Only those that this route took.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Most of them.")] = 20,
    db: Db = None,
    context: ContextOption = None,
    json: Json = False,
) -> None:
    """Show the newest requests; `snavio edge explain` tells more of one.

    \b
    Examples:
      snavio edge recent --refused
      snavio edge recent --route /webhooks/github -n 5 --json
    """
    found = _control(db, context).recent(most=limit, refused=refused, route=route)
    columns = [
        TableColumn("received", lambda each: time_text(each["received_unix_ns"], milliseconds=True)),
        TableColumn("request", lambda each: f"{each['method']} {each['path']}"),
        TableColumn("status"),
        TableColumn("reason"),
        TableColumn("from", "remote"),
        TableColumn("id", "request_id"),
    ]
    show({"requests": found}, Table(columns, found, none="No request yet."), json=json)


def ls(db: Db = None, context: ContextOption = None, json: Json = False) -> None:
    """List the routes of the running edge with what waits in each.

    \b
    Examples:
      snavio edge ls
      snavio edge ls --json | jq '.routes[].ready'
    """
    installation = _installation(db, context)
    health = _control(db, context).health()
    stats = {each.topic: each for each in _stats(installation, health["tenant"])}
    routes = []
    for route in health["routes"]:
        for topic, target in zip(
            route["topics"] or [""], route["targets"] or [route["command"]], strict=True
        ):
            now = stats.get(topic)
            numbers = {name: getattr(now, name, 0) for name in ("ready", "inflight", "dead")}
            one = {name: route[name] for name in ("path", "channel", "mode", "command")}
            routes.append({**one, "topic": topic, "target": target, **numbers})
    columns = [
        TableColumn("route", "path"),
        TableColumn("mode"),
        TableColumn("target"),
        TableColumn("ready", kind=NUMBER),
        TableColumn("leased", "inflight", NUMBER),
        TableColumn("dead", kind=NUMBER),
        TableColumn("topic"),
    ]
    config = health["config"]
    about = Record(
        (
            ("tenant", health["tenant"]),
            ("configuration", f"generation {config['generation']}, {config['fingerprint'][:19]}…"),
            (
                "listeners",
                ", ".join(f"{name} {each['address']}" for name, each in health["listeners"].items()),
            ),
        )
    )
    notes = [*health["not_running"]]
    if config["last_reload_failed"]:
        notes.append(f"The last reload changed nothing: {config['last_reload_failed']}")
    show(
        {"routes": routes, "config": config, "notes": notes}, about, Table(columns, routes), *notes, json=json
    )


def orphans(
    topic: Annotated[str, typer.Argument(help="One of them, to cancel what waits in it.")] = "",
    *,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel what waits in it; `snavio queue` can resume or purge it.")
    ] = False,
    db: Db = None,
    context: ContextOption = None,
    json: Json = False,
) -> None:
    """List topics that the file has no more, with what nobody fetches.

    A route, or a target of one, that vanishes from the file leaves its topic behind.

    \b
    Examples:
      snavio edge orphans
      snavio edge orphans acme/own/edge.webhooks-old.5tc6olke --cancel
    """
    installation = _installation(db, context)
    health = _control(db, context).health()
    mine = {each for route in health["routes"] for each in route["topics"]}
    found = [
        each
        for each in _stats(installation, health["tenant"])
        if each.topic.startswith(f"{health['tenant']}/own/edge.") and each.topic not in mine
    ]
    if topic:
        if topic not in {each.topic for each in found}:
            raise NotFound(f"{topic} is no orphan of this edge.", reason="not-an-orphan")
        found = [each for each in found if each.topic == topic]
    if cancel:
        if not topic:
            raise BadRequest("--cancel: name the topic; `snavio edge orphans` lists them.", reason="no-topic")
        changed = asyncio.run(_cancel(installation, topic))
        show({"topic": topic, "canceled": changed}, f"{count(changed)} canceled in {topic}.", json=json)
        return
    names = ("topic", "ready", "inflight", "dead", "canceled")
    documents = [{name: getattr(each, name) for name in names} for each in found]
    columns = [TableColumn("topic"), *(TableColumn(name, kind=NUMBER) for name in names[1:])]
    show({"orphans": documents}, Table(columns, documents, none="There are none."), json=json)


def _show_request(found: dict[str, Any], *, json: bool, would: bool) -> None:
    about = [
        ("answer", f"{found['status']} {found['reason']}"),
        ("request", f"{found['method']} {found['path']}"),
        ("route", found["route"] or "none"),
        ("from", found["remote"]),
    ]
    if found["caller"]:
        about.append(("as", found["caller"]))
    if not would:
        about.append(("received", time_text(found["received_unix_ns"], milliseconds=True) or ""))
    if found["event_ids"]:
        about.append(("stored as", ", ".join(found["event_ids"])))
    steps = Table([TableColumn("step"), TableColumn("state"), TableColumn("why", "detail")], found["steps"])
    show(found, Record(tuple(about)), steps, json=json)


def _body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        if data == "@-":
            found = sys.stdin.buffer.read(MOST_BODY + 1)
        else:
            with Path(data[1:]).open("rb") as file:
                found = file.read(MOST_BODY + 1)
    except OSError as error:
        raise BadRequest(
            f"--data: {data[1:]} cannot be read: {error.strerror}.", reason="file-unreadable"
        ) from None
    if len(found) > MOST_BODY:
        raise BadRequest(f"--data: at most {MOST_BODY:,} bytes.", reason="oversized")
    return found


def _installation(db: Path | None, context: str | None) -> Installation:
    from snavio.cli.edge_run import installation_of
    from snavio.launch.installation import Installation

    found = installation_of(db, context)
    run = found.state.running() if found.context is None else None
    return found if run is None else Installation(run.reaches(found.mesh), found.config)


def _control(db: Path | None, context: str | None) -> EdgeControl:
    from snavio.launch.edge_control import EdgeControl

    return EdgeControl(_installation(db, context).mesh.state_dir / "edge")


def _stats(installation: Installation, tenant: str) -> list[TopicStats]:
    async def ask() -> list[TopicStats]:
        async with _queue(installation, tenant, "stats") as queue:
            return await queue.stats()

    return asyncio.run(ask())


async def _cancel(installation: Installation, topic: str) -> int:
    from snavio.domain.message import MessageState

    async with _queue(installation, topic.partition("/")[0], "stats", "list", "manage") as queue:
        preview = await queue.preview_cancel(topic, MessageState.READY, reason="snavio edge orphans --cancel")
        return await preview.apply() if preview.matched else 0


def _queue(installation: Installation, tenant: str, *operations: str) -> QueueClient:
    from snavio.admin.queue import QueueClient

    mesh = installation.mesh
    realm = "*" if installation.context is None else f"{tenant}/*"
    return QueueClient(
        mesh.mailbox,
        certificates=installation.identity,
        realm=realm,
        operations=operations,
        signer=mesh.signer,
        trust_domain=mesh.trust_domain,
    )
