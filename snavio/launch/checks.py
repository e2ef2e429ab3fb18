"""Conditions for a mesh to start here: a usable state folder, and free ports.

Never repairs anything: it says, in one sentence, what is wrong and what to do.
"""

from __future__ import annotations

import errno
import socket
import time
from typing import Final

from snavio.config import MeshSettings
from snavio.errors import BadRequest
from snavio.launch.processes import SERVICES

LEFT_BEHIND_SECONDS: Final = 10.0


def taken(address: str) -> str | None:
    """Why nothing can listen on `address` now; None when it is free."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_server(
            (host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ).close()
    except (OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return f"Port {port} is taken by another program"
        return f"{address} is not an address of this machine that can be listened on"
    return None


def check_ports(mesh: MeshSettings, *, patience_s: float = 0.0) -> None:
    """BadRequest with every port that is taken for longer than `patience_s`."""
    end = time.monotonic() + patience_s
    while causes := {
        name: cause for name in (*SERVICES, "https") if (cause := taken(mesh.listens(name))) is not None
    }:
        if time.monotonic() >= end:
            told = "; ".join(f"{cause}, and {name} needs it" for name, cause in causes.items())
            first = next(iter(causes))
            raise BadRequest(
                f"{told}: end what uses it, or give {first if len(causes) == 1 else 'each of them'} another "
                f'address, in snavio.toml under [mesh] with {first} = "127.0.0.1:PORT", or with '
                f"SNAVIO_MESH__{first.upper()}.",
                reason="port-taken",
            )
        time.sleep(0.1)
