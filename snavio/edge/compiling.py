"""Compiles a Hookaidofile: text in, a frozen plan or every mistake out.

Never gives a plan with a mistake in it, and never one of a candidate whose placeholders were left as they are.
"""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from snavio.edge.compiling_deliveries import compile_delivery_defaults
from snavio.edge.compiling_listeners import (
    bound_metrics,
    check_sockets,
    compile_admin,
    compile_ingress,
    compile_pull,
)
from snavio.edge.compiling_policies import (
    block_of,
    compile_backpressure,
    compile_egress,
    compile_matchers,
    compile_observability,
    compile_publishing,
    compile_secrets,
    compile_trends,
    compile_waiting,
)
from snavio.edge.compiling_routes import RouteCompiler, RouteSource, RouteSurroundings, warn_of_mtls
from snavio.edge.findings import BadHookaidofile, Finding, FindingLog
from snavio.edge.formatting import formatted
from snavio.edge.language import RUNNING, EdgePart
from snavio.edge.parsing import parse
from snavio.edge.placeholders import Expander, Surroundings, TextTrust
from snavio.edge.plan import DormantPart, EdgePlan, RouteChannel, RouteMode
from snavio.edge.reading import ReadBlock, TreeReader
from snavio.edge.tree import DirectiveBlock, Statement

MOST_MESSAGE = 1 << 20
"""Bytes of one stored message; a body that does not fit after compression is answered 413."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """The outcome for one text."""

    plan: EdgePlan | None
    mistakes: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    dormant: tuple[DormantPart, ...] = ()
    left_out: int = 0
    """FindingLog beyond the most that are kept."""

    @property
    def ok(self) -> bool:
        """True without mistakes."""
        return not self.mistakes

    def usable(self, name: str = "Hookaidofile") -> EdgePlan:
        """The plan, or BadHookaidofile."""
        if self.plan is None:
            raise BadHookaidofile(self.mistakes or self.warnings, name=name, left_out=self.left_out)
        return self.plan


def compile_text(
    data: bytes,
    *,
    surroundings: Surroundings | None = None,
    trust: TextTrust = TextTrust.TRUSTED,
    running: frozenset[EdgePart] = RUNNING,
) -> Compilation:
    """Compile a file. A candidate's placeholders are checked for nothing and expanded never."""
    with _collector_at_rest():
        return _compiled(data, surroundings or Surroundings(), trust, running)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector from walking a tree while it grows: almost half of the time went there.

    Nothing of it is garbage before the end, and a file is bounded.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _compiled(
    data: bytes, surroundings: Surroundings, trust: TextTrust, running: frozenset[EdgePart]
) -> Compilation:
    findings = FindingLog()
    tree = parse(data, findings)
    if tree is None:
        return Compilation(None, findings.mistakes, findings.warnings)
    reader = TreeReader(Expander(trust, surroundings, findings), findings)
    file = reader.file(tree)
    dormant = dormant_parts(tree, running)
    plan = _plan(file, tree, findings, dormant)
    if reader.opaque:
        findings.warning(
            reader.opaque[0],
            "not-expanded",
            f"{len(reader.opaque)} values hold placeholders; in a candidate these are not expanded and not checked.",
        )
    usable = plan if not findings.mistakes and not reader.opaque else None
    return Compilation(usable, findings.mistakes, findings.warnings, dormant, findings.left_out)


def fingerprint(tree: DirectiveBlock) -> str:
    """SHA-256 of the formatted file."""
    return "sha256:" + hashlib.sha256(formatted(tree).encode()).hexdigest()


def dormant_parts(tree: DirectiveBlock, running: frozenset[EdgePart]) -> tuple[DormantPart, ...]:
    """The parts that the file uses and this version does not carry out."""
    counts: Counter[EdgePart] = Counter()
    lines: dict[EdgePart, int] = {}
    for each in _statements(tree):
        counts[each.row.part] += 1
        lines.setdefault(each.row.part, each.at.line)
    return tuple(
        DormantPart(part, counts[part], lines[part])
        for part in EdgePart
        if counts[part] and part not in running
    )


def _statements(block: DirectiveBlock) -> Iterator[Statement]:
    for each in block.statements:
        yield each
        if each.block is not None:
            yield from _statements(each.block)


def _plan(
    file: ReadBlock, tree: DirectiveBlock, findings: FindingLog, dormant: tuple[DormantPart, ...]
) -> EdgePlan:
    sources = _sources(file)
    defaults = block_of(file, "defaults", "defaults")
    egress = compile_egress(defaults)
    max_body = defaults.value("max_body")
    pull = compile_pull(file, findings, wanted=any(each.block.one("pull") for each in sources))
    secrets, matchers = compile_secrets(file, findings), compile_matchers(file, findings)
    deliveries = compile_delivery_defaults(
        block_of(defaults, "deliver", "default_deliver"), findings, https_only=bool(egress.https_only)
    )
    around = RouteSurroundings(
        secrets=secrets,
        matchers=matchers,
        deliveries=deliveries,
        max_body=max_body,
        max_headers=defaults.value("max_headers"),
        pull_has_token=bool(pull and pull[1].has_token),
    )
    routes = RouteCompiler(around, findings).compile(sources)
    ingress, bound = compile_ingress(file, findings)
    warn_of_mtls(sources, ingress, findings)
    admin = compile_admin(file, findings)
    observability = compile_observability(file, findings)
    inbound = [(each.path, each.at) for each in sources if each.channel is RouteChannel.INBOUND]
    listeners = [bound] if inbound or file.one("ingress") else []
    listeners += [each[1] for each in (pull, admin) if each is not None]
    metrics = bound_metrics(observability.metrics, file)
    check_sockets([*listeners, *([metrics] if metrics else [])], inbound, findings)
    if any(
        each.max_body and each.max_body > MOST_MESSAGE
        for each in routes
        if each.mode is not RouteMode.COMMAND
    ):
        findings.warning(
            defaults.place("max_body"),
            "body-over-message",
            "A body that does not fit into a message of 1 MiB, compressed, is answered 413 before any 202, although "
            "`max_body` allows it.",
        )
    return EdgePlan(
        tenant=file.value("tenant"),
        ingress=ingress,
        pull_api=pull[0] if pull else None,
        admin_api=admin[0] if admin else None,
        routes=routes,
        secrets=tuple(secrets.values()),
        matchers=tuple(matchers.items()),
        waiting=compile_waiting(file, findings, in_memory=_in_memory(sources, findings)),
        egress=egress,
        publish_policy=compile_publishing(defaults),
        trends=compile_trends(defaults, findings),
        backpressure=compile_backpressure(defaults),
        observability=observability,
        dormant=dormant,
        fingerprint=fingerprint(tree),
    )


def _sources(file: ReadBlock) -> list[RouteSource]:
    """Every route of the file, in its order, whatever its channel is written like."""
    found: list[RouteSource] = []
    for channel in RouteChannel:
        keys = [f"{channel.value} /"] + (["/"] if channel is RouteChannel.INBOUND else [])
        directives = [each for key in keys for each in file.all(key)]
        directives += [
            each for wrapper in file.all(channel.value) if wrapper.block for each in wrapper.block.all("/")
        ]
        found += [
            RouteSource(each.values[0], channel, each.at, each.block)
            for each in directives
            if each.block is not None and each.values and each.values[0] is not None
        ]
    return sorted(found, key=lambda each: each.at)


def _in_memory(sources: list[RouteSource], findings: FindingLog) -> bool:
    """True when the file's one backend is memory."""
    memory = [each for each in sources if block_of(each.block, "queue", "queue").value("backend") == "memory"]
    if not memory:
        return False
    at = memory[0].block.place("queue")
    if len(memory) < len(sources):
        findings.mistake(
            at,
            "mixed-backends",
            "All routes have one backend: `queue memory` stands in each of them, or in none.",
        )
    findings.warning(
        at, "memory-backend", "`queue memory` loses every message that waits when the edge ends."
    )
    return True
