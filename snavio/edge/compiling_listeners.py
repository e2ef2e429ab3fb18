"""Compiles listeners: addresses, certificates, tokens, and which of them may share a port.

Never lets two listeners that are spelled differently bind one socket, and never an open Admin API off loopback.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from snavio.edge.findings import FindingLog, TextPosition
from snavio.edge.kinds import SocketAddress
from snavio.edge.plan import (
    AdminListener,
    ClientCertificates,
    IngressListener,
    ListenerTls,
    MetricsListener,
    PullListener,
    TokenBucket,
)
from snavio.edge.reading import ReadBlock

SHORTEST_LEASE_NS = 250_000_000


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listener with what decides about sharing its port."""

    name: str
    at: TextPosition
    listen: SocketAddress
    prefix: str
    tls: ListenerTls | None
    has_token: bool


def compile_bucket(block: ReadBlock | None, findings: FindingLog) -> TokenBucket | None:
    """A `rate_limit`."""
    if block is None:
        return None
    rps, burst = block.given("rps"), block.given("burst")
    if block.one("rps") is None:
        findings.mistake(block.at, "value-missing", "`rate_limit` needs `rps`.")
    if rps is None:
        return None
    return TokenBucket(rps, burst or math.ceil(rps))


def compile_tls(block: ReadBlock | None, findings: FindingLog) -> ListenerTls | None:
    """The `tls` of a listener."""
    if block is None:
        return None
    for key in ("cert_file", "key_file"):
        if block.one(key) is None:
            findings.mistake(block.at, "tls-incomplete", f"`tls` needs `{key}`.")
    said, ca = block.given("client_auth"), block.given("client_ca")
    clients = ClientCertificates.REQUIRE_AND_VERIFY if block.one("client_ca") else ClientCertificates.NONE
    match said:
        case "none":
            clients = ClientCertificates.NONE
        case "verify_if_given" | "request":
            clients = ClientCertificates.VERIFY_IF_GIVEN
        case "require" | "require_and_verify":
            clients = ClientCertificates.REQUIRE_AND_VERIFY
    if said in ("request", "require"):
        # A certificate of anybody's CA would let anybody in who can make one.
        findings.warning(
            block.place("client_auth"),
            "client-auth-verifies",
            f"`client_auth {said}` verifies what is shown, as `{clients.value}` does.",
        )
    if clients is not ClientCertificates.NONE and block.one("client_ca") is None:
        findings.mistake(
            block.place("client_auth"),
            "client-ca-missing",
            f"`client_auth {said}` needs a `client_ca` to verify against.",
        )
    return ListenerTls(block.given("cert_file") or "", block.given("key_file") or "", ca, clients)


def compile_ingress(file: ReadBlock, findings: FindingLog) -> tuple[IngressListener, BoundListener]:
    """The listener of inbound routes; it is there without its block, too."""
    block = file.inner("ingress") or ReadBlock("ingress", TextPosition())
    listen = block.value("listen")
    tls = compile_tls(block.inner("tls"), findings)
    bucket = compile_bucket(block.inner("rate_limit"), findings)
    listener = IngressListener(listen, tls, bucket, block.many("trusted_proxies"))
    return listener, BoundListener("ingress", block.place("listen"), listen, "", tls, has_token=False)


def compile_pull(
    file: ReadBlock, findings: FindingLog, *, wanted: bool
) -> tuple[PullListener, BoundListener] | None:
    """The listener of workers, when there is a block or a route for it."""
    block = file.inner("pull_api")
    if block is None and not wanted:
        return None
    block = block or ReadBlock("pull_api", TextPosition())
    tls = compile_tls(block.inner("tls"), findings)
    lease, longest = block.value("default_lease_ttl"), block.value("max_lease_ttl")
    wait, longest_wait = block.value("default_max_wait"), block.value("max_wait")
    if lease and longest and lease > longest:
        findings.mistake(
            block.place("default_lease_ttl"),
            "lease-too-long",
            "`default_lease_ttl` is longer than `max_lease_ttl`.",
        )
    if wait and longest_wait and wait > longest_wait:
        findings.mistake(
            block.place("default_max_wait"), "wait-too-long", "`default_max_wait` is longer than `max_wait`."
        )
    for key, value in (("default_lease_ttl", lease), ("max_lease_ttl", longest)):
        if value and value < SHORTEST_LEASE_NS:
            findings.warning(
                block.place(key), "lease-raised", f"`{key}` is raised to 250ms, the shortest lease."
            )
    listener = PullListener(
        listen=block.value("listen"),
        prefix=_prefix(block),
        tls=tls,
        tokens=block.many("auth token"),
        max_batch=block.value("max_batch"),
        max_lease_batch=block.value("max_lease_batch"),
        default_lease_ttl_ns=max(lease or 0, SHORTEST_LEASE_NS),
        max_lease_ttl_ns=max(longest, SHORTEST_LEASE_NS) if longest else None,
        default_max_wait_ns=wait or 0,
        max_wait_ns=longest_wait,
        sse_keepalive_ns=block.value("sse_keepalive"),
        sse_max_connection_ns=block.value("sse_max_connection"),
    )
    bound = BoundListener(
        "pull_api",
        block.place("listen"),
        listener.listen,
        listener.prefix,
        tls,
        has_token=bool(block.all("auth token")),
    )
    return listener, bound


def compile_admin(file: ReadBlock, findings: FindingLog) -> tuple[AdminListener, BoundListener] | None:
    """The listener of operators' tools, when there is a block for it."""
    block = file.inner("admin_api")
    if block is None:
        return None
    tls = compile_tls(block.inner("tls"), findings)
    listen, has_token = block.value("listen"), bool(block.all("auth token"))
    if listen and not listen.loopback and not has_token:
        findings.mistake(
            block.place("listen"),
            "admin-open",
            "`admin_api` can be reached from other machines and asks for no token; add `auth token`, or listen on "
            "`127.0.0.1`.",
        )
    listener = AdminListener(listen, _prefix(block), tls, block.many("auth token"))
    return listener, BoundListener(
        "admin_api", block.place("listen"), listen, listener.prefix, tls, has_token=has_token
    )


def bound_metrics(metrics: MetricsListener | None, file: ReadBlock) -> BoundListener | None:
    """The metrics listener, when it is on."""
    if metrics is None:
        return None
    block = (file.inner("observability") or file).inner("metrics")
    at = block.place("listen") if block else TextPosition()
    return BoundListener("metrics", at, metrics.listen, metrics.prefix, None, has_token=True)


def check_sockets(
    listeners: list[BoundListener], routes: list[tuple[str, TextPosition]], findings: FindingLog
) -> None:
    """Compare every two listeners; `routes` are the paths that ingress serves."""
    for place, later in enumerate(listeners):
        for earlier in listeners[:place]:
            if earlier.listen and later.listen and earlier.listen.port == later.listen.port:
                _compare(earlier, later, routes, findings)


def _compare(
    earlier: BoundListener, later: BoundListener, routes: list[tuple[str, TextPosition]], findings: FindingLog
) -> None:
    one, two = earlier.listen, later.listen
    if one.text == two.text:
        _share(earlier, later, routes, findings)
        return
    pair = f"`{earlier.name}` and `{later.name}`"
    if _host(one) == _host(two):
        findings.mistake(
            later.at,
            "socket-alias",
            f"`{one.text}` and `{two.text}` are one socket; {pair} share it only when both write the same.",
        )
    elif one.everywhere or two.everywhere:
        findings.mistake(
            later.at, "socket-overlap", f"`{one.text}` and `{two.text}` cannot both be bound, for {pair}."
        )


def _share(
    earlier: BoundListener, later: BoundListener, routes: list[tuple[str, TextPosition]], findings: FindingLog
) -> None:
    """Check two listeners that write one address, and so share its port."""
    one, pair = earlier.listen, f"`{earlier.name}` and `{later.name}`"
    if "metrics" in (earlier.name, later.name):
        findings.mistake(
            later.at, "port-not-shared", f"`metrics` has an address of its own; {pair} share `{one.text}`."
        )
        return
    if earlier.tls != later.tls:
        findings.mistake(later.at, "shared-tls", f"{pair} share `{one.text}` and need the same `tls`.")
    apis = [each for each in (earlier, later) if each.name != "ingress"]
    for each in apis:
        if each.prefix in ("", "/"):
            findings.mistake(
                each.at,
                "shared-prefix",
                f"{pair} share `{one.text}`; `{each.name}` needs a `prefix` of its own there.",
            )
    if len(apis) == 2:
        if all(each.prefix not in ("", "/") for each in apis) and _overlap(apis[0].prefix, apis[1].prefix):
            findings.mistake(
                later.at,
                "shared-prefix",
                f"{pair} share `{one.text}`, and one `prefix` is inside of the other.",
            )
        return
    (api,) = apis
    if api.name == "admin_api" and not api.has_token:
        findings.mistake(
            api.at,
            "admin-open",
            "`admin_api` shares the port of `ingress`, which everybody reaches; add `auth token`.",
        )
    if api.prefix in ("", "/"):
        return
    for path, at in routes:
        if _overlap(path, api.prefix):
            findings.mistake(
                at,
                "shared-prefix-route",
                f"The route `{path}` and the prefix `{api.prefix}` of `{api.name}` meet on `{one.text}`.",
            )


def _host(address: SocketAddress) -> str:
    if address.everywhere:
        return ""
    return "127.0.0.1" if address.host == "localhost" else address.host


def _overlap(one: str, other: str) -> bool:
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)


def _prefix(block: ReadBlock) -> str:
    return (block.value("prefix") or "").rstrip("/")
