from snavio.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Settlement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SETTLEMENT_UNSPECIFIED: _ClassVar[Settlement]
    SETTLEMENT_DONE: _ClassVar[Settlement]
    SETTLEMENT_LATE: _ClassVar[Settlement]
    SETTLEMENT_GONE: _ClassVar[Settlement]
SETTLEMENT_UNSPECIFIED: Settlement
SETTLEMENT_DONE: Settlement
SETTLEMENT_LATE: Settlement
SETTLEMENT_GONE: Settlement

class TopicRuns(_message.Message):
    __slots__ = ("topic", "run")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    run: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Run]
    def __init__(self, topic: _Optional[str] = ..., run: _Optional[_Iterable[_Union[_batch_pb2.Run, _Mapping]]] = ...) -> None: ...

class SendBatch(_message.Message):
    __slots__ = ("hello", "header", "topic")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    hello: _batch_pb2.Hello
    header: _batch_pb2.BatchHeader
    topic: _containers.RepeatedCompositeFieldContainer[TopicRuns]
    def __init__(self, hello: _Optional[_Union[_batch_pb2.Hello, _Mapping]] = ..., header: _Optional[_Union[_batch_pb2.BatchHeader, _Mapping]] = ..., topic: _Optional[_Iterable[_Union[TopicRuns, _Mapping]]] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "visibility_ms", "max_messages", "max_bytes", "wait_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    visibility_ms: int
    max_messages: int
    max_bytes: int
    wait_ms: int
    def __init__(self, topic: _Optional[str] = ..., visibility_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("batch_id", "first", "attempt", "stored_unix_ns", "run")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STORED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    first: int
    attempt: int
    stored_unix_ns: int
    run: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Run]
    def __init__(self, batch_id: _Optional[int] = ..., first: _Optional[int] = ..., attempt: _Optional[int] = ..., stored_unix_ns: _Optional[int] = ..., run: _Optional[_Iterable[_Union[_batch_pb2.Run, _Mapping]]] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("boot_epoch", "parcel", "integrity_failures")
    BOOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARCEL_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_FAILURES_FIELD_NUMBER: _ClassVar[int]
    boot_epoch: int
    parcel: _containers.RepeatedCompositeFieldContainer[Parcel]
    integrity_failures: int
    def __init__(self, boot_epoch: _Optional[int] = ..., parcel: _Optional[_Iterable[_Union[Parcel, _Mapping]]] = ..., integrity_failures: _Optional[int] = ...) -> None: ...

class Receipts(_message.Message):
    __slots__ = ("boot_epoch", "msg_id", "attempt")
    BOOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    boot_epoch: int
    msg_id: _containers.RepeatedScalarFieldContainer[int]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, boot_epoch: _Optional[int] = ..., msg_id: _Optional[_Iterable[int]] = ..., attempt: _Optional[_Iterable[int]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "receipts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "receipts", "delay_ms", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    delay_ms: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "receipts", "visibility_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    visibility_ms: int
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("codes",)
    CODES_FIELD_NUMBER: _ClassVar[int]
    codes: bytes
    def __init__(self, codes: _Optional[bytes] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicStats(_message.Message):
    __slots__ = ("topic", "ready", "inflight", "oldest_age_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ready: int
    inflight: int
    oldest_age_ms: int
    def __init__(self, topic: _Optional[str] = ..., ready: _Optional[int] = ..., inflight: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedCompositeFieldContainer[TopicStats]
    def __init__(self, topic: _Optional[_Iterable[_Union[TopicStats, _Mapping]]] = ...) -> None: ...
