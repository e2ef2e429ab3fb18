"""What a user of Snavio imports: a Producer that sends commands, a Consumer that receives them.

Needs no redis, boto3 or Spark, and never imports a service.
"""

from snavio.sdk.consumer import Consumer
from snavio.sdk.delivery import Command, Settlement
from snavio.sdk.outcome import Outcome, Outcomes
from snavio.sdk.producer import Producer
from snavio.sdk.settings import Endpoints

__all__ = ["Command", "Consumer", "Endpoints", "Outcome", "Outcomes", "Producer", "Settlement"]
