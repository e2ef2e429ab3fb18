"""The SDK: a Producer that sends commands, a Consumer that receives them, a Mailer for topics
of one's own.

Needs no redis, boto3 or Spark, and never imports a service.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snavio.sdk.bookmark import FileBookmark
    from snavio.sdk.consumer import Consumer
    from snavio.sdk.delivery import Command, Settlement
    from snavio.sdk.envelope import Envelope
    from snavio.sdk.event_stream import EventStream, ReceivedEvents, StreamReset
    from snavio.sdk.mailer import Mailer, NewMessage, Sent
    from snavio.sdk.outcome import FairnessShares, Outcome, Outcomes
    from snavio.sdk.producer import Producer
    from snavio.sdk.settings import Endpoints

_MODULES = {
    "bookmark": ("FileBookmark",),
    "consumer": ("Consumer",),
    "delivery": ("Command", "Settlement"),
    "envelope": ("Envelope",),
    "event_stream": ("EventStream", "ReceivedEvents", "StreamReset"),
    "mailer": ("Mailer", "NewMessage", "Sent"),
    "outcome": ("FairnessShares", "Outcome", "Outcomes"),
    "producer": ("Producer",),
    "settings": ("Endpoints",),
}
_LATER = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: programs that send commands need nothing that reads events, and a command
    line that asks the directory needs neither.
    """
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        found = getattr(import_module(f"snavio.sdk.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if _LATER[name] not in ("bookmark", "event_stream"):
            raise
        from snavio.errors import BadRequest

        raise BadRequest(
            f'{error.name} is not installed here: pip install "snavio[events]" brings it.',
            reason="missing-library",
        ) from None
    globals()[name] = found
    return found


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
