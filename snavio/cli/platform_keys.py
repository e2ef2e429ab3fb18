"""The platform keys of Signer, for commands that check what the platform has signed.

Never keeps a key from one command to the next: one that was withdrawn meanwhile would still be believed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snavio.launch.installation import Installation
    from snavio.signed.platform_keys import PlatformKeys


@asynccontextmanager
async def platform_keys(installation: Installation) -> AsyncIterator[PlatformKeys]:
    """A client of Signer's platform keys, closed at the end."""
    from snavio.rpc.channel import MeshChannel
    from snavio.rpc.credentials import CertificateFiles
    from snavio.signed.platform_keys import PlatformKeys

    signer = MeshChannel(
        installation.mesh.signer,
        files=CertificateFiles.in_folder(installation.identity),
        service="signer",
        trust_domain=installation.mesh.trust_domain,
    )
    try:
        yield PlatformKeys(signer)
    finally:
        await signer.close()
