"""Finds loopback ports that are still free when the process they are for begins to listen.

Never from the range out of which the system gives ports to outgoing connections: one of those can take a port between
the moment it was found free and the moment its process listens, or while that process is being restarted.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Where the file is not there: what the systems in use have in common.
_USUAL_FIRST: Final = 32768
_LOWEST: Final = 10240
# Two that are handed out by one process never meet, whether or not anybody listens on the first yet.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """`count` different ports, in no order; this process is given none of them again."""
    found: list[int] = []
    for port in _candidates():
        if len(found) == count:
            return found
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    raise OSError(f"Fewer than {count} free ports are left on 127.0.0.1.")


def _candidates() -> Iterator[int]:
    ports = range(_LOWEST, max(_first_ephemeral(), _LOWEST + 4096))
    # From anywhere in it: another test run on this machine looks at the same time.
    begin = secrets.randbelow(len(ports))
    yield from ports[begin:]
    yield from ports[:begin]


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
