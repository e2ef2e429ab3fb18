"""The ports of a second mesh on one machine: one number, from which every service's port follows.

Never changes the host that a service listens on.
"""

from __future__ import annotations

from typing import Final

from snavio.config import MeshSettings
from snavio.config.safety import is_loopback
from snavio.launch.processes import SERVICES

ENROLMENT: Final = 10
"""The enrolment server is so far above Signer, as without a base."""
HTTPS: Final = 42
"""The gateway's HTTPS above the base, as without one."""
LEAST: Final = 1024
FIRST_HEALTH: Final = 60
"""The first service's health port above the base, as without one."""
MOST: Final = 65_535 - FIRST_HEALTH - len(SERVICES)


def on_ports(mesh: MeshSettings, base: int) -> tuple[MeshSettings, dict[str, str]]:
    """`mesh` with its services on the ports from `base` on, in the order of the defaults; and the variables that tell
    its processes."""
    places = sorted(SERVICES, key=lambda name: str(MeshSettings.model_fields[name].default))
    addresses = {
        name: f"{str(getattr(mesh, name)).rpartition(':')[0]}:{base + place}"
        for place, name in enumerate(places)
    }
    addresses["https"] = f"{mesh.https.rpartition(':')[0]}:{base + HTTPS}"
    for place, name in enumerate(places):
        chosen = getattr(mesh, f"{name}_health")
        if chosen is not None:
            # On loopback it follows from the service's port by itself.
            host, _, _ = chosen.rpartition(":")
            addresses[f"{name}_health"] = (
                "" if is_loopback(chosen) else f"{host}:{base + FIRST_HEALTH + place}"
            )
    host, _, port = addresses["signer"].rpartition(":")
    variables = {f"SNAVIO_MESH__{name.upper()}": address for name, address in addresses.items()}
    variables["SNAVIO_SIGNER__ENROL_LISTEN"] = f"{host}:{int(port) + ENROLMENT}"
    updated = {name: address or None for name, address in addresses.items()}
    return mesh.model_copy(update=updated), variables
