"""The SDK: a Producer that sends commands, a Consumer that receives them, a Mailer for topics
of one's own.

Needs no redis, boto3 or Spark, and never imports a service.
"""

from snavio.sdk.consumer import Consumer
from snavio.sdk.delivery import Command, Settlement
from snavio.sdk.envelope import Envelope
from snavio.sdk.mailer import Mailer, NewMessage, Sent
from snavio.sdk.outcome import FairnessShares, Outcome, Outcomes
from snavio.sdk.producer import Producer
from snavio.sdk.settings import Endpoints

__all__ = [
    "Command",
    "Consumer",
    "Endpoints",
    "Envelope",
    "FairnessShares",
    "Mailer",
    "NewMessage",
    "Outcome",
    "Outcomes",
    "Producer",
    "Sent",
    "Settlement",
]
