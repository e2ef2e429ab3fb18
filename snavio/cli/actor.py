"""Whose certificate a command acts under, and which topics that makes its own.

Never takes the tenant from what was typed: it stands in the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.config import MeshSettings
from snavio.domain.identity import Identity, Kind
from snavio.errors import BadRequest, StateError

PROBES: Final = 4


@dataclass(frozen=True, slots=True)
class Actor:
    """A service with its certificate folder."""

    identity: Identity
    certificates: Path
    not_after_unix_ns: int

    def topic(self, target: str) -> str:
        """The mailbox topic of a target that this tenant owns."""
        return f"{self.identity.tenant}/{target}"


def act_as(name: str, mesh: MeshSettings, *, now_unix_ns: int) -> Actor:
    """The service that `name` means; a sentence when there is none, or when its certificate has ended."""
    folder = _folder(name, mesh)
    actor = read_actor(folder, trust_domain=mesh.trust_domain)
    if actor.identity.kind is not Kind.SERVICE:
        raise BadRequest(f"{folder} is the certificate of {actor.identity}, which is not a service.")
    if actor.not_after_unix_ns <= now_unix_ns:
        raise StateError(
            f"The certificate in {folder} has ended: `snavio up` renews those of the demo tenant while it runs."
        )
    return actor


async def require_serving(service: str, mesh: MeshSettings, who: Actor) -> None:
    """Unavailable at once when `service` is away; the SDK would try again for longer than a person watches."""
    from snavio.errors import Unavailable
    from snavio.launch.probes import Probes

    async with Probes(mesh, certificates=who.certificates) as probes:
        # A machine that is busy may need longer than one short deadline; one that refuses says so at once.
        for _ in range(PROBES):
            if await probes.serving(service):
                return
    raise Unavailable(f"{service.capitalize()} does not answer at {getattr(mesh, service)}.")


def read_actor(folder: Path, *, trust_domain: str) -> Actor:
    """Whose certificate lies in a folder; StateError when it is none."""
    from cryptography import x509

    from snavio.domain.identity import parse_identity
    from snavio.pki import CERTIFICATE_FILE, not_after_unix_ns

    try:
        leaf = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (spiffe_id,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (OSError, ValueError, x509.ExtensionNotFound):
        raise StateError(f"{folder} holds no certificate of ours.") from None
    return Actor(parse_identity(spiffe_id, trust_domain=trust_domain), folder, not_after_unix_ns(leaf))


def _folder(name: str, mesh: MeshSettings) -> Path:
    from snavio.launch.demo_tenant import folder_name

    known = mesh.certificates(name.replace("/", "-") if "/" in name else folder_name(name))
    for folder in (known, Path(name)):
        if (folder / "cert.pem").is_file():
            return folder
    found = sorted(path.name for path in mesh.certificates("x").parent.glob("*-*") if path.is_dir())
    services = [path for path in found if not path.startswith(("operator-", "job-"))]
    have = f"there are {', '.join(services)}" if services else "none were made yet; `snavio up` makes two"
    raise BadRequest(
        f"No certificate folder for {name!r} in {mesh.certificates('x').parent}: {have}.",
        reason="no-certificate",
    )
