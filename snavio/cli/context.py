"""`snavio context`: which meshes this user knows, as whom, and which of them commands talk to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.group import CommandGroup
from snavio.cli.options import Json
from snavio.cli.render import Record, Table, TableColumn, show

if TYPE_CHECKING:
    from snavio.sdk.context import Context, ContextFile

contexts = CommandGroup(
    "See, add and choose the meshes that commands talk to.",
    examples=(
        "snavio context ls",
        "snavio context use acme-ci",
        "snavio context add ops --identity ~/ops --address shield=mesh.example:7401",
        "SNAVIO_CONTEXT=acme-ci snavio whoami",
    ),
)
Name = Annotated[str, typer.Argument(help="Name of the context.", show_default=False)]


@contexts.command("ls")
def list_contexts(json: Json = False) -> None:
    """Every context of this user; the one in use is marked.

    \b
    Examples:
      snavio context ls
      snavio context ls --json | jq -r .current
    """
    known = _file().read()
    rows = [_document(context, current=known.current) for context in known.by_name.values()]
    columns = (
        TableColumn("", lambda row: "*" if row["current"] else " "),
        TableColumn("context", "name"),
        TableColumn("tenant", lambda row: row["tenant"] or "-"),
        TableColumn("shield", lambda row: row["addresses"].get("shield", "-")),
        "identity",
    )
    none = "No context yet: `snavio join` makes one of an invitation."
    show({"current": known.current or None, "contexts": rows}, Table(columns, rows, none=none), json=json)


@contexts.command("show")
def show_context(
    name: Annotated[str, typer.Argument(help="Default: the one in force.", show_default=False)] = "",
    *,
    json: Json = False,
) -> None:
    """One context: addresses, identity folder, CA.

    \b
    Examples:
      snavio context show
      snavio context show acme-ci --json | jq .addresses
    """
    from snavio.errors import BadRequest
    from snavio.sdk.context import chosen

    found = chosen(name or None)
    if found is None:
        raise BadRequest("No context is in use: `snavio context use` chooses one.", reason="no-context")
    told = _document(found, current=_file().read().current)
    pairs = [(key, value) for key, value in told.items() if key not in ("addresses", "current")]
    show(told, Record((*pairs, *told["addresses"].items())), json=json)


@contexts.command()
def use(name: Name, *, json: Json = False) -> None:
    """Make a context the one that commands talk to from now on.

    \b
    Examples:
      snavio context use acme-ci
    """
    found = _file().use(name)
    show({"current": found.name}, f"Commands talk to {found.name} from now on.", json=json)


@contexts.command()
def add(
    name: Name,
    *,
    identity: Annotated[
        Path, typer.Option(help="Folder with cert.pem, key.pem and ca.pem.", show_default=False)
    ],
    address: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=HOST:PORT",
            help="Where a service is called; may be given again. Default: the context's own before, or 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Take the addresses of a snavio.toml.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Add a context for an identity that is there already, or replace one of that name.

    \b
    Examples:
      snavio context add ops --identity .snavio/certs/operator-admin -c snavio.toml
      snavio context add ops --identity ~/ops --address shield=mesh.example:7401
    """
    from snavio.cli.actor import read_actor
    from snavio.launch.installation import of_context
    from snavio.sdk.context import Context

    file = _file()
    before = file.read().by_name.get(name)
    addresses = {**(before.addresses if before is not None else {}), **_addresses(config), **_given(address)}
    folder = identity.expanduser().absolute()
    fingerprint, trust_domain = _ca(folder)
    who = read_actor(folder, trust_domain=trust_domain).identity
    context = Context(name, folder, who.tenant, fingerprint, trust_domain, addresses)
    of_context(context)
    file.put(context, use=False)
    current = file.read().current
    said = f"Added {name}" + ("." if current != name else ", and commands talk to it from now on.")
    show(_document(context, current=current), said, json=json)


@contexts.command()
def rm(name: Name, *, json: Json = False) -> None:
    """Forget a context; the folder of its identity stays.

    \b
    Examples:
      snavio context rm acme-ci
    """
    found = _file().remove(name)
    show(
        {"removed": found.name}, f"Forgot {found.name}; its identity is still in {found.identity}.", json=json
    )


def _file() -> ContextFile:
    from snavio.sdk.context import ContextFile, config_folder

    return ContextFile(config_folder())


def _document(context: Context, *, current: str) -> dict[str, Any]:
    return {
        "name": context.name,
        "current": context.name == current,
        "tenant": context.tenant or None,
        "identity": str(context.identity),
        "trust_domain": context.trust_domain,
        "ca_sha256": context.ca_sha256 or None,
        "addresses": dict(context.addresses),
    }


def _addresses(config: Path | None) -> dict[str, str]:
    if config is None:
        return {}
    from snavio.cli.invite import reachable
    from snavio.launch.installation import find

    return reachable(find(state_dir=None, config=config))


def _given(address: list[str] | None) -> dict[str, str]:
    from snavio.errors import BadRequest

    given = {}
    for words in address or ():
        service, equals, where = words.partition("=")
        if not equals:
            raise BadRequest(
                f"--address: {words[:80]!r} is not like shield=mesh.example:7401.", reason="bad-address"
            )
        given[service] = where
    return given


def _ca(folder: Path) -> tuple[str, str]:
    """Fingerprint and trust domain of the CA in a folder."""
    from cryptography import x509

    from snavio.errors import StateError
    from snavio.pki import CA_FILE, fingerprint_of
    from snavio.sdk.enrolment import trust_domain_of

    try:
        ca = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
    except (OSError, ValueError):
        raise StateError(
            f"{folder / CA_FILE} is no certificate that can be read.", reason="bad-certificate"
        ) from None
    return fingerprint_of(ca).hex(), trust_domain_of(ca)
