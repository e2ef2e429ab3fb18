"""Compiles routes: their channel, their conditions, what a request must show, and what becomes of it.

Never accepts a route that no request can reach, that has two modes, or whose authentication lets everybody in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from snavio.edge.compiling_deliveries import DeliveryDefaults, compile_targets
from snavio.edge.compiling_listeners import compile_bucket
from snavio.edge.compiling_policies import block_of, compile_conditions, known_secrets
from snavio.edge.findings import FindingLog, TextPosition, closest_word
from snavio.edge.kinds import SECOND_NS
from snavio.edge.plan import (
    BasicCredential,
    ClientCertificates,
    CommandTarget,
    EdgeRoute,
    EndpointLabels,
    ForwardAuth,
    HmacAuth,
    IngressListener,
    PublishRights,
    PullPath,
    RequestConditions,
    RouteAuth,
    RouteChannel,
    RouteMode,
    SenderIds,
)
from snavio.edge.reading import ReadBlock, ReadDirective
from snavio.edge.references import EdgeSecret
from snavio.edge.signatures import PROVIDERS

MOST_ROUTES: Final = 5000
PULL_OPERATIONS: Final = frozenset({"dequeue", "ack", "nack", "extend", "stream"})
DAY_NS: Final = 86_400 * SECOND_NS

_OF_REQUESTS: Final = ("auth basic", "auth hmac", "auth forward", "auth mtls", "match", "rate_limit")
_FORBIDDEN: Final = {
    RouteChannel.INBOUND: (),
    RouteChannel.OUTBOUND: (*_OF_REQUESTS, "pull", "command", "idempotency header"),
    RouteChannel.INTERNAL: (*_OF_REQUESTS, "deliver", "deliver exec", "command", "idempotency header"),
}
_REQUIRED: Final = {RouteChannel.OUTBOUND: ("deliver", "deliver exec"), RouteChannel.INTERNAL: ("pull",)}
_PROVIDER_FIXES: Final = ("signature_header", "timestamp_header", "nonce_header", "tolerance")
_MODES: Final = {"pull": RouteMode.PULL, "deliver": RouteMode.DELIVER, "command": RouteMode.COMMAND}


@dataclass(frozen=True, slots=True)
class RouteSource:
    """A route as it stands in the file."""

    path: str
    channel: RouteChannel
    at: TextPosition
    block: ReadBlock


@dataclass(frozen=True, slots=True)
class RouteSurroundings:
    """Names and defaults that a route may refer to."""

    secrets: dict[str, EdgeSecret]
    matchers: dict[str, RequestConditions]
    deliveries: DeliveryDefaults
    max_body: int
    max_headers: int
    pull_has_token: bool


@dataclass
class RouteCompiler:
    """Compiles the routes of one file."""

    around: RouteSurroundings
    findings: FindingLog
    _pull_paths: dict[str, int] = field(default_factory=dict)
    _labels: dict[tuple[str, str], int] = field(default_factory=dict)

    def compile(self, sources: list[RouteSource]) -> tuple[EdgeRoute, ...]:
        """All routes, in the order in which requests meet them."""
        if len(sources) > MOST_ROUTES:
            self.findings.mistake(
                sources[MOST_ROUTES].at,
                "too-many-routes",
                f"A file has at most {MOST_ROUTES:,} routes, and this one {len(sources):,}.",
            )
            return ()
        found: dict[str, tuple[EdgeRoute, int]] = {}
        for source in sources:
            if source.path in found:
                self.findings.mistake(
                    source.at,
                    "duplicate-path",
                    f"The path `{source.path}` is there twice; the first stands in line {found[source.path][1]}.",
                )
                continue
            route = self._route(source)
            if route.channel is RouteChannel.INBOUND:
                self._shadowed(route, source, found)
            found[source.path] = (route, source.at.line)
        return tuple(route for route, _ in found.values())

    def _shadowed(
        self, route: EdgeRoute, source: RouteSource, earlier: dict[str, tuple[EdgeRoute, int]]
    ) -> None:
        """Look for a route above that takes every request of this one: only paths around it can."""
        path = route.path
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            above = earlier.get(path)
            if above and above[0].channel is RouteChannel.INBOUND and _takes_all(above[0], route):
                self.findings.mistake(
                    source.at,
                    "shadowed-route",
                    f"No request reaches `{route.path}`: `{path}` in line {above[1]} takes them first. Put it above.",
                )
                return

    def _route(self, source: RouteSource) -> EdgeRoute:
        block = source.block
        mode = self._mode(source)
        methods, conditions = self._conditions(block, source.at)
        publish = block_of(block, "publish", "publish")
        enabled = bool(publish.value("enabled"))
        pull = self._pull(block) if block.one("pull") else None
        auth = self._auth(block)
        if mode is not RouteMode.COMMAND:
            _unused_ids(block, auth, self.findings)
        return EdgeRoute(
            path=source.path,
            channel=source.channel,
            mode=mode,
            methods=methods,
            conditions=conditions,
            auth=auth,
            rate_limit=compile_bucket(block.inner("rate_limit"), self.findings),
            sender_ids=_sender_ids(block),
            command=_command(block),
            pull=pull,
            targets=compile_targets(block, self.around.deliveries, self.around.secrets, self.findings),
            deliver_concurrency=block.given("deliver_concurrency") or self.around.deliveries.concurrency,
            labels=self._endpoint(source),
            publish=PublishRights(
                direct=enabled and bool(publish.value("direct")),
                managed=enabled and bool(publish.value("managed")),
            ),
            max_body=block.given("max_body") or self.around.max_body,
            max_headers=block.given("max_headers") or self.around.max_headers,
        )

    def _mode(self, source: RouteSource) -> RouteMode:
        block, channel = source.block, source.channel
        for key in _FORBIDDEN[channel]:
            for each in block.all(key)[:1]:
                self.findings.mistake(
                    each.at,
                    f"{channel.value}-forbids",
                    f"`{key}` cannot stand in a route of `{channel.value}`: {_WHY[channel]}.",
                )
        required = _REQUIRED.get(channel, ())
        if required and not any(block.one(key) for key in required):
            self.findings.mistake(
                source.at,
                f"{channel.value}-requires",
                f"A route of `{channel.value}` needs `{required[0]}`: {_WHY[channel]}.",
            )
        modes = [
            (key, directive)
            for key in ("pull", "deliver", "deliver exec", "command")
            if (directive := block.one(key)) is not None
        ]
        found = list(dict.fromkeys(_MODES[key.split()[0]] for key, _ in modes))
        if channel is not RouteChannel.INBOUND:
            return RouteMode.DELIVER if channel is RouteChannel.OUTBOUND else RouteMode.PULL
        if not found:
            self.findings.mistake(
                source.at,
                "mode-missing",
                f"The route `{source.path}` says nothing of its messages; add `pull`, `deliver` or `command`.",
            )
            return RouteMode.PULL
        if len(found) > 1:
            names = " and ".join(f"`{each.value}`" for each in found)
            self.findings.mistake(
                modes[-1][1].at,
                "two-modes",
                f"The route `{source.path}` has {names}; a route has one of them.",
            )
        return found[0]

    def _conditions(
        self, block: ReadBlock, at: TextPosition
    ) -> tuple[frozenset[str], tuple[RequestConditions, ...]]:
        found: list[RequestConditions] = []
        for each in block.all("match"):
            if each.block is None and not each.row.arguments[0].required and not each.places:
                self.findings.mistake(each.at, "value-missing", "`match` needs `@name` or a block.")
            for name, place in zip(each.values, each.places, strict=True):
                if name is None:
                    continue
                if name in self.around.matchers:
                    found.append(self.around.matchers[name])
                else:
                    meant = closest_word(name, self.around.matchers)
                    self.findings.mistake(
                        place,
                        "unknown-matcher",
                        f"There is no matcher `@{name}`.",
                        f"@{meant}" if meant else "",
                    )
            if each.block is not None:
                found.append(compile_conditions(each.block, self.findings, each.at))
        said = [each.methods for each in found if each.methods]
        methods = frozenset.intersection(*said) if said else frozenset({"POST"})
        if not methods:
            self.findings.mistake(at, "never-matches", "The matchers of this route have no method in common.")
        return methods, tuple(dict.fromkeys(found))

    def _auth(self, block: ReadBlock) -> RouteAuth:
        basic, hmac = block.all("auth basic"), block.one("auth hmac")
        forward = block.one("auth forward")
        if forward and (basic or hmac):
            self.findings.mistake(
                forward.at,
                "auth-exclusive",
                "`auth forward` decides alone; `auth basic` and `auth hmac` cannot stand beside it.",
            )
        credentials: dict[str, BasicCredential] = {}
        for each in basic:
            if not each.known or len(each.values) != 2:
                continue
            user, password = each.values
            if user in credentials or ":" in user:
                why = "holds a colon" if ":" in user else "is there twice"
                self.findings.mistake(each.at, "bad-user", f"The user of `auth basic` {why}.")
            credentials[user] = BasicCredential(user, password)
        return RouteAuth(
            basic=tuple(credentials.values()),
            hmac=self._hmac(hmac) if hmac else None,
            forward=_forward(forward) if forward else None,
            identities=block.many("auth mtls"),
        )

    def _hmac(self, directive: ReadDirective) -> HmacAuth:
        block = directive.block or ReadBlock("hmac", directive.at)
        if not block.all("secret") and not block.all("secret_ref"):
            # An empty key would verify what anybody signs.
            self.findings.mistake(
                directive.at,
                "hmac-without-secret",
                "`auth hmac` has no secret and would let everybody in; add `secret` or `secret_ref`.",
            )
        provider = block.given("provider")
        if block.one("provider"):
            for key in _PROVIDER_FIXES:
                if (given := block.one(key)) is not None:
                    self.findings.mistake(
                        given.at,
                        "provider-option",
                        f"`provider` fixes the form of the signature; `{key}` cannot stand beside it.",
                    )
        else:
            names = {key: block.value(key) for key in _PROVIDER_FIXES[:3]}
            folded = [name.lower() for name in names.values() if name]
            if len(set(folded)) < len(folded):
                self.findings.mistake(
                    directive.at,
                    "headers-equal",
                    "`signature_header`, `timestamp_header` and `nonce_header` must differ, their defaults included.",
                )
        return HmacAuth(
            provider=provider,
            secrets=block.many("secret"),
            secret_names=known_secrets(block, "secret_ref", self.around.secrets, self.findings),
            signature_header=block.value("signature_header"),
            timestamp_header=block.value("timestamp_header"),
            nonce_header=block.value("nonce_header"),
            tolerance_ns=block.value("tolerance"),
        )

    def _pull(self, block: ReadBlock) -> PullPath | None:
        pull = block.inner("pull")
        if pull is None:
            return None
        at = block.place("pull")
        if pull.one("path") is None:
            self.findings.mistake(at, "value-missing", "`pull` needs a `path`.")
        if not pull.all("auth token") and not self.around.pull_has_token:
            self.findings.mistake(
                at,
                "pull-without-token",
                "Anybody could fetch these messages: add `auth token` here or in `pull_api`.",
            )
        path = pull.given("path")
        if path is None:
            return None
        parent, _, last = path.rpartition("/")
        if path in self._pull_paths or (last in PULL_OPERATIONS and parent in self._pull_paths):
            line = self._pull_paths.get(path) or self._pull_paths[parent]
            self.findings.mistake(
                pull.place("path"),
                "duplicate-pull-path",
                f"The pull path `{path}` is taken by the route in line {line}.",
            )
        self._pull_paths.setdefault(path, pull.place("path").line)
        return PullPath(path, pull.many("auth token"))

    def _endpoint(self, source: RouteSource) -> EndpointLabels | None:
        block = source.block
        application, name = block.one("application"), block.one("endpoint_name")
        if (application is None) != (name is None):
            one = application or name
            self.findings.mistake(
                one.at if one else source.at,
                "labels-incomplete",
                "`application` and `endpoint_name` belong together.",
            )
        if (
            application is None
            or name is None
            or not (application.known and name.known and application.values and name.values)
        ):
            return None
        labels = EndpointLabels(application.values[0], name.values[0])
        key = (labels.application, labels.endpoint_name)
        if key in self._labels:
            self.findings.mistake(
                name.at,
                "duplicate-labels",
                f"`{key[0]}` has an endpoint `{key[1]}` already, in line {self._labels[key]}.",
            )
        self._labels.setdefault(key, source.at.line)
        return labels


_WHY: Final = {
    RouteChannel.OUTBOUND: "its messages are published here and delivered to a target",
    RouteChannel.INTERNAL: "its messages are published here and fetched by workers",
}


def warn_of_mtls(sources: list[RouteSource], ingress: IngressListener, findings: FindingLog) -> None:
    """Say which routes ask for a certificate that `ingress` never asks a client for."""
    if ingress.tls is not None and ingress.tls.clients is not ClientCertificates.NONE:
        return
    for source in sources:
        asks = source.block.all("auth mtls")
        if asks and source.channel is RouteChannel.INBOUND:
            findings.warning(
                asks[0].at,
                "mtls-without-client-ca",
                f"The route `{source.path}` answers 401 to everybody: `ingress` asks no client for a certificate. "
                "Give its `tls` a `client_ca`.",
            )


def _takes_all(above: EdgeRoute, route: EdgeRoute) -> bool:
    others = route.conditions or (RequestConditions(),)
    return route.methods <= above.methods and all(
        any(each.covers(other) for other in others) for each in above.conditions
    )


def _forward(directive: ReadDirective) -> ForwardAuth:
    block = directive.block or ReadBlock("forward", directive.at)
    return ForwardAuth(
        url=directive.values[0] if directive.values else "",
        timeout_ns=block.value("timeout"),
        copy_headers=block.many("copy_headers"),
        body_limit=block.value("body_limit"),
    )


def _sender_ids(block: ReadBlock) -> SenderIds | None:
    directive = block.one("idempotency header")
    if directive is None or not directive.known or not directive.values:
        return None
    return SenderIds(directive.values[0], directive.named.get("window") or DAY_NS)


def _unused_ids(block: ReadBlock, auth: RouteAuth, findings: FindingLog) -> None:
    """Say where the sender's ids tell no repeats: a signature that covers a time is the key itself."""
    ids = _sender_ids(block)
    if ids is None or auth.hmac is None:
        return
    form = PROVIDERS[auth.hmac.provider] if auth.hmac.provider else None
    if form is not None and (not form.covers_time or ids.header.lower() in form.signed_ids):
        return
    findings.warning(
        block.place("idempotency header"),
        "idempotency-unused",
        f"Repeats are told by the signature, which covers a time; `{ids.header}` is not signed and tells none. "
        "Leave `idempotency header` out.",
    )


def _command(block: ReadBlock) -> CommandTarget | None:
    directive = block.one("command")
    if directive is None or not directive.known or len(directive.values) != 2:
        return None
    inner = directive.block or ReadBlock("command", directive.at)
    return CommandTarget(
        target=directive.values[0],
        name=directive.values[1],
        source=inner.value("source"),
        id_header=inner.given("id header"),
        envelope=bool(inner.value("envelope")),
    )
