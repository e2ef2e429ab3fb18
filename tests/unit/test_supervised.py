"""No service, and no part of the library that runs in one, starts a task or a thread outside of the one runner."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Programs of people and of tests, clients, and generated code: none of them runs in a service.
ELSEWHERE = ("snavio/cli", "snavio/launch", "snavio/audit", "snavio/sdk", "snavio/v1")
STARTS = {"create_task", "ensure_future", "Thread", "Timer", "ThreadPoolExecutor", "start_new_thread"}
ALLOWED = {
    "snavio/host/background.py": "the runner itself",
    "snavio/host/store_readers.py": "hands every outcome to a future that somebody waits for, and replaces who hangs",
    "snavio/host/store_worker.py": "a pool of one, which hands every outcome to a future that somebody waits for",
    "snavio/host/process.py": "start and stop of the process, waited for; the timer that ends it in any case",
    "snavio/hop/server_stream.py": "waited for by the stream, which ends with its writer",
    "snavio/rpc/health.py": "waits of one watch, ended with it",
    "services/registry/signer/joint_writes.py": "waited for by its caller; when that has gone, its failure is logged",
    "snavio/admin/entries.py": "the next page, waited for when this one was looked at, cancelled when it is not wanted",
    "services/relay/alerts/emails.py": "hands every outcome to a future that is waited for; its sockets have deadlines",
    "services/gateway/pull/app.py": "both halves of one request, waited for in its handler",
    "services/gateway/pull/coalescing.py": "hands every outcome to the futures that are waited for",
    "services/gateway/pull/leases.py": "logs and counts its own failure; leases end by themselves",
    "services/gateway/pull/waiting.py": "hands every outcome to the futures that are waited for",
    "services/mailbox/wire/receive_stream.py": "both halves of one stream, waited for in its handler",
}
"""The reason for each exception: in every case the task is awaited and its failure seen."""


def starts(source: str) -> Iterator[str]:
    """Calls that start a task or a thread; a TaskGroup awaits its own."""
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "TaskGroup" in ast.unparse(item.context_expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            owner = ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
            if name in STARTS and owner not in groups:
                yield f"{node.lineno}: {owner}.{name}"


def files() -> Iterator[tuple[str, str]]:
    for package in ("snavio", "services"):
        for file in sorted((ROOT / package).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if not path.startswith(ELSEWHERE):
                yield path, file.read_text()


def test_background_work_is_started_by_the_runner_alone() -> None:
    found = [f"{path}:{start}" for path, source in files() for start in starts(source) if path not in ALLOWED]
    assert found == [], "use snavio.host.background, or say in ALLOWED who hears of its failure"


def test_every_exception_from_the_rule_is_still_one() -> None:
    sources = dict(files())
    assert [path for path in ALLOWED if path not in sources or not list(starts(sources[path]))] == []


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(run())",
        "asyncio.get_running_loop().create_task(run())",
        "asyncio.ensure_future(run())",
        "threading.Thread(target=run).start()",
        "Thread(target=run).start()",
    ],
)
def test_a_task_or_thread_beside_the_runner_is_noticed(line: str) -> None:
    assert list(starts(f"def begin():\n    {line}\n"))


def test_tasks_of_a_group_are_no_background_work() -> None:
    source = (
        "async def run():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(one())\n"
    )
    assert list(starts(source)) == []
