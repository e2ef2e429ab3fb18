"""The demo tenant's producer and consumer, for commands that send and receive as it does.

Never leaves a received command without an acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snavio.config import MeshSettings
from snavio.launch.demo_tenant import CONSUMER, PRODUCER, TENANT, folder_name
from snavio.sdk import Consumer, Producer

RECEIVE_SECONDS = 30.0


def producer(mesh: MeshSettings) -> Producer:
    """The service that may send."""
    return Producer(
        shield=mesh.shield,
        signer=mesh.signer,
        certificates=mesh.certificates(folder_name(PRODUCER)),
        trust_domain=mesh.trust_domain,
    )


async def drain(
    mesh: MeshSettings, target: str, *, whole: Callable[[set[str]], bool], quiet_s: float = RECEIVE_SECONDS
) -> set[str]:
    """Receive and acknowledge until `whole` says that the ids are all; the ids.

    At most for RECEIVE_SECONDS, and not once nothing has come for `quiet_s`.
    """
    received: set[str] = set()
    async with Consumer(
        mailbox=mesh.mailbox,
        topic=f"{TENANT}/{target}",
        certificates=mesh.certificates(folder_name(CONSUMER)),
        max_unsettled=8000,
        trust_domain=mesh.trust_domain,
    ) as consumer:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                while not whole(received):
                    async with asyncio.timeout(quiet_s):
                        command = await anext(consumer)
                    received.add(command.command_id)
                    await command.ack()
                await consumer.flush()
        except TimeoutError:
            pass  # The caller sees what is missing.
    return received
