"""Ports that are handed out stay free until their process listens."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.launch import free_ports as module
from snavio.launch.free_ports import free_ports


def test_no_port_is_handed_out_twice() -> None:
    found = free_ports(50) + free_ports(50)
    assert len(set(found)) == 100


def test_no_port_is_one_that_the_system_gives_to_outgoing_connections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "ip_local_port_range"
    settings.write_text("20000\t60999\n")
    monkeypatch.setattr(module, "_EPHEMERAL", settings)
    assert all(10240 <= port < 20000 for port in free_ports(50))


def test_a_port_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free, taken = free_ports(2)
    monkeypatch.setattr(module, "_given", set())
    monkeypatch.setattr(module, "_candidates", lambda: iter((taken, free, taken, free)))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [free]


def test_when_none_is_left_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_candidates", lambda: iter(()))
    with pytest.raises(OSError, match="Fewer than 3 free ports"):
        free_ports(3)


HANDING_OUT = """
import sys
from snavio.launch import free_ports as module
module._candidates = lambda: iter(map(int, sys.argv[2:]))
print(*module.free_ports(int(sys.argv[1])), flush=True)
input()
"""


def another(count: int, ports: list[int]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HANDING_OUT, str(count), *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def unclaimed(count: int) -> list[int]:
    """Free ports that were given to no living process."""
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from snavio.launch.free_ports import free_ports; print(*free_ports({count}))",
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return [int(port) for port in told.stdout.split()]


def test_two_processes_that_look_at_the_same_ports_share_none() -> None:
    ports = unclaimed(20)
    both = [another(10, ports) for _ in range(2)]
    try:
        found = [port for one in both if one.stdout for port in one.stdout.readline().split()]
        assert len(found) == len(set(found)) == 20
    finally:
        for one in both:
            one.communicate("\n", timeout=30)


def test_ports_of_a_process_that_was_killed_are_free_again() -> None:
    ports = unclaimed(5)
    first = another(5, ports)
    assert first.stdout is not None
    assert len(first.stdout.readline().split()) == 5
    first.kill()
    first.wait(30)
    second = another(5, ports)
    told, _ = second.communicate("\n", timeout=30)
    assert sorted(map(int, told.split())) == sorted(ports)
