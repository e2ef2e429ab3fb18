"""Settings of one edge process.

Never a secret: certificates and secrets are named by their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

EDGE_SERVICE: Final = "edge"
"""The service of the tenant that stores requests."""
CONTROL_SOCKET: Final = "control.sock"


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Addresses, identity and file."""

    config: Path
    tenant: str
    state: Path
    """Folder of the control socket."""
    certificates: Path
    """Folder that holds a folder `<tenant>-<service>` for each source."""
    principal: Path
    mailbox: str
    signer: str
    shield: str
    registry: str
    trust_domain: str
    watch: bool = False
    pid_file: Path | None = None
    """Taken away at the end; written by whoever became this process."""
    log_level: str = "info"
    start_within_s: float = 30.0

    def service_folder(self, service: str) -> Path:
        """Where the certificate of one of the tenant's services lies."""
        return self.certificates / f"{self.tenant}-{service}"

    @property
    def control(self) -> Path:
        """The socket of `snavio edge try|ls|explain`."""
        return self.state / CONTROL_SOCKET
