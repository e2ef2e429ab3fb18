"""An edge in this process: real listeners and connections, and a mailbox that keeps what it is sent in memory.

The mailbox obeys the rules of SendAll: groups are stored whole or not at all, keys are known once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from services.gateway.edge.buckets import RouteBuckets
from services.gateway.edge.commanding import Commanding
from services.gateway.edge.edge_metrics import EdgeMetrics
from services.gateway.edge.forwarding import Forwarding
from services.gateway.edge.ingress import Ingress
from services.gateway.edge.listeners import LIMITS, EdgeListener, ListenerSpec
from services.gateway.edge.posting import Posting
from services.gateway.edge.recent_requests import RecentRequests
from services.gateway.edge.reloading import Register, Reloading
from services.gateway.edge.running_plan import RunningPlan
from services.gateway.edge.secrets import SecretKeeper
from snavio.clock import Clock, SystemClock
from snavio.domain.verdict import Verdict
from snavio.edge.kinds import SocketAddress
from snavio.edge.plan import EdgePlan, ListenerTls
from snavio.errors import Unavailable
from snavio.http.limits import HttpLimits
from snavio.sdk.producer import Producer
from snavio.v1.edge_pb2 import HttpEnvelope
from snavio.v1.mailbox_pb2 import GroupRefusal, SendAllRequest, SendAllResponse
from snavio.wiring import open_secret_source

API = "pull_api { auth token raw:t }\n"
SECRET = b"a shared secret"


@dataclass
class MemoryMailbox:
    """Stands in for the channel that Posting calls."""

    stored: dict[str, list[HttpEnvelope]] = field(default_factory=dict)
    capacity: int = 1 << 30
    away: bool = False
    """Calls fail before anything is stored."""
    mute: bool = False
    """Calls fail after everything was stored: the answer is lost."""
    calls: int = 0
    groups: int = 0
    gate: asyncio.Event | None = None
    _keys: dict[tuple[str, str], tuple[int, bytes]] = field(default_factory=dict)
    _next: int = 1024

    @property
    def everything(self) -> list[HttpEnvelope]:
        return [each for found in self.stored.values() for each in found]

    async def call_raw(self, _method: str, request: bytes, *, timeout_s: float) -> bytes:
        del timeout_s
        self.calls += 1
        groups = SendAllRequest.FromString(request).group
        self.groups += len(groups)
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise Unavailable("The mailbox is away.")
        answer = SendAllResponse()
        codes = bytearray()
        for number, group in enumerate(groups):
            copies = [
                (topic, message) for part in group.part for topic in part.topic for message in part.message
            ]
            refusal = ""
            for topic, message in copies:
                known = self._keys.get((topic, message.idem_key)) if message.idem_key else None
                if known is not None and known[1] != message.idem_content:
                    refusal = "conflict"
                elif known is not None and group.refuse_duplicates:
                    refusal = refusal or "duplicate"
                elif known is None and len(self.stored.get(topic, [])) >= self.capacity:
                    refusal = refusal or "saturated"
            if refusal:
                retry = 1500 if refusal == "saturated" else 0
                answer.refusal.append(
                    GroupRefusal(group=number, reason=refusal, detail="full", retry_after_ms=retry)
                )
                codes += bytes(len(copies))
                answer.msg_id.extend([0] * len(copies))
                continue
            for topic, message in copies:
                known = self._keys.get((topic, message.idem_key)) if message.idem_key else None
                if known is None:
                    self._next += 1
                    self.stored.setdefault(topic, []).append(HttpEnvelope.FromString(message.payload))
                    self._keys[topic, message.idem_key] = (self._next, message.idem_content)
                    answer.msg_id.append(self._next)
                    codes.append(Verdict.DELIVERED)
                else:
                    answer.msg_id.append(known[0])
                    codes.append(Verdict.DUPLICATE)
        answer.codes = bytes(codes)
        if self.mute:
            raise Unavailable("No answer came.")
        return answer.SerializeToString()


@dataclass
class EdgeReply:
    """An answer of the edge."""

    status: int
    headers: Mapping[str, str]
    document: dict[str, str]

    @property
    def said(self) -> tuple[int, str]:
        return self.status, self.document.get("status") or self.document.get("code", "")


@dataclass
class LocalEdge:
    """An edge that runs in this process."""

    mailbox: MemoryMailbox
    ingress: Ingress
    posting: Posting
    reloading: Reloading
    recent: RecentRequests
    metrics: EdgeMetrics
    file: Path
    port: int
    session: aiohttp.ClientSession
    turned_away: list[tuple[int, str]]
    scheme: str = "http"

    async def post(
        self,
        path: str,
        body: bytes = b"{}",
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
    ) -> EdgeReply:
        from yarl import URL

        url = URL(f"{self.scheme}://127.0.0.1:{self.port}{path}", encoded=True)
        async with self.session.request(method, url, data=body, headers=headers) as answer:
            return EdgeReply(answer.status, answer.headers, await answer.json())

    async def raw(self, data: bytes, *, more: float = 0.0) -> bytes:
        """All that comes back for bytes on a connection of their own, until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(30.0 + more):
                return await reader.read(-1)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    def write(self, text: str) -> None:
        """Change the file, without a reload."""
        self.file.write_text(text)


async def _nothing(_plan: EdgePlan) -> None:
    return None


def _no_producer(source: str) -> Producer:
    raise AssertionError(f"no command in this test, and not of {source}")


@asynccontextmanager
async def local_edge(
    folder: Path,
    text: str,
    *,
    clock: Clock | None = None,
    limits: HttpLimits = LIMITS,
    tls: ListenerTls | None = None,
    environment: Mapping[str, str] | None = None,
    mailbox: MemoryMailbox | None = None,
    commanding: Commanding | None = None,
    register: Register | None = None,
) -> AsyncIterator[LocalEdge]:
    """Run the ingress of a file on a free port."""
    clock, mailbox = clock or SystemClock(), mailbox or MemoryMailbox()
    file = folder / "Hookaidofile"
    file.write_text(text)
    metrics, recent, turned_away = EdgeMetrics(), RecentRequests(), []

    def finished(notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> None:
        metrics.finished(notes, answer, duration_ns)
        recent.keep(notes, answer, duration_ns)

    posting = Posting(mailbox)  # type: ignore[arg-type]
    forwarding = Forwarding()
    commanding = commanding or Commanding(_no_producer)
    ingress = Ingress(
        posting=posting, commanding=commanding, forwarding=forwarding, clock=clock, finished=finished
    )

    def swap(running: RunningPlan) -> None:
        commanding.want({each.command.source for each in running.plan.routes if each.command})
        ingress.running = running

    reloading = Reloading(
        file,
        keeper=SecretKeeper(open_secret_source(environment or {}), clock=clock),
        buckets=RouteBuckets(clock),
        register=register or _nothing,
        swap=swap,
        environment=environment or {},
        tenant="edge",
        clock=clock,
    )
    await reloading.begin()
    spec = ListenerSpec("ingress", SocketAddress("127.0.0.1", 0, "127.0.0.1:0"), tls, {"": ingress})
    listener = EdgeListener(
        spec, turned_away=lambda status, reason, _: turned_away.append((status, reason)), limits=limits
    )
    await listener.start()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        try:
            yield LocalEdge(
                mailbox, ingress, posting, reloading, recent, metrics, file, listener.port, session, turned_away,
                "https" if tls else "http",
            )  # fmt: skip
        finally:
            await listener.stop()
            await posting.close()
            await commanding.close()
            await forwarding.close()


def signed(
    body: bytes,
    *,
    path: str,
    key: bytes = SECRET,
    nonce: str = "n",
    at: float | None = None,
    method: str = "POST",
) -> dict[str, str]:
    """Headers of the form that covers method, path, time, nonce and body."""
    stamp = str(int(time.time() if at is None else at))
    text = f"v2\n{method}\n{path}\n{stamp}\n{nonce}\n{hashlib.sha256(body).hexdigest()}".encode()
    tag = hmac.new(key, text, hashlib.sha256).hexdigest()
    return {"X-Signature": tag, "X-Timestamp": stamp, "X-Nonce": nonce}


def github(body: bytes, *, delivery: str, key: bytes = SECRET) -> dict[str, str]:
    """Headers as GitHub sends them."""
    tag = hmac.new(key, body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={tag}", "X-GitHub-Delivery": delivery, "X-GitHub-Event": "push"}
