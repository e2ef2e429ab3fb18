"""The permitted imports between packages. The tables are the architecture; the rest reads imports and looks them up."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import services
from snavio.config.sections import SERVICES

ROOT = Path(__file__).resolve().parents[2]
SCREEN_LINES = 130
"""A composition that is longer says more than what is special about its service."""

# Beside itself, each layer may import these of ours and nothing else. Innermost first; the first row that fits a
# module is its row. Every package and module of the library has one.
BASE = [
    "snavio.errors",
    "snavio.clock",
    "snavio.tracebacks",
    "snavio.tasks",
    "snavio.durable_files",
    "snavio.host.shares",
    "snavio.host.waiting_shares",
    "snavio.host.background",
    "snavio.host.periodic",
    "snavio.host.store_worker",
    "snavio.host.store_readers",
]
WIRE = ["snavio.native", "snavio.v1"]
RPC = [*BASE, *WIRE, "snavio.domain", "snavio.pki", "snavio.ports", "snavio.rpc"]
MESH = [*RPC, "snavio.hop", "snavio.replication", "snavio.signed", "snavio.config", "snavio.telemetry"]
CLIENTS = [*MESH, "snavio.sdk", "snavio.admin"]
LAYERS = {
    "snavio.errors": [],
    "snavio.clock": [],
    "snavio.tracebacks": [],
    "snavio.imports": ["snavio.extras"],
    "snavio.extras": ["snavio.errors"],
    "snavio.tasks": ["snavio.tracebacks"],
    "snavio.durable_files": [],
    "snavio.host.shares": ["snavio.errors"],
    "snavio.host.waiting_shares": ["snavio.host.shares"],
    "snavio.host.background": ["snavio.errors", "snavio.clock", "snavio.tracebacks"],
    "snavio.host.periodic": ["snavio.errors", "snavio.tasks", "snavio.host.background"],
    "snavio.host.store_worker": ["snavio.errors", "snavio.host.shares"],
    "snavio.host.store_readers": [*BASE],
    "snavio.host.introspection": [*RPC],
    "snavio.host.joining": [*RPC, "snavio.config", "snavio.sdk.enrolment"],
    "snavio.host.parts": [*BASE],
    "snavio.host": [*MESH, "snavio.extras", "snavio.observe", "snavio.wiring"],
    "snavio._native": [],
    "snavio.native": ["snavio._native"],
    "snavio.v1": [],
    "snavio.domain": [*BASE],
    "snavio.pki": [*BASE, "snavio.domain"],
    "snavio.edge": ["snavio.errors", "snavio.domain"],
    "snavio.ports": [*BASE, "snavio.domain", "snavio.native"],
    "snavio.adapters": [*BASE, *WIRE, "snavio.domain", "snavio.ports", "snavio.edge"],
    "snavio.rpc": [*RPC],
    "snavio.hop": [*RPC],
    "snavio.http": [*RPC, "snavio.config"],
    "snavio.egress": ["snavio.errors", "snavio.host.background", "snavio.host.shares"],
    "snavio.replication": [*RPC],
    "snavio.signed": [*RPC],
    "snavio.config": ["snavio.errors", "snavio.domain", "snavio.host.shares"],
    "snavio.telemetry": [
        *RPC,
        "snavio.signed",
        "snavio.config",
        "snavio.host.introspection",
    ],
    "snavio.observe": [*MESH, "snavio.host.introspection"],
    "snavio.wiring": [*MESH, "snavio.adapters", "snavio.edge"],
    "snavio.sdk": [*RPC, "snavio.hop", "snavio.signed"],
    "snavio.admin": [*RPC, "snavio.replication", "snavio.sdk"],
    "snavio.audit": [*CLIENTS],
    "snavio.launch": [*CLIENTS, "snavio.adapters"],
    "snavio.cli": [
        *CLIENTS,
        "snavio.edge",
        "snavio.extras",
        "snavio.host",
        "snavio.audit",
        "snavio.launch",
        "snavio.wiring",
    ],
    "snavio": [],
}


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def allowed(importer: str, imported: str) -> bool:
    """True if module `importer` may import `imported`."""
    if within(importer, "spark"):
        return within(imported, "spark", "pyspark") or imported.partition(".")[0] in sys.stdlib_module_names
    if within(imported, "spark"):
        return False
    if within(imported, "services"):  # Its own package and no other; the library, none.
        return within(imported, ".".join(importer.split(".")[:2])) and within(importer, "services")
    if within(importer, "services") and within(imported, "snavio.adapters"):
        return False  # Only wiring chooses adapters.
    if within(imported, "snavio._native"):
        return importer == "snavio.native"
    layer = next((layer for layer in LAYERS if within(importer, layer)), None)
    return layer is None or not within(imported, "snavio") or within(imported, layer, *LAYERS[layer])


def imports(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Full names of a module's imports, wherever in its text they are."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = (
                module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            )
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_every_package_has_a_row_of_its_own() -> None:
    names = {f"snavio.{each.stem}" for each in (ROOT / "snavio").iterdir() if each.suffix in ("", ".py")}
    assert names - {"snavio.__init__", "snavio.__pycache__"} - set(LAYERS) == set()


def test_imports_look_inward_only() -> None:
    faults = []
    for package in ("snavio", "services", "spark"):
        for file in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if within(name, "snavio.v1"):
                continue  # Generated.
            found = imports(file.read_text(), name, is_package=file.stem == "__init__")
            faults += [f"{name} imports {imported}" for imported in found if not allowed(name, imported)]
    assert faults == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("snavio.domain.acl", "from snavio.ports import queue"),
        ("snavio.domain.acl", "from ..rpc import server"),
        ("snavio.ports.queue", "import snavio.adapters.embedded"),
        ("snavio.adapters.redis.nonces", "from snavio import wiring"),
        ("services.mailbox.app", "from snavio.adapters.embedded import sqlite"),
        ("snavio.rpc.server", "from snavio.adapters import embedded"),
        ("snavio.sdk.producer", "from snavio.adapters import redis"),
        ("snavio.config", "from services.shield import settings"),
        ("snavio.cli.up", "import spark.session"),
        ("snavio.wiring", "def late():\n    from snavio._native import uuid7"),
        ("services.shield.app", "from services.fast import dispatch"),
        ("services.shield.app", "from services import fast"),
        ("services.shield.app", "from snavio import _native"),
        ("services.relay.app", "import spark"),
        ("spark.jobs.detect_abuse", "from snavio.domain import verdict"),
        ("spark.jobs.detect_abuse", "import grpc"),
    ],
)
def test_an_outward_import_is_noticed(importer: str, line: str) -> None:
    assert not all(allowed(importer, imported) for imported in imports(line, importer, is_package=False))


def test_services_was_imported_from_this_tree() -> None:
    # A foreign top-level package of that name in site-packages would shadow ours.
    assert Path(services.__file__ or "").resolve().parent == ROOT / "services"


def test_each_service_is_composed_on_one_screen() -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for file in (ROOT / "services").glob("*/app.py")
    }
    assert lengths.keys() == {f"services/{name}/app.py" for name in SERVICES}
    assert {file: length for file, length in lengths.items() if length > SCREEN_LINES} == {}
