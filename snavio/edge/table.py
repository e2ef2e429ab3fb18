"""The text of the table of directives, which `language.py` reads.

Never has logic: one row per directive, one section per block.
"""

from __future__ import annotations

from typing import Final

# Name | arguments | block that it opens | default | marks | sentence.
# An argument is [keyword=][label:]kind[bounds], with ? * + for how often; (a|b) lists the words that are permitted.
# Marks: many (repeatable), closed (its block may be left out), restart, extended, snavio, refused, the part that
# carries it out (ingress unless said), and means=<long form>.<directive inside of it>.
TABLE: Final = """
[file: The file itself. A path at this level is an inbound route.]
tenant | tenant | - | edge | snavio restart | The tenant that the routes belong to.
ingress | - | ingress | - | - | The listener that webhooks come in through.
pull_api | - | pull_api | - | restart pull | The listener that workers fetch messages from.
admin_api | - | admin_api | - | restart management | The listener for operators' tools.
vars | - | vars | - | - | Values to be used as `{vars.NAME}`.
secrets | - | secrets | - | - | Named secrets with their windows of validity.
defaults | - | defaults | - | - | Limits and policies of all routes that have none of their own.
queue_limits | - | queue_limits | - | - | How much may wait.
queue_retention | - | queue_retention | - | - | How long a message may wait.
delivered_retention | - | delivered_retention | - | - | How long settled messages stay visible.
dlq_retention | - | dlq_retention | - | - | How long and how many dead messages are kept.
attempts_retention | - | attempts_retention | - | extended delivery | How long attempts of delivery are kept.
observability | - | observability | - | - | Logs, metrics and traces.
inbound / | - | route | - | many | A route that requests reach.
outbound / | - | route | - | many delivery | A route for messages that are published here and delivered to a target.
internal / | - | route | - | many pull | A route for jobs that are published here and fetched by workers.
inbound | - | channel | - | many | Routes that requests reach; the same as routes outside of a channel.
outbound | - | channel | - | many delivery | Routes for messages that are published here and delivered to a target.
internal | - | channel | - | many pull | Routes for jobs that are published here and fetched by workers.
@ | - | matcher | - | many | Conditions with a name, for `match @name`.
/ | - | route | - | many | An inbound route: this path and all below it; the first route that matches takes the request.

[channel: Routes of one channel.]
/ | - | route | - | many | A route of this channel.

[ingress: The listener that webhooks come in through.]
listen | address | - | :8080 | restart | Address and port.
tls | - | tls | - | restart | Certificates; without them the listener speaks plain HTTP.
rate_limit | - | rate_limit | - | - | The bucket of every route that has none of its own.
trusted_proxies | network+ | - | - | extended many | Proxies whose `X-Forwarded-For` is believed.

[pull_api: The listener that workers fetch messages from.]
listen | address | - | :9443 | restart pull | Address and port.
grpc_listen | address | - | - | extended pull refused | Workers over gRPC use `snavio.sdk.Consumer`, over mTLS and without a port of its own.
prefix | prefix | - | - | restart pull | Path before every pull path.
tls | - | tls | - | restart pull | Certificates; without them the listener speaks plain HTTP.
auth token | ref | - | - | many pull | A bearer token that workers may show.
max_batch | count[1-10000] | - | 100 | pull | Most messages that one call may ask for.
max_lease_batch | count[1-10000] | - | 100 | extended pull | Most leases that one call may settle.
default_lease_ttl | duration | - | 30s | pull | A lease's time when the call names none; under 250 ms it is raised.
max_lease_ttl | limit | - | off | pull | The longest lease.
default_max_wait | wait | - | 0 | pull | How long a call waits for messages when it does not say.
max_wait | limit | - | off | pull | The longest wait.
sse_keepalive | duration | - | 15s | extended pull | Pause between comments that keep a stream open.
sse_max_connection | limit | - | off | extended pull | The longest life of a stream.

[admin_api: The listener for operators' tools.]
listen | address | - | 127.0.0.1:2019 | restart management | Address and port.
prefix | prefix | - | - | restart management | Path before every path of the API.
tls | - | tls | - | restart management | Certificates; without them the listener speaks plain HTTP.
auth token | ref | - | - | many management | A bearer token that tools may show; required off loopback.

[tls: Certificates of a listener.]
cert_file | file | - | - | restart | The certificate chain, PEM.
key_file | file | - | - | restart | Its private key, PEM.
client_ca | file | - | - | restart | The CA whose clients are let in.
client_auth | (none|request|require|verify_if_given|require_and_verify) | - | - | restart | What is asked of a client; `require_and_verify` when there is a `client_ca`.

[rate_limit: A token bucket, taken from by requests that have shown who they are.]
rps | rate | - | - | - | Requests per second.
burst | count[1-1000000] | - | - | - | Requests at once; by default `rps`, rounded up.

[vars: Values of your own.]
* | value:private | - | - | many | A value, used as `{vars.NAME}`; it may use others.

[secrets: Named secrets.]
secret | id:label | secret | - | many | A secret that `secret_ref` names; several names are the versions of a key.

[secret: A secret and its window.]
value | ref | - | - | - | Where its bytes are: `env:`, `file:`, `vault:` or `raw:`.
valid_from | time | - | - | - | The first moment at which it signs and verifies.
valid_until | time | - | - | - | The first moment at which it does so no more; left out, it has no end.
runtime | switch | - | off | extended management | Lets the Admin API add versions while the edge runs.
max_versions | count[1-1000] | - | 32 | extended management | Most versions of a `runtime` secret.

[defaults: Limits and policies of all routes that have none of their own.]
max_body | size | - | 2mb | - | The largest body; a larger one is answered 413.
max_headers | size | - | 64kb | - | The largest header section.
egress | - | egress | - | delivery | Where deliveries may go.
deliver | - | default_deliver | - | delivery | How deliveries are tried again.
publish_policy | - | publish_policy | - | management | Who may publish, and how.
trend_signals | - | trend_signals | - | management | When a backlog is called a trend.
adaptive_backpressure | - | adaptive_backpressure | - | extended | 503 before a queue is full.

[egress: Where deliveries may go. Deny is looked at first; an allow list, if there is one, must match.]
allow | host_rule+ | - | - | many delivery | Hosts, addresses or networks that may be called.
deny | host_rule+ | - | - | many delivery | Hosts, addresses or networks that may not.
https_only | switch | - | on | delivery | Refuse targets without TLS.
redirects | switch | - | off | delivery | Follow redirects; each hop is checked again.
dns_rebind_protection | switch | - | on | delivery | Dial the address that was checked.

[default_deliver: How deliveries are tried again.]
retry | (exponential)? max=count[0-100]? base=duration? cap=duration? jitter=share? | - | exponential max 8 base 2s cap 2m jitter 0.2 | delivery | Further attempts, and the pause before them.
timeout | duration | - | 10s | delivery | The longest time of one attempt.
concurrency | count[1-10000] | - | 20 | delivery | Attempts of one route at once.

[publish_policy: Who may publish, and how.]
direct | switch | - | on | management | Publishing to a route by its path.
managed | switch | - | on | management | Publishing to an endpoint by its labels.
allow_pull_routes | switch | - | on | management | Publishing to routes that workers fetch from.
allow_deliver_routes | switch | - | on | management | Publishing to routes that are delivered.
require_actor | switch | - | off | management | Refuse a change that does not say who makes it.
require_request_id | switch | - | off | management | Refuse a change without a request id.
fail_closed | switch | - | off | management | Refuse while the owner of a route cannot be told.
actor_allow | text+ | - | - | many management | Actors that may change endpoints.
actor_prefix | text+ | - | - | many management | Beginnings of the names of such actors.

[trend_signals: When a backlog is called a trend.]
window | duration | - | 15m | management | How far back is looked.
expected_capture_interval | duration | - | 1m | management | Pause between two samples.
stale_grace_factor | count[1-1000] | - | 3 | management | Intervals without a sample that are forgiven.
sustained_growth_consecutive | count[1-1000] | - | 3 | management | Samples in a row that grow.
sustained_growth_min_samples | count[1-10000] | - | 5 | management | Samples below which nothing is concluded.
sustained_growth_min_delta | count[0-1000000000] | - | 10 | management | The least growth.
recent_surge_min_total | count[0-1000000000] | - | 20 | management | The least backlog of a surge.
recent_surge_min_delta | count[0-1000000000] | - | 10 | management | The least growth of a surge.
recent_surge_percent | count[0-100000] | - | 50 | management | The least growth of a surge, in percent.
dead_share_high_min_total | count[0-1000000000] | - | 10 | management | Messages below which dead ones are no share.
dead_share_high_percent | count[0-100] | - | 20 | management | The share of dead messages that is high.
queued_pressure_min_total | count[0-1000000000] | - | 20 | management | Messages below which waiting ones are no pressure.
queued_pressure_percent | count[0-100] | - | 75 | management | The share of waiting messages that is pressure.
queued_pressure_leased_multiplier | count[1-1000] | - | 2 | management | Waiting messages per leased one that are pressure.

[adaptive_backpressure: 503 before a queue is full.]
enabled | switch | - | off | extended | Turns it on.
min_total | count[0-1000000000] | - | 200 | extended | Messages below which nothing is refused.
queued_percent | count[1-100] | - | 80 | extended | The share of waiting messages from which on requests are refused.
ready_lag | duration | - | 30s | extended | The age of the oldest message that could run, from which on requests are refused.
oldest_queued_age | duration | - | 60s | extended | The age of the oldest message, from which on requests are refused.
sustained_growth | switch | - | on | extended | Refuse while the backlog keeps growing, too.

[queue_limits: How much may wait.]
max_depth | count[1-1000000000] | - | 10000 | - | Messages per route and target.
drop_policy | (reject|drop_oldest) | - | reject | - | What gives way when it is full: the new message (503), or the oldest, into the dead-letter queue.

[queue_retention: How long a message may wait.]
max_age | limit | - | 7d | - | Older ones go to the dead-letter queue; `off` is ten years.
prune_interval | duration | - | 5m | - | Pause between two rounds of pruning.

[delivered_retention: How long settled messages stay visible.]
max_age | limit | - | off | - | Older ones are removed.

[dlq_retention: How long and how many dead messages are kept.]
max_age | limit | - | 30d | - | Older ones are removed; `off` is ten years.
max_depth | count[0-1000000000] | - | 10000 | - | Most dead messages, the oldest go first; 0 is no bound of its own.

[attempts_retention: How long attempts of delivery are kept.]
max_age | limit | - | 7d | extended delivery | Older ones are removed.
max_rows | count[1-1000000000] | - | 200000 | extended delivery | Most attempts.

[observability: Logs, metrics and traces.]
access_log | switch? | access_log | on | closed restart means=.enabled | One line per request.
runtime_log | (debug|info|warn|error|off)? | runtime_log | info | closed restart means=.level | The edge's own log.
metrics | switch? | metrics | off | closed restart means=.enabled | Prometheus metrics.
tracing | switch? | tracing | off | closed restart means=.enabled | OpenTelemetry traces.

[access_log: One line per request.]
enabled | switch | - | on | restart | Turns it on.
output | (stdout|stderr|file) | - | stderr | restart | Where it goes.
path | file | - | - | restart | The file, with `output file`.
format | (json|text) | - | json | restart | How a line is written.

[runtime_log: The edge's own log.]
level | (debug|info|warn|error|off) | - | info | restart | The least severity.
output | (stdout|stderr|file) | - | stderr | restart | Where it goes.
path | file | - | - | restart | The file, with `output file`.
format | (json|text) | - | json | restart | How a line is written.

[metrics: Prometheus metrics.]
enabled | switch | - | on | restart | Turns them on.
listen | address | - | 127.0.0.1:9900 | restart | Address and port.
prefix | prefix | - | /metrics | restart | Path of the page.

[tracing: OpenTelemetry traces.]
enabled | switch | - | on | restart | Turns them on.
collector | url | - | - | restart | The collector, OTLP over HTTP.
url_path | prefix | - | - | restart | Path at the collector.
timeout | duration | - | 10s | restart | The longest time of one export.
compression | (none|gzip) | - | none | restart | Compression of an export.
insecure | switch | - | off | restart | Export without TLS.
proxy_url | url | - | - | restart | A proxy on the way to the collector.
tls | - | tracing_tls | - | restart | Certificates towards the collector.
retry | - | tracing_retry | - | restart | Further attempts of an export.
header | header value:header_value | - | - | many restart | A header of every export.

[tracing_tls: Certificates towards the collector.]
ca_file | file | - | - | restart | The CA of the collector's certificate.
cert_file | file | - | - | restart | The edge's certificate there.
key_file | file | - | - | restart | Its private key.
server_name | host | - | - | restart | The name that the certificate must have.
insecure_skip_verify | switch | - | off | restart | Do not verify the collector's certificate.

[tracing_retry: Further attempts of an export.]
enabled | switch | - | on | restart | Turns them on.
initial_interval | duration | - | 5s | restart | The first pause.
max_interval | duration | - | 30s | restart | The longest pause.
max_elapsed_time | duration | - | 1m | restart | When an export is given up.

[matcher: Conditions; all of them must hold.]
method | method+ | - | POST | many | One of these methods.
host | host_pattern+ | - | - | many | One of these hosts: a name, `*`, or `*.example.com` for what is below it.
header | header value:text | - | - | many | A header with exactly this value.
header_exists | header+ | - | - | many | Headers that are present.
query | name:text value:text | - | - | many | A query parameter with exactly this value.
query_exists | name:text+ | - | - | many | Query parameters that are present.
remote_ip | network+ | - | - | many | One of these addresses or networks.

[route: One path, and what becomes of its requests. A route has `pull`, `deliver` or `command`.]
application | label | - | - | management | The application of the endpoint; together with `endpoint_name`.
endpoint_name | label | - | - | management | The name of the endpoint.
match | matcher* | matcher | - | closed many | Conditions beside the path: named ones, or a block.
rate_limit | - | rate_limit | - | - | A bucket in place of the one of `ingress`.
auth basic | user:credential password:credential | - | - | many | A user and its password.
auth hmac secret_ref | id:label | hmac | - | closed many means=auth_hmac.secret_ref | A signature with a named secret.
auth hmac | ref? | hmac | - | closed many means=auth_hmac.secret | A signature over the request.
auth forward | url | forward | - | closed | A service that is asked: 2xx lets in, 401 and 403 do not, all else is 503.
auth mtls | identity:spiffe+ | - | - | snavio many | Identities of client certificates that are let in.
idempotency header | header window=span? | - | - | snavio | The header with the sender's own id: a repeat within the window is answered 202 `duplicate`.
command | target:label name:label | command | - | snavio closed | Make each request a signed command to this target.
publish | switch? | publish | on | closed management means=.enabled | Whether messages may be published to the route.
publish.direct | switch | - | on | management means=publish.direct | Publishing by path.
publish.managed | switch | - | on | management means=publish.managed | Publishing by labels.
queue | backend? | queue | sqlite | closed restart means=.backend | Where messages wait: `sqlite` on disk, or `memory`.
pull | - | pull | - | pull | Workers fetch the messages.
deliver exec | program:file | exec | - | many extended delivery | Each message is given to a program.
deliver | url | deliver | - | many closed delivery | Each message is sent to this address.
deliver_concurrency | count[1-10000] | - | - | delivery | Attempts of this route at once, over all its targets.
max_body | size | - | - | - | The largest body, in place of the default.
max_headers | size | - | - | - | The largest header section, in place of the default.

[hmac: A signature over the request.]
provider | (github|gitea|stripe|cituro|standard_webhooks|slack|shopify|gitlab) | - | - | extended | The sender's own form of signature; it fixes headers and tolerance.
secret | ref | - | - | many | Where the secret's bytes are.
secret_ref | id:label | - | - | many | A secret of the block `secrets`.
signature_header | header | - | X-Signature | - | The header with the signature.
timestamp_header | header | - | X-Timestamp | - | The header with the time, in seconds.
nonce_header | header | - | X-Nonce | - | The header with the nonce.
tolerance | duration | - | 5m | - | The greatest distance between the signed time and now.

[forward: The request to the service that is asked.]
timeout | duration | - | 5s | - | The longest time of an answer.
copy_headers | header+ | - | - | many | Headers of the answer that are kept with the message.
body_limit | size | - | 64kb | - | How much of the body is shown to the service.

[publish: Whether messages may be published to the route.]
enabled | switch | - | on | management | Both ways at once.
direct | switch | - | on | management | Publishing by path.
managed | switch | - | on | management | Publishing by labels.

[queue: Where messages wait.]
backend | backend | - | sqlite | restart | `sqlite` on disk, or `memory`, which loses them with the process.

[pull: Workers fetch the messages.]
path | prefix | - | - | pull | The path below the prefix of `pull_api`.
auth token | ref | - | - | many pull | A bearer token for this route, in place of those of `pull_api`.

[deliver: One target.]
retry | (exponential)? max=count[0-100]? base=duration? cap=duration? jitter=share? | - | - | delivery | Further attempts, and the pause before them.
timeout | duration | - | - | delivery | The longest time of one attempt.
header | header value:header_value | - | - | many extended delivery | A header of every request.
sign hmac secret_ref | id:label | - | - | many delivery | Sign with a named secret.
sign hmac | ref | - | - | delivery | Sign with this secret.
sign standard_webhooks | - | - | - | snavio delivery | Sign as Standard Webhooks says.
sign signature_header | header | - | X-Hookaido-Signature | delivery | The header with the signature.
sign timestamp_header | header | - | X-Hookaido-Timestamp | delivery | The header with the time.
sign secret_selection | (newest_valid|oldest_valid) | - | newest_valid | delivery | Which of several valid secrets signs.
pause | after=count[1-1000] probe=duration | - | - | snavio delivery | Leave a target alone after so many failures in a row, and try it once per interval.

[exec: A program.]
retry | (exponential)? max=count[0-100]? base=duration? cap=duration? jitter=share? | - | - | extended delivery | Further attempts, and the pause before them.
timeout | duration | - | - | extended delivery | The longest time of one attempt.
env | name:variable value:private | - | - | many extended delivery | A variable of the program's environment.
sign | words:text* | - | - | many extended delivery refused | A program is given its message directly; there is no request to sign.

[command: How a request becomes a command.]
source | label | - | edge | snavio | The service of the tenant that signs it.
id header | header | - | - | snavio | The header with the sender's own id, from which the command's id is made.
envelope | switch | - | off | snavio | Send the whole request instead of its body.
"""
