"""Brings a file into force: read, compiled, its secrets read, its rules registered, and then the plan is swapped.

Never half of a file: whatever fails before the swap changes nothing, and the one statement that swaps cannot fail.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from services.gateway.edge.buckets import RouteBuckets
from services.gateway.edge.running_plan import RunningPlan, run_plan
from services.gateway.edge.secrets import SecretKeeper, references_of
from snavio.clock import Clock
from snavio.edge.compiling import Compilation, compile_text
from snavio.edge.lexer import MOST_BYTES
from snavio.edge.placeholders import Surroundings
from snavio.edge.plan import EdgePlan
from snavio.errors import BadRequest, SnavioError

MOST_VALUE: Final = 65_536
UNNAMED: Final = "edge"
"""The tenant of a file that names none."""
_log = structlog.get_logger(__name__)

Register = Callable[[EdgePlan], Awaitable[None]]
"""Has the mesh take over what the plan says of its topics; raises what speaks against it, with nothing changed."""


class RestartRequired(BadRequest):
    """The file changes what only a restart brings into force."""

    reason = "restart-required"


@dataclass
class ReloadStatus:
    """The configuration as `/healthz?details=1` tells it."""

    fingerprint: str = ""
    generation: int = 0
    loaded_unix_ns: int = 0
    failed: str = ""
    """Why the last reload changed nothing; empty when it did, or when there was none."""
    restart: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


class Reloading:
    """One file, and the plan of it that is in force."""

    def __init__(
        self,
        path: Path,
        *,
        keeper: SecretKeeper,
        buckets: RouteBuckets,
        register: Register,
        swap: Callable[[RunningPlan], None],
        environment: Mapping[str, str],
        tenant: str,
        clock: Clock,
    ) -> None:
        self._path = path
        self._tenant = tenant
        self._keeper = keeper
        self._buckets = buckets
        self._register = register
        self._swap = swap
        self._environment = environment
        self._clock = clock
        self._turn = asyncio.Lock()
        self._seen: tuple[object, ...] = ()
        self.status = ReloadStatus()
        self.running: RunningPlan | None = None

    async def begin(self, compiled: Compilation | None = None) -> RunningPlan:
        """Bring the file into force for the first time; raises whatever is wrong with it."""
        async with self._turn:
            return await self._load()

    async def reload(self) -> bool:
        """The same again, all or nothing; True when the plan was swapped. Says in the log what came of it."""
        async with self._turn:
            try:
                running = await self._load()
            except RestartRequired as error:
                self._failed("restart-required", str(error))
                _log.warning("config_reloaded_restart_required", changes=list(self.status.restart))
                return False
            except (SnavioError, OSError) as error:
                reason = error.reason if isinstance(error, SnavioError) else "file-unreadable"
                self._failed(reason, str(error))
                _log.error("config_reload_failed", reason=reason, detail=str(error))
                return False
            _log.info(
                "config_reloaded_ok", generation=running.generation, fingerprint=running.plan.fingerprint
            )
            return True

    async def look(self) -> None:
        """Reload when the file is another one than at the last look."""
        stamp = await asyncio.to_thread(_stamp, self._path)
        if stamp and stamp != self._seen:
            await self.reload()
            # Also after a failure: the same mistake is told once.
            self._seen = stamp

    async def _load(self) -> RunningPlan:
        seen = await asyncio.to_thread(_stamp, self._path)
        data = await asyncio.to_thread(_read, self._path)
        compiled = await asyncio.to_thread(
            compile_text, data, surroundings=Surroundings(self._environment, read_value)
        )
        plan = self._ours(compiled.usable(str(self._path)))
        before = self.running
        if before is not None and (changes := restart_changes(before.plan, plan)):
            self.status.restart = changes
            raise RestartRequired(f"Only a restart brings this into force: {', '.join(changes)}.")
        table = await self._keeper.load(references_of(plan))
        await self._register(plan)
        # From here on nothing waits and nothing fails.
        running = run_plan(
            plan,
            secrets=table,
            buckets=self._buckets,
            generation=self.status.generation + 1,
            now_unix_ns=self._clock.unix_ns(),
        )
        self._keeper.use(table)
        self._swap(running)
        self.running = running
        self._seen = seen
        counts = {**self.status.counts}
        counts["ok"] = counts.get("ok", 0) + 1
        self.status = ReloadStatus(
            plan.fingerprint, running.generation, running.loaded_unix_ns, counts=counts
        )
        return running

    def _ours(self, plan: EdgePlan) -> EdgePlan:
        """The plan for our tenant; a file that names none is everybody's."""
        if plan.tenant == self._tenant:
            return plan
        if plan.tenant == UNNAMED:
            return replace(plan, tenant=self._tenant)
        raise RestartRequired(f"The file is of the tenant {plan.tenant}, and this gateway of {self._tenant}.")

    def _failed(self, reason: str, detail: str) -> None:
        self.status.failed = f"{reason}: {detail}"
        self.status.counts[reason] = self.status.counts.get(reason, 0) + 1


def restart_changes(before: EdgePlan, after: EdgePlan) -> tuple[str, ...]:
    """The parts that differ and that a reload cannot change. Whole values are compared, so that none is forgotten."""

    def shape(plan: EdgePlan) -> dict[str, object]:
        pull, admin = plan.pull_api, plan.admin_api
        return {
            "tenant": plan.tenant,
            "ingress listen": plan.ingress.listen,
            "ingress tls": plan.ingress.tls,
            "pull_api listen": (pull.listen, pull.prefix) if pull else None,
            "pull_api tls": pull.tls if pull else None,
            "admin_api listen": (admin.listen, admin.prefix) if admin else None,
            "admin_api tls": admin.tls if admin else None,
            "queue backend": plan.waiting.in_memory,
            "observability": plan.observability,
        }

    old, new = shape(before), shape(after)
    return tuple(name for name, value in new.items() if old[name] != value)


def read_value(path: str) -> str:
    """The text of a small regular file for `{file.PATH}`; a pipe or a device would never end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError
        data = file.read(MOST_VALUE + 1)
    if len(data) > MOST_VALUE:
        raise ValueError
    return data.decode()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _stamp(path: Path) -> tuple[object, ...]:
    """A stamp that changes with the content of the file; empty while it is not there, as between two renames."""
    try:
        found = path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size
    except OSError:
        return ()
