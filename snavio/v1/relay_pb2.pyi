from snavio.v1 import telemetry_pb2 as _telemetry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JournalPage(_message.Message):
    __slots__ = ("instance", "epoch", "first_seq", "block", "ended", "piece", "more")
    class Ended(_message.Message):
        __slots__ = ("epoch", "last_seq")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        last_seq: int
        def __init__(self, epoch: _Optional[int] = ..., last_seq: _Optional[int] = ...) -> None: ...
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    epoch: int
    first_seq: int
    block: _containers.RepeatedCompositeFieldContainer[_telemetry_pb2.TelemetryBlock]
    ended: _containers.RepeatedCompositeFieldContainer[JournalPage.Ended]
    piece: bytes
    more: bool
    def __init__(self, instance: _Optional[str] = ..., epoch: _Optional[int] = ..., first_seq: _Optional[int] = ..., block: _Optional[_Iterable[_Union[_telemetry_pb2.TelemetryBlock, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[JournalPage.Ended, _Mapping]]] = ..., piece: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class JournalReceipt(_message.Message):
    __slots__ = ("durable_seq", "epoch")
    DURABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    durable_seq: int
    epoch: int
    def __init__(self, durable_seq: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class StreamPosition(_message.Message):
    __slots__ = ("epoch", "low", "high", "head")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    low: int
    high: int
    head: str
    def __init__(self, epoch: _Optional[int] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., head: _Optional[str] = ...) -> None: ...

class ReadStreamRequest(_message.Message):
    __slots__ = ("tenant", "after", "source", "family")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    after: int
    source: _containers.RepeatedScalarFieldContainer[str]
    family: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., after: _Optional[int] = ..., source: _Optional[_Iterable[str]] = ..., family: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamEnvelope(_message.Message):
    __slots__ = ("seq", "source", "family", "body", "digest")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    seq: int
    source: str
    family: str
    body: bytes
    digest: str
    def __init__(self, seq: _Optional[int] = ..., source: _Optional[str] = ..., family: _Optional[str] = ..., body: _Optional[bytes] = ..., digest: _Optional[str] = ...) -> None: ...

class StreamPage(_message.Message):
    __slots__ = ("envelope", "through", "position")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    envelope: _containers.RepeatedCompositeFieldContainer[StreamEnvelope]
    through: int
    position: StreamPosition
    def __init__(self, envelope: _Optional[_Iterable[_Union[StreamEnvelope, _Mapping]]] = ..., through: _Optional[int] = ..., position: _Optional[_Union[StreamPosition, _Mapping]] = ...) -> None: ...

class StreamWindowRequest(_message.Message):
    __slots__ = ("tenant", "signed")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    signed: bool
    def __init__(self, tenant: _Optional[str] = ..., signed: _Optional[bool] = ...) -> None: ...

class StreamWindowResponse(_message.Message):
    __slots__ = ("position", "statement")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    position: StreamPosition
    statement: bytes
    def __init__(self, position: _Optional[_Union[StreamPosition, _Mapping]] = ..., statement: _Optional[bytes] = ...) -> None: ...

class TenantStateRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class TenantStateResponse(_message.Message):
    __slots__ = ("position", "statement")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    position: StreamPosition
    statement: bytes
    def __init__(self, position: _Optional[_Union[StreamPosition, _Mapping]] = ..., statement: _Optional[bytes] = ...) -> None: ...

class ReEmitRequest(_message.Message):
    __slots__ = ("tenant", "after")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    after: int
    def __init__(self, tenant: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class ReEmitResponse(_message.Message):
    __slots__ = ("envelopes", "after")
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    envelopes: int
    after: int
    def __init__(self, envelopes: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class AlertChannelProgress(_message.Message):
    __slots__ = ("channel", "state", "attempts", "error")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    channel: str
    state: str
    attempts: int
    error: str
    def __init__(self, channel: _Optional[str] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Alert(_message.Message):
    __slots__ = ("alert_id", "tenant", "event", "reason", "summary", "count", "total", "update", "created_unix_ns", "first_unix_ns", "last_unix_ns", "sample", "state", "why", "acked_by", "channel", "critical")
    class SampleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ACKED_BY_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CRITICAL_FIELD_NUMBER: _ClassVar[int]
    alert_id: str
    tenant: str
    event: str
    reason: str
    summary: str
    count: int
    total: int
    update: int
    created_unix_ns: int
    first_unix_ns: int
    last_unix_ns: int
    sample: _containers.ScalarMap[str, str]
    state: str
    why: str
    acked_by: str
    channel: _containers.RepeatedCompositeFieldContainer[AlertChannelProgress]
    critical: bool
    def __init__(self, alert_id: _Optional[str] = ..., tenant: _Optional[str] = ..., event: _Optional[str] = ..., reason: _Optional[str] = ..., summary: _Optional[str] = ..., count: _Optional[int] = ..., total: _Optional[int] = ..., update: _Optional[int] = ..., created_unix_ns: _Optional[int] = ..., first_unix_ns: _Optional[int] = ..., last_unix_ns: _Optional[int] = ..., sample: _Optional[_Mapping[str, str]] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., acked_by: _Optional[str] = ..., channel: _Optional[_Iterable[_Union[AlertChannelProgress, _Mapping]]] = ..., critical: _Optional[bool] = ...) -> None: ...

class ListAlertsRequest(_message.Message):
    __slots__ = ("tenant", "unrouted", "open", "limit", "before")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    UNROUTED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    unrouted: bool
    open: bool
    limit: int
    before: str
    def __init__(self, tenant: _Optional[str] = ..., unrouted: _Optional[bool] = ..., open: _Optional[bool] = ..., limit: _Optional[int] = ..., before: _Optional[str] = ...) -> None: ...

class ListAlertsResponse(_message.Message):
    __slots__ = ("alert", "more")
    ALERT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    alert: _containers.RepeatedCompositeFieldContainer[Alert]
    more: bool
    def __init__(self, alert: _Optional[_Iterable[_Union[Alert, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class AckAlertsRequest(_message.Message):
    __slots__ = ("alert_id",)
    ALERT_ID_FIELD_NUMBER: _ClassVar[int]
    alert_id: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, alert_id: _Optional[_Iterable[str]] = ...) -> None: ...

class AckAlertsResponse(_message.Message):
    __slots__ = ("acked",)
    ACKED_FIELD_NUMBER: _ClassVar[int]
    acked: int
    def __init__(self, acked: _Optional[int] = ...) -> None: ...

class TestAlertChannelRequest(_message.Message):
    __slots__ = ("tenant", "channel")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    channel: str
    def __init__(self, tenant: _Optional[str] = ..., channel: _Optional[str] = ...) -> None: ...

class TestAlertChannelResponse(_message.Message):
    __slots__ = ("delivered", "reason", "detail", "latency_ms")
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    delivered: bool
    reason: str
    detail: str
    latency_ms: float
    def __init__(self, delivered: _Optional[bool] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., latency_ms: _Optional[float] = ...) -> None: ...

class MuteAlertsRequest(_message.Message):
    __slots__ = ("tenant", "event", "until_unix_ns")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    event: str
    until_unix_ns: int
    def __init__(self, tenant: _Optional[str] = ..., event: _Optional[str] = ..., until_unix_ns: _Optional[int] = ...) -> None: ...

class MuteAlertsResponse(_message.Message):
    __slots__ = ("mute",)
    class Mute(_message.Message):
        __slots__ = ("tenant", "event", "until_unix_ns", "by")
        TENANT_FIELD_NUMBER: _ClassVar[int]
        EVENT_FIELD_NUMBER: _ClassVar[int]
        UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
        BY_FIELD_NUMBER: _ClassVar[int]
        tenant: str
        event: str
        until_unix_ns: int
        by: str
        def __init__(self, tenant: _Optional[str] = ..., event: _Optional[str] = ..., until_unix_ns: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...
    MUTE_FIELD_NUMBER: _ClassVar[int]
    mute: _containers.RepeatedCompositeFieldContainer[MuteAlertsResponse.Mute]
    def __init__(self, mute: _Optional[_Iterable[_Union[MuteAlertsResponse.Mute, _Mapping]]] = ...) -> None: ...

class RotateWebhookSecretRequest(_message.Message):
    __slots__ = ("tenant", "channel")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    channel: str
    def __init__(self, tenant: _Optional[str] = ..., channel: _Optional[str] = ...) -> None: ...

class RotateWebhookSecretResponse(_message.Message):
    __slots__ = ("secret", "previous_until_unix_ns")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    secret: str
    previous_until_unix_ns: int
    def __init__(self, secret: _Optional[str] = ..., previous_until_unix_ns: _Optional[int] = ...) -> None: ...
