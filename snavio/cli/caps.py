"""`snavio caps`: capabilities for the mailbox, had from Signer, narrowed here, looked at, and ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import Caller
from snavio.cli.group import CommandGroup
from snavio.cli.options import Json
from snavio.cli.output import ago, aside
from snavio.cli.render import show, time_text
from snavio.cli.words import one_of_each

if TYPE_CHECKING:
    from snavio.admin.capabilities import CapabilityClient
    from snavio.config import MeshSettings
    from snavio.domain.capability import Capability
    from snavio.domain.caveat import Quota
    from snavio.v1.signer_pb2 import CapabilityRecord

CONSUMER = ("recv", "ack", "nack", "extend", "stats")

caps = CommandGroup(
    "Issue, narrow and revoke capabilities for the mailbox.",
    examples=(
        "snavio caps issue acme/discord-bot --op recv --op ack --as acme-ci > w.cap",
        "snavio caps attenuate @w.cap --for 10m --quota 1000/60s",
        "snavio caps ls",
    ),
)
Realm = Annotated[str, typer.Argument(help="A topic, `<tenant>/<target>`; or `<tenant>/*`; or `*`.")]
Text = Annotated[str, typer.Argument(help="The capability, `@FILE` that holds it, or `-` for stdin.")]
Operations = Annotated[
    list[str] | None, typer.Option("--op", help="What it allows; may be said several times.")
]
Ttl = Annotated[str, typer.Option("--for", "--ttl", metavar="<duration>", help="Its life.")]
QuotaOption = Annotated[str, typer.Option(help="At most so many messages in so long, such as 1000/60s.")]
Holder = Annotated[str, typer.Option(help="Who may use it: spiffe://… or tenant:NAME. Default: who asks.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")]


@caps.command()
def issue(
    realm: Realm,
    *,
    op: Operations = None,
    holder: Holder = "",
    ttl: Ttl = "",
    quota: QuotaOption = "",
    caller: Caller,
) -> None:
    """Have a capability made. Without --op it allows what a consumer needs: recv, ack, nack, extend, stats.

    Prints the capability alone, so that it can go into a file. It is a secret, though only its holder can use it.

    \b
    Examples:
      snavio caps issue acme/discord-bot --as acme-bot > bot.cap
      snavio caps issue 'acme/*' --holder tenant:acme --for 1h --as acme-ci
      snavio caps issue '*' --op peek --op manage --json
    """
    from snavio.cli.capability_views import document
    from snavio.cli.times import read_span
    from snavio.domain.capability import read_text

    wanted = _operations(op) or list(CONSUMER)
    limits = _quota(quota)
    ttl_s = round(read_span(ttl, option="--for")) if ttl else 0
    made = caller.ask_client(
        _client, lambda client: client.issue(realm, wanted, holder=holder, ttl_s=ttl_s, quota=limits)
    )
    caller.show({"capability": made.capability, **document(read_text(made.capability))}, made.capability)
    if made.ttl_seconds < ttl_s:
        # Not on stdout, which goes into a file.
        aside(f"It lives for {ago(made.ttl_seconds)} and not {ttl}: Signer makes none for longer.")


@caps.command()
def attenuate(
    capability: Text,
    *,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only these topics; a `*` at the end stands for any rest.")
    ] = None,
    op: Operations = None,
    holder: Holder = "",
    ttl: Ttl = "",
    quota: QuotaOption = "",
    json: Json = False,
) -> None:
    """Narrow a capability, here and without asking anybody; nothing can widen it again.

    \b
    Examples:
      snavio caps attenuate @bot.cap --op recv --op ack
      snavio caps attenuate @bot.cap --for 10m --quota 1000/60s > small.cap
    """
    from snavio.cli.capability_views import document
    from snavio.cli.times import read_span
    from snavio.clock import SystemClock
    from snavio.domain.caveat import Caveat, Operation
    from snavio.errors import BadRequest

    held = _read(capability)
    caveats = []
    if topic:
        caveats.append(Caveat(topics=tuple(topic)))
    if op:
        caveats.append(Caveat(operations=frozenset(map(Operation, _operations(op)))))
    if holder:
        caveats.append(Caveat(holder=holder))
    if ttl:
        end_ms = SystemClock().unix_ns() // 1_000_000 + round(read_span(ttl, option="--for") * 1000)
        caveats.append(Caveat(expires_ms=end_ms))
    limits = _quota(quota)
    if limits is not None:
        caveats.append(Caveat(quota=limits))
    if not caveats:
        raise BadRequest(
            "Say what to narrow: --topic, --op, --holder, --for or --quota.", reason="nothing-to-do"
        )
    narrowed = held.attenuate(*caveats)
    show({"capability": narrowed.text(), **document(narrowed)}, narrowed.text(), json=json)


@caps.command("show")
def show_capability(capability: Text, json: Json = False) -> None:
    """Show what a capability allows. Only the mailbox can tell that it is genuine and not revoked.

    \b
    Examples:
      snavio caps show @bot.cap
      snavio caps issue acme/discord-bot --as acme-bot | snavio caps show - --json
    """
    from snavio.cli.capability_views import document, record

    told = document(_read(capability))
    show(told, record(told), json=json)


@caps.command()
def revoke(
    what: Annotated[
        str, typer.Argument(help="An id; a holder, spiffe://… or tenant:NAME; or with --root a topic.")
    ],
    *,
    root: Annotated[
        int | None, typer.Option(min=1, help="End the root key of this version and those before it.")
    ] = None,
    bar: Annotated[bool, typer.Option("--bar", help="With a holder: it gets no other.")] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="With a holder: it may have some again.")
    ] = False,
    reason: Reason = "",
    caller: Caller,
) -> None:
    """End capabilities before their time: one, a holder's, or all of a root key. Felt within the mailbox's cache time.

    What was leased under them may still be acknowledged until they expire. A consumer that may have another asks for
    one by itself; to keep it out, use --bar.

    \b
    Examples:
      snavio caps revoke 3f9a12… --reason 'in a log'
      snavio caps revoke spiffe://snavio.local/tenant/acme/service/bot --bar
      snavio caps revoke tenant:acme --restore
      snavio caps revoke acme/discord-bot --root 1
    """
    from snavio.errors import BadRequest

    is_holder = what.startswith(("spiffe:", "tenant:"))
    if (bar or restore) and (not is_holder or root is not None):
        raise BadRequest(
            "--bar and --restore go with a holder, spiffe://… or tenant:NAME.", reason="bad-option"
        )
    if bar and restore:
        raise BadRequest("--bar and --restore contradict each other.", reason="bad-option")

    async def ask(client: CapabilityClient) -> None:
        if root is not None:
            await client.revoke_root(what, root, reason=reason)
        elif restore:
            await client.restore_holder(what)
        elif is_holder:
            await client.revoke_holder(what, bar=bar, reason=reason)
        else:
            await client.revoke(what, reason=reason)

    caller.ask_client(_client, ask)
    done = "restored" if restore else "revoked"
    up_to = f" up to root {root}" if root else ""
    caller.show({done: what, "root": root, "barred": bar}, f"{done}  {what}{up_to}")


@caps.command()
def rotate(
    realm: Annotated[str, typer.Argument(help="A topic, `<tenant>/*` or `*`; without, everything.")] = "",
    *,
    caller: Caller,
) -> None:
    """Take a new root key into use; what was made before stays good for the overlap.

    \b
    Examples:
      snavio caps rotate acme/discord-bot
      snavio caps rotate
    """
    answer = caller.ask_client(_client, lambda client: client.rotate(realm))
    until = time_text(answer.overlap_until_unix_ns)
    now = f"{realm} is at root key {answer.version}" if realm else "A new secret spreads"
    caller.show(
        {"realm": realm or None, "version": answer.version or None, "overlap_until": until},
        f"{now}; what was made before is good until {until}.",
    )


@caps.command("ls")
def list_capabilities(
    realm: Annotated[str, typer.Argument(help="Those whose topic begins so, such as acme/.")] = "",
    *,
    holder: Annotated[str, typer.Option(help="Those of one holder.")] = "",
    caller: Caller,
) -> None:
    """Capabilities that Signer has made and that have not expired, oldest first.

    \b
    Examples:
      snavio caps ls
      snavio caps ls acme/ --json | jq '.capabilities[] | select(.revoked) | .id'
    """
    from snavio.cli.capability_views import listed, record_document

    async def ask(client: CapabilityClient) -> list[CapabilityRecord]:
        return [record async for record in client.living(realm=realm, holder=holder)]

    found = caller.ask_client(_client, ask)
    rows = [record_document(record) for record in found]
    caller.show({"capabilities": rows}, listed(rows))


def _read(text: str) -> Capability:
    import sys

    from snavio.domain.capability import MAX_TEXT, read_text
    from snavio.errors import BadRequest

    if text == "-":
        text = sys.stdin.read(2 * MAX_TEXT)
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("ascii")
        except (OSError, UnicodeDecodeError):
            raise BadRequest(f"{text[1:]} cannot be read.", reason="no-file") from None
    try:
        return read_text(text.strip())
    except BadRequest as error:
        # Never repeated: what was typed by mistake may be another secret.
        hint = (
            "" if text.strip().startswith("snvcap1.") else " It begins with snvcap1. or names a file, @FILE."
        )
        raise BadRequest(f"{error}{hint}", reason=error.reason) from None


def _operations(words: list[str] | None) -> list[str]:
    from snavio.domain.caveat import Operation

    return one_of_each(words or (), list(Operation), "--op", reason="bad-operation")


def _quota(words: str) -> Quota | None:
    from snavio.cli.times import read_span
    from snavio.domain.caveat import Quota
    from snavio.errors import BadRequest

    if not words:
        return None
    messages, slash, span = words.partition("/")
    if not slash or not messages.isascii() or not messages.isdigit() or len(messages) > 13:
        raise BadRequest("--quota: must be messages and a time, such as 1000/60s.", reason="bad-quota")
    return Quota(int(messages), round(read_span(span, option="--quota") * 1000))


def _client(mesh: MeshSettings, certificates: Path) -> CapabilityClient:
    from snavio.admin.capabilities import CapabilityClient

    return CapabilityClient(mesh.signer, certificates=certificates, trust_domain=mesh.trust_domain)
