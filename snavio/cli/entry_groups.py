"""`snavio tenant`, `service`, `principal`, `target`, `route` and `quota`: what a tenant has, and what of it may go.

Never shows what is another tenant's: Registry decides, by the certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Command, Reason, Right, read_own
from snavio.cli.caller import Source as SourceName
from snavio.cli.caller import Target as TargetName
from snavio.cli.entry_access import MOST, DryRun, Limit, Tenant, ask, delete, gather, list_kind, page
from snavio.cli.group import CommandGroup
from snavio.cli.invite import invite
from snavio.cli.render import Kind, Table, TableColumn

if TYPE_CHECKING:
    from snavio.admin.entries import EntryClient, EntryDetails

tenant = CommandGroup(
    "Invite and see tenants, and all that belongs to one.",
    examples=(
        "snavio tenant ls",
        "snavio tenant show acme",
        "snavio tenant invite acme --contact ops@acme.example",
    ),
)
service = CommandGroup(
    "See and delete the services of a tenant.",
    examples=(
        "snavio service ls --tenant acme",
        "snavio service show acme/billing",
        "snavio service delete acme/billing --with-rights",
    ),
)
principal = CommandGroup(
    "See and delete the principals that act for a tenant.",
    examples=("snavio principal ls", "snavio principal show acme/ci", "snavio principal delete acme/ci"),
)
target = CommandGroup(
    "See and delete the targets that a tenant has claimed.",
    examples=(
        "snavio target ls",
        "snavio target show discord-bot",
        "snavio target delete discord-bot --with-routes",
    ),
)
route = CommandGroup(
    "See and delete routes, with their limits.",
    examples=(
        "snavio route ls --limited",
        "snavio route show discord-bot notify-user",
        "snavio route delete discord-bot notify-user",
    ),
)
quota = CommandGroup(
    "See the quotas of sources that are kept off the warm path.",
    examples=("snavio quota ls", "snavio quota ls --target discord-bot"),
)
OfTarget = Annotated[str, typer.Option("--target", help="Only of this target.")]
PrincipalName = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The principal, `<tenant>/<name>`.")]


def _limit_words(limit: Any) -> str:
    from snavio.cli.entry_views import limit_words

    return limit_words(limit) or ""


_LIMIT = TableColumn("limit", "limit", Kind(_limit_words))
_ROUTES = ("target", "command", "profile", "queue", _LIMIT)


tenant.command("invite")(invite)


@tenant.command("ls")
def list_tenants(*, limit: Limit = MOST, caller: Caller) -> None:
    """The tenants that you may see: your own, or all of them as an operator.

    \b
    Examples:
      snavio tenant ls
    """
    list_kind(caller, "tenant", ("tenant",), plural="tenants", none="No tenants yet.", most=limit)


@tenant.command("show")
def show_tenant(
    name: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")],
    *,
    caller: Caller,
) -> None:
    """One tenant: its services, principals and targets, and what it is kept from.

    \b
    Examples:
      snavio tenant show acme
      snavio tenant show acme --json | jq '.targets[].target'
    """
    parts = ("service", "principal", "target", "alert_channel", "suspension", "ban")

    async def question(client: EntryClient) -> tuple[EntryDetails, dict[str, list[dict[str, Any]]]]:
        details = await client.show("tenant", name)
        return details, {f"{kind}s": (await gather(client, kind, tenant=name))[0] for kind in parts}

    details, about = ask(caller, question)
    page(
        caller,
        details,
        "tenant",
        Table(("source", TableColumn("principals", "principals", Kind(", ".join))), about["services"]),
        Table(("principal",), about["principals"]),
        Table(("target",), about["targets"]),
        Table(("name", "kind", "address"), about["alert_channels"]),
        Table(("list", "source", "target", "command", "until", "reason"), about["bans"]),
        Table(("source", "until", "reason"), about["suspensions"], title="suspended"),
        about=about,
    )


@service.command("ls")
def list_services(*, tenant: Tenant = "", limit: Limit = MOST, caller: Caller) -> None:
    """The services of a tenant, with the principals that may act as each.

    \b
    Examples:
      snavio service ls
      snavio service ls --tenant acme --json | jq -r '.services[].source'
    """
    list_kind(
        caller,
        "service",
        ("source", TableColumn("principals", "principals", Kind(", ".join))),
        plural="services",
        none="No services: `snavio register` adds them.",
        tenant=tenant,
        most=limit,
    )


@service.command("show")
def show_service(source: SourceName, *, caller: Caller) -> None:
    """One service: who may act as it, what it may send, and what it is kept from.

    \b
    Examples:
      snavio service show acme/billing
    """
    source = read_own(caller, source)
    owner, _, name = source.partition("/")

    async def question(client: EntryClient) -> tuple[EntryDetails, dict[str, Any]]:
        details = await client.show("service", owner, name)
        rights = await client.rights(source)
        lists = {
            f"{kind}s": [
                row
                for row in (await gather(client, kind, tenant=owner))[0]
                if row["source"] in (source, f"{owner}/*")
            ]
            for kind in ("suspension", "ban")
        }
        may = [{"target": right.target, "command": right.name} for right in rights.acl]
        return details, {"rights": may, "more_rights": rights.more} | lists

    details, about = ask(caller, question)
    page(
        caller,
        details,
        "service",
        Table(("target", "command"), about["rights"], none="It may send nothing yet.", title="may send"),
        Table(("list", "target", "command", "until", "reason"), about["bans"]),
        Table(("source", "until", "reason"), about["suspensions"], title="suspended"),
        about=about,
    )


@service.command("delete")
def delete_service(
    source: SourceName,
    *,
    with_rights: Annotated[
        bool, typer.Option("--with-rights", help="Give its rights and requests back as well.")
    ] = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Delete a service: its certificates end at once, and nobody can act as it any more.

    Refused while it has rights, unless they go with it. Its bans, suspensions and quotas stay, and meet it again if it
    is registered again; its HMAC keys stay at Signer, of no use without a certificate.

    \b
    Examples:
      snavio service delete acme/billing --dry-run
      snavio service delete acme/billing --with-rights -r "replaced by ledger"
    """
    source = read_own(caller, source)
    owner, _, name = source.partition("/")
    delete(
        caller,
        "service",
        owner,
        name,
        whole=with_rights,
        flag="--with-rights",
        dry_run=dry_run,
        reason=reason,
    )


@principal.command("ls")
def list_principals(*, tenant: Tenant = "", limit: Limit = MOST, caller: Caller) -> None:
    """The principals that act for a tenant.

    \b
    Examples:
      snavio principal ls --tenant acme
    """
    list_kind(
        caller,
        "principal",
        ("tenant", "principal"),
        plural="principals",
        none="No principals are registered.",
        tenant=tenant,
        most=limit,
    )


@principal.command("show")
def show_principal(name: PrincipalName, *, caller: Caller) -> None:
    """One principal, and the services that it may act as.

    \b
    Examples:
      snavio principal show acme/ci
    """
    owner, _, own = read_own(caller, name, option="PRINCIPAL").partition("/")

    async def question(client: EntryClient) -> tuple[EntryDetails, list[dict[str, Any]]]:
        details = await client.show("principal", owner, own)
        services, _ = await gather(client, "service", tenant=owner)
        return details, [row for row in services if own in row["principals"]]

    details, services = ask(caller, question)
    table = Table(("source",), services, none="It may act as no service.", title="may act as")
    page(caller, details, "principal", table, about={"services": services})


@principal.command("delete")
def delete_principal(
    name: PrincipalName, *, dry_run: DryRun = False, reason: Reason = "", caller: Caller
) -> None:
    """Delete a principal: its certificates end, and those that it got for services.

    Services that name it do so no more. An operator lets the name in again with `snavio certs restore`.

    \b
    Examples:
      snavio principal delete acme/ci -r "left the team"
    """
    owner, _, own = read_own(caller, name, option="PRINCIPAL").partition("/")
    delete(caller, "principal", owner, own, whole=False, flag="", dry_run=dry_run, reason=reason)


@target.command("ls")
def list_targets(*, tenant: Tenant = "", limit: Limit = MOST, caller: Caller) -> None:
    """The targets of a tenant.

    \b
    Examples:
      snavio target ls
    """
    list_kind(
        caller,
        "target",
        ("target", "tenant"),
        plural="targets",
        none="No targets: `snavio register` claims them.",
        tenant=tenant,
        most=limit,
    )


@target.command("show")
def show_target(name: TargetName, *, caller: Caller) -> None:
    """One target: its owner, its routes, and who may send to it.

    \b
    Examples:
      snavio target show discord-bot
      snavio target show discord-bot --json | jq '.routes[].command'
    """

    async def question(client: EntryClient) -> tuple[EntryDetails, dict[str, Any]]:
        details = await client.show("target", name)
        kinds = {"routes": "route", "rights": "acl", "quotas": "source_quota"}
        found = {plural: (await gather(client, kind, target=name))[0] for plural, kind in kinds.items()}
        freezes, _ = await gather(client, "ban", tenant=details.value.tenant)
        frozen = [row for row in freezes if row["list"] == "frozen" and row["target"] == name]
        return details, {**found, "freezes": frozen}

    details, about = ask(caller, question)
    page(
        caller,
        details,
        "target",
        Table(_ROUTES, about["routes"], none="It has no routes: nothing can be sent to it."),
        Table(("source", "command"), about["rights"], none="No source may send to it.", title="may send"),
        Table(("source", "command", "max", "interval_seconds"), about["quotas"], title="quotas"),
        Table(("command", "until", "reason"), about["freezes"], title="frozen"),
        about=about,
    )


@target.command("delete")
def delete_target(
    name: TargetName,
    *,
    with_routes: Annotated[
        bool, typer.Option("--with-routes", help="Delete its routes, rights and quotas as well.")
    ] = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Give a target's name back: another tenant may claim it then.

    Refused while it has routes, rights or quotas, unless they go with it, and while it is frozen. What waits in its
    queue stays there and can be received; the next owner has another queue.

    \b
    Examples:
      snavio target delete discord-bot --dry-run
      snavio target delete discord-bot --with-routes -r "moved to slack-bot"
    """
    delete(
        caller,
        "target",
        name,
        whole=with_routes,
        flag="--with-routes",
        dry_run=dry_run,
        reason=reason,
    )


@route.command("ls")
def list_routes(
    *,
    target: OfTarget = "",
    limited: Annotated[bool, typer.Option("--limited", help="Only those with a limit.")] = False,
    tenant: Tenant = "",
    limit: Limit = MOST,
    caller: Caller,
) -> None:
    """The routes of a tenant's targets, with their limits.

    \b
    Examples:
      snavio route ls
      snavio route ls --target discord-bot --limited
      snavio route ls --json | jq '.routes[] | select(.dedupe_mode == "strict")'
    """
    list_kind(
        caller,
        "route",
        _ROUTES,
        plural="routes",
        none="No routes with a limit." if limited else "No routes: `snavio register` adds them.",
        tenant=tenant,
        target=target,
        most=limit,
        only=(lambda row: row["limit"] is not None) if limited else (lambda _row: True),
    )


@route.command("show")
def show_route(name: TargetName, command: Command, *, caller: Caller) -> None:
    """One route: its queue, profile, limit and fairness, and who may use it.

    \b
    Examples:
      snavio route show discord-bot notify-user
    """

    async def question(client: EntryClient) -> tuple[EntryDetails, dict[str, Any]]:
        details = await client.show("route", name, command)
        kinds = {"rights": "acl", "quotas": "source_quota"}
        found = {
            plural: [row for row in (await gather(client, kind, target=name))[0] if row["command"] == command]
            for plural, kind in kinds.items()
        }
        given = details.value.fairness
        fairness = {field.name: getattr(given, field.name) for field in given.DESCRIPTOR.fields}
        return details, {"fairness": fairness, **found}

    details, about = ask(caller, question)
    page(
        caller,
        details,
        "route",
        "fairness  " + ", ".join(f"{key} {value:g}" for key, value in about["fairness"].items()),
        Table(("source",), about["rights"], none="No source may use it.", title="may use it"),
        Table(("source", "max", "interval_seconds"), about["quotas"], title="quotas"),
        about=about,
    )


@route.command("delete")
def delete_route(
    name: TargetName,
    command: Command,
    *,
    with_rights: Annotated[
        bool, typer.Option("--with-rights", help="Delete the rights and quotas of this command as well.")
    ] = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Delete a route: its commands are refused with route-missing from then on.

    Rights stay, so that a route that comes back finds them again. What waits in the queue stays there and can be
    received.

    \b
    Examples:
      snavio route delete discord-bot notify-user --dry-run
      snavio route delete discord-bot notify-user -r "nobody sends it"
    """
    delete(
        caller,
        "route",
        name,
        command,
        whole=with_rights,
        flag="--with-rights",
        dry_run=dry_run,
        reason=reason,
    )


@quota.command("ls")
def list_quotas(
    *,
    target: OfTarget = "",
    tenant: Tenant = "",
    limit: Limit = MOST,
    caller: Caller,
) -> None:
    """The quotas that a tenant's targets set for single sources.

    \b
    Examples:
      snavio quota ls
      snavio quota ls --target discord-bot --json
    """
    list_kind(
        caller,
        "source_quota",
        ("source", "target", "command", "max", TableColumn("in seconds", "interval_seconds")),
        plural="quotas",
        none="No quotas.",
        tenant=tenant,
        target=target,
        most=limit,
    )


@quota.command("show")
def show_quota(right: Right, *, caller: Caller) -> None:
    """One quota, and when and by whom it was set.

    \b
    Examples:
      snavio quota show acme/billing discord-bot notify-user
    """
    details = ask(caller, lambda client: client.show("source_quota", *right.triple))
    page(caller, details, "source_quota", about={})
