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
