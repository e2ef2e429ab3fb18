"""Makes a state folder that tests/fault/test_upgrade.py opens: that of this tree, named after its version.

    make release-fixtures                          tests/vectors/state/<version>.tar.gz, and the wire
    .venv/bin/python tools/make_state_fixture.py [<out.tar.gz>]

For an earlier commit, run it with the tree and the .venv of that commit and name the file. The mesh is killed at the
end, so its write-ahead logs are part of the folder. Ports, logs and snapshots are not.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

if __package__ in (None, ""):  # Run as a file: the tree that it is run in is not on the path yet.
    sys.path.insert(0, str(Path.cwd()))

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.v1 import registry_pb2 as registry
from tests.support.mesh import NAME, SOURCE, TARGET, demo_mesh

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"logs", "snapshots", "snavio.toml", "run.json", "up.lock", "archive"}


def default_out() -> Path:
    """The place that the test looks at, for the version of this tree."""
    version = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text("utf-8"))["package"]["version"]
    return ROOT / "tests" / "vectors" / "state" / f"{version}.tar.gz"


def ours(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The entry without its owner; None for a file that is no state."""
    parts = entry.name.split("/")
    if (len(parts) > 1 and parts[1] in LEFT_OUT) or entry.name.endswith(("-shm", ".lock")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def pack(state: Path, expected: Mapping[str, object], out: Path) -> None:
    """Write the folder, with what a test has to find in it."""
    (state / "expected.json").write_text(json.dumps(expected, indent=1))
    with tarfile.open(out, "w:gz") as tar:
        tar.add(state, "state", filter=ours)


async def main(out: Path) -> None:
    """Run a mesh, send, receive, revoke and rotate, then kill it."""
    with tempfile.TemporaryDirectory() as made:
        state = Path(made) / "state"
        async with demo_mesh(state) as mesh:
            async with mesh.operator() as operator:
                route = registry.Route(
                    target=TARGET,
                    name="limited",
                    profile=registry.PROFILE_LOW,
                    queue_kind=registry.QUEUE_KIND_MAILBOX,
                    limit=registry.Limit(max=1000, interval_seconds=86400),
                )
                await operator._write("PutRoute", registry.PutRouteRequest(route=route))
                await operator.grant(SOURCE, TARGET, "limited")
                await operator.put_route(TARGET, "forbidden")
                await operator.grant(SOURCE, TARGET, "forbidden")
                await operator.revoke(SOURCE, TARGET, "forbidden")
                thief = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.OPERATOR, "thief")
                revoked = await operator.certify(thief, mesh.certificates("operator-thief"))
                await operator.revoke_certificate(revoked, reason="stolen")
                key = await operator.rotate_key(SOURCE)
            await asyncio.sleep(1)
            sent: dict[str, str] = {}
            async with mesh.producer() as producer:
                for number in range(30):
                    name = NAME if number % 3 else "limited"
                    # Some beside their rows, some in the payload log.
                    payload = f"{number:03d}".encode() * (3 if number % 2 else 4000)
                    outcome = await producer.send(TARGET, name, payload)
                    assert outcome.delivered, outcome
                    sent[outcome.command_id] = payload[:3].decode()
            dead: dict[str, str] = {}
            acknowledged: list[str] = []
            async with mesh.consumer() as consumer:
                number = 0
                async for command in consumer:
                    number += 1
                    text = sent.pop(command.command_id)
                    if number <= 4:
                        dead[command.command_id] = text
                        await command.nack(dead=True, reason="poison")
                    else:
                        acknowledged.append(command.command_id)
                        await command.ack(durable=True)
                    if number == 8:
                        break
                await consumer.flush()
            expected = {
                "ready": sent,
                "dead": dead,
                "acknowledged": acknowledged,
                "revoked": revoked,
                "key": key,
            }
            # Nothing is closed in order: what was acknowledged is in the logs.
            mesh.processes.kill_all()
        pack(state, expected, out)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else default_out()))
