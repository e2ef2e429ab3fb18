"""Ports that are handed out stay free until their process listens."""

from __future__ import annotations

import socket
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
