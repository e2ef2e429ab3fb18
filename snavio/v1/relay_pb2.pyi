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
