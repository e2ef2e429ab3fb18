"""The compiled form of a Hookaidofile: frozen values that an edge can run and compare whole.

Never holds the bytes of a secret or a placeholder; what a file leaves out has its default here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from snavio.edge.kinds import SocketAddress
from snavio.edge.language import EdgePart
from snavio.edge.references import EdgeSecret, SecretChoice, SecretReference


class RouteChannel(Enum):
    """The senders of a route, and the takers."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"
    INTERNAL = "internal"


class RouteMode(Enum):
    """The use of a route's messages."""

    PULL = "pull"
    DELIVER = "deliver"
    COMMAND = "command"


class ClientCertificates(Enum):
    """The demand on clients. Every certificate that is shown is verified."""

    NONE = "none"
    VERIFY_IF_GIVEN = "verify_if_given"
    REQUIRE_AND_VERIFY = "require_and_verify"


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Files of a listener's certificates."""

    cert_file: str
    key_file: str
    client_ca: str | None
    clients: ClientCertificates


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Requests per second, and at once."""

    rps: float
    burst: int


@dataclass(frozen=True, slots=True)
class IngressListener:
    """The listener of inbound routes."""

    listen: SocketAddress
    tls: ListenerTls | None
    rate_limit: TokenBucket | None
    trusted_proxies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PullListener:
    """The listener of workers. Times are nanoseconds; None is no bound."""

    listen: SocketAddress
    prefix: str
    tls: ListenerTls | None
    tokens: tuple[SecretReference, ...]
    max_batch: int
    max_lease_batch: int
    default_lease_ttl_ns: int
    max_lease_ttl_ns: int | None
    default_max_wait_ns: int
    max_wait_ns: int | None
    sse_keepalive_ns: int
    sse_max_connection_ns: int | None


@dataclass(frozen=True, slots=True)
class AdminListener:
    """The listener of operators' tools."""

    listen: SocketAddress
    prefix: str
    tls: ListenerTls | None
    tokens: tuple[SecretReference, ...]


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """Conditions beside the path. Names of headers are in lower case; an empty group holds for every request."""

    methods: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    headers: frozenset[tuple[str, str]] = frozenset()
    headers_present: frozenset[str] = frozenset()
    queries: frozenset[tuple[str, str]] = frozenset()
    queries_present: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()

    def covers(self, other: RequestConditions) -> bool:
        """True when every request that meets `other` meets these too, methods left aside."""
        hosts = (
            not self.hosts
            or "*" in self.hosts
            or (
                bool(other.hosts)
                and all(any(_host_covers(wide, host) for wide in self.hosts) for host in other.hosts)
            )
        )
        return (
            hosts
            and (not self.networks or (bool(other.networks) and other.networks <= self.networks))
            and self.headers <= other.headers
            and self.headers_present <= other.headers_present | {name for name, _ in other.headers}
            and self.queries <= other.queries
            and self.queries_present <= other.queries_present | {name for name, _ in other.queries}
        )


def _host_covers(wide: str, host: str) -> bool:
    below = wide.startswith("*.") and host.removeprefix("*").endswith(wide[1:]) and host != wide[2:]
    return wide in ("*", host) or below


@dataclass(frozen=True, slots=True)
class BasicCredential:
    """A user and its password, as they are compared."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"BasicCredential(user={self.user!r})"


@dataclass(frozen=True, slots=True)
class HmacAuth:
    """Verification of a signature: every secret and every valid version is tried."""

    provider: str | None
    secrets: tuple[SecretReference, ...]
    secret_names: tuple[str, ...]
    signature_header: str
    timestamp_header: str
    nonce_header: str
    tolerance_ns: int


@dataclass(frozen=True, slots=True)
class ForwardAuth:
    """A service that is asked."""

    url: str
    timeout_ns: int
    copy_headers: tuple[str, ...]
    body_limit: int


@dataclass(frozen=True, slots=True)
class RouteAuth:
    """All that a request must show; empty lets every request in."""

    basic: tuple[BasicCredential, ...] = ()
    hmac: HmacAuth | None = None
    forward: ForwardAuth | None = None
    identities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SenderIds:
    """The header with the sender's own id, and how long a repeat of one is a duplicate."""

    header: str
    window_ns: int


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """The command that a request becomes."""

    target: str
    name: str
    source: str
    id_header: str | None
    envelope: bool


@dataclass(frozen=True, slots=True)
class PullPath:
    """Where workers fetch a route's messages; its tokens take the place of the listener's."""

    path: str
    tokens: tuple[SecretReference, ...]


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Further attempts, with pauses that double up to the cap."""

    max_retries: int
    base_ns: int
    cap_ns: int
    jitter: float


@dataclass(frozen=True, slots=True)
class RequestSigning:
    """The signature of a delivery."""

    reference: SecretReference | None
    secret_names: tuple[str, ...]
    standard_webhooks: bool
    signature_header: str
    timestamp_header: str
    choice: SecretChoice


@dataclass(frozen=True, slots=True)
class TargetPause:
    """Leave a failing target alone, and try it once per interval."""

    after_failures: int
    probe_ns: int


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """A URL, or a program when `url` is None."""

    url: str | None
    program: str | None
    retry: RetrySchedule
    timeout_ns: int
    headers: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    signing: RequestSigning | None
    pause: TargetPause | None


@dataclass(frozen=True, slots=True)
class EndpointLabels:
    """The name of a route in the management model."""

    application: str
    endpoint_name: str


@dataclass(frozen=True, slots=True)
class PublishRights:
    """Ways in which messages may be published to a route."""

    direct: bool
    managed: bool


@dataclass(frozen=True, slots=True)
class EdgeRoute:
    """One path, and what becomes of its requests."""

    path: str
    channel: RouteChannel
    mode: RouteMode
    methods: frozenset[str]
    conditions: tuple[RequestConditions, ...]
    """All of them must hold."""
    auth: RouteAuth
    rate_limit: TokenBucket | None
    sender_ids: SenderIds | None
    command: CommandTarget | None
    pull: PullPath | None
    targets: tuple[DeliveryTarget, ...]
    deliver_concurrency: int
    labels: EndpointLabels | None
    publish: PublishRights
    max_body: int
    max_headers: int


@dataclass(frozen=True, slots=True)
class WaitingPolicy:
    """Bounds of what waits, in number and age. Times are nanoseconds."""

    max_depth: int
    bury_oldest: bool
    max_age_ns: int
    prune_interval_ns: int
    delivered_max_age_ns: int | None
    dead_max_age_ns: int
    dead_max_depth: int
    attempts_max_age_ns: int | None
    attempts_max_rows: int
    in_memory: bool


@dataclass(frozen=True, slots=True)
class EgressRules:
    """Where deliveries may go."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    https_only: bool
    redirects: bool
    dns_rebind_protection: bool


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """Rights to publish."""

    direct: bool
    managed: bool
    allow_pull_routes: bool
    allow_deliver_routes: bool
    require_actor: bool
    require_request_id: bool
    fail_closed: bool
    actor_allow: tuple[str, ...]
    actor_prefix: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackpressurePolicy:
    """503 before a queue is full."""

    min_total: int
    queued_percent: int
    ready_lag_ns: int
    oldest_queued_age_ns: int
    sustained_growth: bool


@dataclass(frozen=True, slots=True)
class TrendPolicy:
    """The thresholds of the trend signals, by their directive."""

    window_ns: int
    expected_capture_interval_ns: int
    thresholds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class LogSink:
    """A log, and where it goes."""

    level: str
    output: str
    path: str | None
    format: str


@dataclass(frozen=True, slots=True)
class MetricsListener:
    """Where Prometheus reads."""

    listen: SocketAddress
    prefix: str


@dataclass(frozen=True, slots=True)
class TraceExport:
    """The OTLP exporter."""

    collector: str
    url_path: str | None
    timeout_ns: int
    gzip: bool
    insecure: bool
    proxy_url: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    server_name: str | None
    insecure_skip_verify: bool
    retry: bool
    initial_interval_ns: int
    max_interval_ns: int
    max_elapsed_time_ns: int
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EdgeObservability:
    """Logs, metrics and traces; None is off."""

    access_log: LogSink | None
    runtime_log: LogSink | None
    metrics: MetricsListener | None
    tracing: TraceExport | None


@dataclass(frozen=True, slots=True)
class DormantPart:
    """Directives of a part of the edge that this version does not carry out."""

    part: EdgePart
    directives: int
    first_line: int


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """Everything that an edge runs."""

    tenant: str
    ingress: IngressListener
    pull_api: PullListener | None
    admin_api: AdminListener | None
    routes: tuple[EdgeRoute, ...]
    secrets: tuple[EdgeSecret, ...]
    matchers: tuple[tuple[str, RequestConditions], ...]
    waiting: WaitingPolicy
    egress: EgressRules
    publish_policy: PublishPolicy
    trends: TrendPolicy
    backpressure: BackpressurePolicy | None
    observability: EdgeObservability
    dormant: tuple[DormantPart, ...]
    fingerprint: str
    """Of the formatted file: comments and blank lines count, because an operator compares it with a file."""
