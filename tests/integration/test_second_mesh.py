"""A second mesh on one machine, and a mesh that starts with a registration."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from snavio.launch.free_ports import free_ports
from tests.support.terminal import configured, running, snavio, told

NEEDED = 68
REGISTRATION = """
tenant = "acme"
principals = ["ci"]
service = [{ name = "billing", principals = ["ci"] }]
target = [{ name = "acme-bot" }]
[[route]]
target = "acme-bot"
command = "ping"
[[acl]]
source = "billing"
target = "acme-bot"
command = "ping"
"""


def neighbouring(count: int) -> int:
    """The first of so many free ports in a row, all claimed for this process."""
    given = set(free_ports(8 * count))
    return next(port for port in sorted(given) if all(port + place in given for place in range(count)))


def test_two_meshes_run_beside_each_other_and_one_starts_with_a_registration(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        configured(folder)
    (second / "service.toml").write_text(REGISTRATION)
    base = neighbouring(NEEDED)
    # The same file for both: only the base is different.
    (second / "snavio.toml").write_text((first / "snavio.toml").read_text())
    with running(first), running(second, "--port-base", str(base), "--seed", "service.toml"):
        addresses = orjson.loads((second / ".snavio" / "run.json").read_bytes())["addresses"]
        assert addresses["shield"] == f"127.0.0.1:{base}"
        assert {int(address.rpartition(":")[2]) - base for address in addresses.values()} == {
            *range(8),
            42,
            *range(60, 68),
        }
        assert [
            each["target"] for each in told("target", "ls", "--tenant", "acme", folder=second)["targets"]
        ] == ["acme-bot"]
        assert told("try", "acme/billing", "acme-bot", "ping", folder=second)["passes"]
        assert told("target", "ls", "--tenant", "acme", folder=first)["targets"] == []
        for folder in (first, second):
            sent = told("send", "discord-bot", "notify-user", "--payload", "x", folder=folder)
            assert sent["outcomes"] == {"delivered": 1}


def test_a_seed_with_mistakes_starts_nothing(tmp_path: Path) -> None:
    configured(tmp_path)
    (tmp_path / "service.toml").write_text('tenant = "acme"\nservise = []\n')
    ran = snavio("up", "--seed", "service.toml", folder=tmp_path)
    assert (ran.returncode, "did you mean 'service'?" in ran.stderr) == (2, True)
    assert not (tmp_path / ".snavio").exists()


@pytest.mark.parametrize("base", ["80", "65530", "high"])
def test_a_base_without_room_for_every_port_is_refused(tmp_path: Path, base: str) -> None:
    assert snavio("up", "--port-base", base, folder=tmp_path).returncode == 2
