"""The readings of the mailbox in `snavio up` and `snavio status`."""

from __future__ import annotations

from snavio.launch.readings import TopicReading, _topics
from snavio.v1.introspection_pb2 import StatusResponse


def test_gauges_of_shards_and_new_ones_do_not_stop_the_screen() -> None:
    status = StatusResponse()
    for name, value in {
        "topics": 1,
        "topic.demo/v1.bot.ready": 7,
        "topic.demo/v1.bot.inflight": 2,
        "topic.demo/v1.bot.oldest_age_ms": 1500,
        "topic.demo/v1.bot.shard.0.depth": 4,
        "topic.demo/v1.bot.shard.1.depth": 5,
        "topic.demo/v1.bot.shard.0.reorder_depth_max": 498,
        "topic.demo/v1.bot.of_tomorrow": 1,
    }.items():
        status.gauge.add(name=name, value=value)
    assert _topics(status) == (TopicReading("demo/v1.bot", 7, 2, 1500),)
