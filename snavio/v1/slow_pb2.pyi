from snavio.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EscalationReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ESCALATION_REASON_UNSPECIFIED: _ClassVar[EscalationReason]
    ESCALATION_REASON_CACHE_MISS: _ClassVar[EscalationReason]
    ESCALATION_REASON_ACL_EXPIRED: _ClassVar[EscalationReason]
    ESCALATION_REASON_ROUTE_EXPIRED: _ClassVar[EscalationReason]
    ESCALATION_REASON_DEDUPE_REQUIRED: _ClassVar[EscalationReason]
    ESCALATION_REASON_TOKEN_REQUIRED: _ClassVar[EscalationReason]
    ESCALATION_REASON_WARM_BANNED: _ClassVar[EscalationReason]
    ESCALATION_REASON_COLD_ONLY: _ClassVar[EscalationReason]
    ESCALATION_REASON_SYNC: _ClassVar[EscalationReason]

class GrantState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRANT_STATE_UNSPECIFIED: _ClassVar[GrantState]
    GRANT_STATE_ISSUED: _ClassVar[GrantState]
    GRANT_STATE_UNLIMITED: _ClassVar[GrantState]
    GRANT_STATE_DECIDED_BY_SLOW: _ClassVar[GrantState]
    GRANT_STATE_EXHAUSTED: _ClassVar[GrantState]
    GRANT_STATE_NO_LEASE: _ClassVar[GrantState]
    GRANT_STATE_NO_ROUTE: _ClassVar[GrantState]
ESCALATION_REASON_UNSPECIFIED: EscalationReason
ESCALATION_REASON_CACHE_MISS: EscalationReason
ESCALATION_REASON_ACL_EXPIRED: EscalationReason
ESCALATION_REASON_ROUTE_EXPIRED: EscalationReason
ESCALATION_REASON_DEDUPE_REQUIRED: EscalationReason
ESCALATION_REASON_TOKEN_REQUIRED: EscalationReason
ESCALATION_REASON_WARM_BANNED: EscalationReason
ESCALATION_REASON_COLD_ONLY: EscalationReason
ESCALATION_REASON_SYNC: EscalationReason
GRANT_STATE_UNSPECIFIED: GrantState
GRANT_STATE_ISSUED: GrantState
GRANT_STATE_UNLIMITED: GrantState
GRANT_STATE_DECIDED_BY_SLOW: GrantState
GRANT_STATE_EXHAUSTED: GrantState
GRANT_STATE_NO_LEASE: GrantState
GRANT_STATE_NO_ROUTE: GrantState

class Escalation(_message.Message):
    __slots__ = ("reason", "run")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    reason: EscalationReason
    run: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Run]
    def __init__(self, reason: _Optional[_Union[EscalationReason, str]] = ..., run: _Optional[_Iterable[_Union[_batch_pb2.Run, _Mapping]]] = ...) -> None: ...

class ArbitrationBatch(_message.Message):
    __slots__ = ("hello", "header", "escalation")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    hello: _batch_pb2.Hello
    header: _batch_pb2.BatchHeader
    escalation: _containers.RepeatedCompositeFieldContainer[Escalation]
    def __init__(self, hello: _Optional[_Union[_batch_pb2.Hello, _Mapping]] = ..., header: _Optional[_Union[_batch_pb2.BatchHeader, _Mapping]] = ..., escalation: _Optional[_Iterable[_Union[Escalation, _Mapping]]] = ...) -> None: ...

class GrantWish(_message.Message):
    __slots__ = ("target", "name", "permits", "source")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    permits: int
    source: str
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., permits: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class GrantsRequest(_message.Message):
    __slots__ = ("instance", "wish")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    instance: str
    wish: _containers.RepeatedCompositeFieldContainer[GrantWish]
    def __init__(self, instance: _Optional[str] = ..., wish: _Optional[_Iterable[_Union[GrantWish, _Mapping]]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("state", "permits", "life_ms", "interval", "interval_end_unix_ns", "retry_after_ms", "shadow", "source")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    LIFE_MS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_END_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    state: GrantState
    permits: int
    life_ms: int
    interval: int
    interval_end_unix_ns: int
    retry_after_ms: int
    shadow: bool
    source: str
    def __init__(self, state: _Optional[_Union[GrantState, str]] = ..., permits: _Optional[int] = ..., life_ms: _Optional[int] = ..., interval: _Optional[int] = ..., interval_end_unix_ns: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., shadow: _Optional[bool] = ..., source: _Optional[str] = ...) -> None: ...

class GrantsResponse(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, grant: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class PermitReturn(_message.Message):
    __slots__ = ("target", "name", "interval", "permits", "source")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    interval: int
    permits: int
    source: str
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., interval: _Optional[int] = ..., permits: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class ReturnPermitsRequest(_message.Message):
    __slots__ = ("permit",)
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    permit: _containers.RepeatedCompositeFieldContainer[PermitReturn]
    def __init__(self, permit: _Optional[_Iterable[_Union[PermitReturn, _Mapping]]] = ...) -> None: ...

class ReturnPermitsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BanReport(_message.Message):
    __slots__ = ("source", "target", "name", "source_share", "competing_share", "dispatch_volume", "window_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SHARE_FIELD_NUMBER: _ClassVar[int]
    COMPETING_SHARE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_VOLUME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    source_share: float
    competing_share: float
    dispatch_volume: int
    window_ms: int
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., source_share: _Optional[float] = ..., competing_share: _Optional[float] = ..., dispatch_volume: _Optional[int] = ..., window_ms: _Optional[int] = ...) -> None: ...

class ReportBansRequest(_message.Message):
    __slots__ = ("instance", "ban")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BAN_FIELD_NUMBER: _ClassVar[int]
    instance: str
    ban: _containers.RepeatedCompositeFieldContainer[BanReport]
    def __init__(self, instance: _Optional[str] = ..., ban: _Optional[_Iterable[_Union[BanReport, _Mapping]]] = ...) -> None: ...

class ReportBansResponse(_message.Message):
    __slots__ = ("escalated",)
    ESCALATED_FIELD_NUMBER: _ClassVar[int]
    escalated: int
    def __init__(self, escalated: _Optional[int] = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("source", "target", "name", "command_id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    command_id: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., command_id: _Optional[str] = ...) -> None: ...

class ExamineQueueRequest(_message.Message):
    __slots__ = ("queue_kind", "topic")
    QUEUE_KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    queue_kind: int
    topic: str
    def __init__(self, queue_kind: _Optional[int] = ..., topic: _Optional[str] = ...) -> None: ...

class QueueForecast(_message.Message):
    __slots__ = ("reached", "flaw", "waiting", "room", "full")
    REACHED_FIELD_NUMBER: _ClassVar[int]
    FLAW_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    reached: bool
    flaw: str
    waiting: int
    room: int
    full: bool
    def __init__(self, reached: _Optional[bool] = ..., flaw: _Optional[str] = ..., waiting: _Optional[int] = ..., room: _Optional[int] = ..., full: _Optional[bool] = ...) -> None: ...

class IdForecast(_message.Message):
    __slots__ = ("verdict", "detail", "retry_after_ms")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    verdict: _batch_pb2.Verdict
    detail: str
    retry_after_ms: int
    def __init__(self, verdict: _Optional[_Union[_batch_pb2.Verdict, str]] = ..., detail: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class LimitForecast(_message.Message):
    __slots__ = ("source", "max", "left", "now", "retry_after_ms", "shadow")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    source: str
    max: int
    left: int
    now: int
    retry_after_ms: int
    shadow: bool
    def __init__(self, source: _Optional[str] = ..., max: _Optional[int] = ..., left: _Optional[int] = ..., now: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., shadow: _Optional[bool] = ...) -> None: ...

class ForecastResponse(_message.Message):
    __slots__ = ("routed", "limit", "store_answers", "queue_connected", "waiting", "queue", "id")
    ROUTED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STORE_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    routed: bool
    limit: _containers.RepeatedCompositeFieldContainer[LimitForecast]
    store_answers: bool
    queue_connected: bool
    waiting: int
    queue: QueueForecast
    id: IdForecast
    def __init__(self, routed: _Optional[bool] = ..., limit: _Optional[_Iterable[_Union[LimitForecast, _Mapping]]] = ..., store_answers: _Optional[bool] = ..., queue_connected: _Optional[bool] = ..., waiting: _Optional[int] = ..., queue: _Optional[_Union[QueueForecast, _Mapping]] = ..., id: _Optional[_Union[IdForecast, _Mapping]] = ...) -> None: ...
