"""The SDK: a Producer that sends commands, a Consumer that receives them, a Mailer for topics
of one's own.

Needs no redis, boto3 or Spark, and never imports a service.
"""

from typing import TYPE_CHECKING, Any

from snavio.sdk.consumer import Consumer
from snavio.sdk.delivery import Command, Settlement
from snavio.sdk.envelope import Envelope
from snavio.sdk.mailer import Mailer, NewMessage, Sent
from snavio.sdk.outcome import FairnessShares, Outcome, Outcomes
from snavio.sdk.producer import Producer
from snavio.sdk.settings import Endpoints

if TYPE_CHECKING:
    from snavio.sdk.bookmark import FileBookmark
    from snavio.sdk.event_stream import EventStream, ReceivedEvents, StreamReset

_LATER = {
    "EventStream": "event_stream",
    "FileBookmark": "bookmark",
    "ReceivedEvents": "event_stream",
    "StreamReset": "event_stream",
}


def __getattr__(name: str) -> Any:
    """Import what reads events when it is asked for: programs that send commands need none of it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"snavio.sdk.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        from snavio.errors import BadRequest

        raise BadRequest(
            f'{error.name} is not installed here: pip install "snavio[events]" brings it.',
            reason="missing-library",
        ) from None


__all__ = [
    "Command",
    "Consumer",
    "Endpoints",
    "Envelope",
    "EventStream",
    "FairnessShares",
    "FileBookmark",
    "Mailer",
    "NewMessage",
    "Outcome",
    "Outcomes",
    "Producer",
    "ReceivedEvents",
    "Sent",
    "Settlement",
    "StreamReset",
]
