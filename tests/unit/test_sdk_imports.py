"""`import snavio.sdk` loads the client side and nothing else, and needs nothing that a plain install lacks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from snavio.extras import EXTRA_OF, MESH_MODULES, install_hint
from tools.requirements import requirements

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

LOADED = {
    "snavio": "_native clock durable_files errors native pki tasks tracebacks",
    "snavio.domain": "caveat chunks identity lineage message stream varint verdict",
    "snavio.hop": "client client_stream connection in_flight instance_names room_waiters send_queue write_queue",
    "snavio.host": "background periodic",
    "snavio.ports": "queue",
    "snavio.rpc": "capability capability_request channel connection_options credentials limits proto_message renewal"
    " status",
    "snavio.sdk": "ack_buffer batch_submitter certificate consumer delivery envelope key_poller keyring leases lifetime"
    " mailbox_channel mailer message_source outcome pending_sends principal producer retry retry_forever settings"
    " signing",
    "snavio.v1": "batch_pb2 mailbox_pb2 signer_pb2",
}
"""Modules by package. A line that is added here is paid for by every program that sends a command."""
READ_EVENTS = ("snavio.sdk.event_stream", "snavio.sdk.own_events")
"""Modules that need the extra `events`, and are imported when somebody asks for what is in them."""
SERVER_SIDE = (
    "services",
    "spark",
    "snavio.adapters",
    "snavio.audit",
    "snavio.cli",
    "snavio.config",
    "snavio.launch",
    "snavio.replication",
    "snavio.rpc.auth_interceptor",
    "snavio.rpc.authorisation",
    "snavio.rpc.call",
    "snavio.rpc.certificate_gate",
    "snavio.rpc.enrolment_server",
    "snavio.rpc.methods",
    "snavio.rpc.open_calls",
    "snavio.rpc.server",
    "snavio.signed",
    "snavio.telemetry",
    "snavio.wiring",
    *EXTRA_OF,
)
PROGRAM = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv[2].split())
sys.meta_path.insert(0, Absent())
for module in sys.argv[1].split():
    importlib.import_module(module)
print(*sorted(sys.modules))
"""


def brought_by(*extras: str) -> set[str]:
    """Distributions that `pip install snavio[extras]` brings: its dependencies, and theirs."""
    found: set[str] = set()
    waiting = requirements(PROJECT, extras)
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += metadata.distribution(name).requires or []
    return found


def absent_modules() -> set[str]:
    """Top-level modules that are installed here and would not be there in a plain install."""
    plain = {*brought_by(), "snavio", "setuptools"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not plain & {canonicalize_name(owner) for owner in owners}
    }


def loaded_by(*modules: str) -> set[str]:
    """Modules of a fresh interpreter of a plain install after it has imported `modules`."""
    words = [sys.executable, "-c", PROGRAM, " ".join(modules), " ".join(absent_modules())]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_of_the_sdk_loads_the_modules_of_this_list() -> None:
    expected = {*LOADED} | {
        f"{package}.{name}" for package, names in LOADED.items() for name in names.split()
    }
    loaded = loaded_by("snavio.sdk")
    assert {name for name in loaded if name.partition(".")[0] == "snavio"} == expected
    assert [name for name in loaded if any(f"{name}.".startswith(f"{each}.") for each in SERVER_SIDE)] == []


def test_every_module_that_must_stay_out_exists_under_that_name() -> None:
    # A module that is renamed would otherwise be let in under its new name.
    assert [name for name in SERVER_SIDE if importlib.util.find_spec(name) is None] == []


def test_every_module_for_clients_imports_in_a_plain_install() -> None:
    modules = [
        f"snavio.{package}.{file.stem}"
        for package in ("sdk", "admin")
        for file in sorted((ROOT / "snavio" / package).glob("[!_]*.py"))
    ]
    loaded = loaded_by(*(module for module in modules if module not in READ_EVENTS))
    assert {name for name in loaded if name.startswith(("snavio.rpc.server", "snavio.rpc.auth"))} == set()
    assert not loaded & EXTRA_OF.keys()


def test_reading_events_without_its_libraries_says_what_to_install() -> None:
    program = (
        f"{PROGRAM}\nfrom snavio.errors import BadRequest\ntry:\n    from snavio.sdk import EventStream\n"
    )
    program += "except BadRequest as error:\n    print(error)"
    words = [sys.executable, "-c", program, "", " ".join(absent_modules())]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert 'pip install "snavio[events]" brings it.' in run.stdout, run.stderr


def test_every_extra_module_is_brought_by_its_extra() -> None:
    owners = metadata.packages_distributions()
    for module, extra in EXTRA_OF.items():
        assert brought_by(extra) & {canonicalize_name(owner) for owner in owners[module]}, (module, extra)


def test_a_module_that_an_extra_brings_is_one_sentence() -> None:
    missing = ModuleNotFoundError("No module named 'redis.asyncio'", name="redis.asyncio")
    assert install_hint(missing) == 'redis is not installed here: pip install "snavio[redis]" brings it.'
    assert '"snavio[mesh]"' in (install_hint(ModuleNotFoundError("", name="typer")) or "")
    assert install_hint(ModuleNotFoundError("No module named 'nothing'", name="nothing")) is None
    assert install_hint(ImportError("stale", name="apsw")) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["version"], "snavio[cli]"),
        (["up", "--json"], "snavio[mesh]"),
    ],
)
def test_command_line_of_a_plain_install_says_what_to_install(arguments: list[str], says: str) -> None:
    program = f"{PROGRAM}\nfrom snavio.cli import main\nsys.argv = ['snavio', *sys.argv[3:]]\nmain()"
    words = [sys.executable, "-c", program, "", " ".join(absent_modules()), *arguments]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stderr.count("\n") == 1
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "service", ["fast", "gateway", "mailbox", "registry", "relay", "shield", "signer", "slow"]
)
def test_service_of_a_plain_install_says_what_to_install(service: str) -> None:
    program = f"{PROGRAM}\nimport runpy\nrunpy.run_module('services.{service}', run_name='__main__')"
    words = [sys.executable, "-c", program, "", " ".join(absent_modules())]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2, run.stderr
    assert run.stderr.endswith(' is not installed here: pip install "snavio[mesh]" brings it.\n')
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["up"], ["serve", "mailbox"], ["demo"]])
def test_command_line_without_the_services_says_what_to_install(tmp_path: Path, arguments: list[str]) -> None:
    absent = [module for module in MESH_MODULES if EXTRA_OF[module] == "mesh"]
    program = f"{PROGRAM}\nfrom snavio.cli import main\nsys.argv = ['snavio', *sys.argv[3:]]\nmain()"
    words = [sys.executable, "-c", program, "", " ".join(absent), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 2, run.stderr
    assert 'pip install "snavio[mesh]"' in run.stderr
    assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
