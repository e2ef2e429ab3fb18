"""Asks a service of this machine whether it is ready, as a container's health check does: exit code 0 or 1.

Never waits longer than the check may take, and needs no certificate: it asks the health port on loopback.
"""

from __future__ import annotations

import http.client
import sys
from typing import Final

from snavio.config import MeshSettings, load
from snavio.config.sections import SERVICES, split_address
from snavio.errors import SnavioError

WITHIN_S: Final = 2.0
USAGE: Final = f"usage: python -m snavio.launch.ready <{'|'.join(SERVICES)}>\n"


def main(words: list[str]) -> int:
    """0 if the service is ready, 1 if it is not or does not answer, 2 for a mistake."""
    if len(words) != 1 or words[0] not in SERVICES:
        sys.stderr.write(USAGE)
        return 2
    try:
        mesh, _ = load(MeshSettings, "mesh", config=None)
    except SnavioError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    address = mesh.health_address(words[0])
    if address is None:
        sys.stderr.write("[mesh] health is off.\n")
        return 2
    host, port = split_address(address)
    asked = http.client.HTTPConnection(host, port, timeout=WITHIN_S)
    try:
        asked.request("GET", "/readyz")
        answer = asked.getresponse()
        sys.stdout.write(answer.read(4096).decode("utf-8", "replace") + "\n")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"{words[0]} does not answer at {address}: {error}\n")
        return 1
    finally:
        asked.close()
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
