"""Finds loopback ports that are still free when the process they are for begins to listen.

Never from the range out of which the system gives ports to outgoing connections: one of those can take a port between
the moment it was found free and the moment its process listens, or while that process is being restarted.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

if sys.platform != "win32":  # Two processes that look at the same moment may meet there.
    import fcntl

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Where the file is not there: what the systems in use have in common.
_USUAL_FIRST: Final = 32768
_LOWEST: Final = 10240
# Two ports from one process are never the same, even while no server listens on the first yet.
_given: set[int] = set()
_claims: dict[int, int] = {}
"""Descriptor of the file of claims, by the process that opened it: a fork must not count as the holder."""


def free_ports(count: int) -> list[int]:
    """`count` different ports, in no order; none is given again as long as this process lives."""
    found: list[int] = []
    for port in _candidates():
        if port not in _given and _claim(port) and _is_free(port):
            _given.add(port)
            found.append(port)
            if len(found) == count:
                return found
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


def _claim(port: int) -> bool:
    """True if no other living process of this user was given `port`.

    A lock on the byte at that offset of one file for all: it needs one descriptor for any number of ports, and the
    kernel lets it go however its process ends.
    """
    if sys.platform == "win32":
        return True
    claims = _claims.get(os.getpid())
    if claims is None:
        claims = _claims[os.getpid()] = _open_claims()
    if claims < 0:
        return True
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _open_claims() -> int:
    if sys.platform == "win32":
        return -1
    path = Path(tempfile.gettempdir()) / f"snavio-ports-{os.getuid()}"
    try:
        # Never through a link that another user placed there. Never closed: closing lets every lock go.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
