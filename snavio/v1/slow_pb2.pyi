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
ESCALATION_REASON_UNSPECIFIED: EscalationReason
ESCALATION_REASON_CACHE_MISS: EscalationReason
ESCALATION_REASON_ACL_EXPIRED: EscalationReason
ESCALATION_REASON_ROUTE_EXPIRED: EscalationReason
ESCALATION_REASON_DEDUPE_REQUIRED: EscalationReason
ESCALATION_REASON_TOKEN_REQUIRED: EscalationReason
ESCALATION_REASON_WARM_BANNED: EscalationReason
ESCALATION_REASON_COLD_ONLY: EscalationReason
ESCALATION_REASON_SYNC: EscalationReason

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
