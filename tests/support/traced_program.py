"""A tenant's program that uses OpenTelemetry as its manual says: it sends some commands, and receives them.

python -m tests.support.traced_program <shield> <signer> <mailbox> <certs> <count> <target> …
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from snavio.sdk import Consumer, Producer


async def main(shield: str, signer: str, mailbox: str, certs: str, count: str, *targets: str) -> None:
    folder = Path(certs)
    tracer = trace.get_tracer("program")
    async with Producer(shield=shield, signer=signer, certificates=folder / "acme-billing") as producer:
        for _ in range(int(count)):
            for target in targets:
                with tracer.start_as_current_span("order") as span:
                    outcome = await producer.send(target, "notify-user", b"x")
                    assert outcome.delivered, outcome
                    sys.stdout.write(
                        f"{target} {span.get_span_context().trace_id:032x} {outcome.command_id}\n"
                    )
    for target in targets:
        async with Consumer(
            mailbox=mailbox, signer=signer, topic=f"acme/{target}", certificates=folder / "acme-bot"
        ) as consumer:
            left = int(count)
            async for command in consumer:
                await command.ack()
                left -= 1
                if not left:
                    break


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "program"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    asyncio.run(main(*sys.argv[1:]))
    provider.shutdown()
