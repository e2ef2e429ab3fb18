from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class TelemetryBlock(_message.Message):
    __slots__ = ("service", "settled_unix_ns", "dictionary", "command_id", "verdict", "source", "target", "name", "sent_unix_ns", "admitted_unix_ns", "escalation")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    service: str
    settled_unix_ns: int
    dictionary: _containers.RepeatedScalarFieldContainer[str]
    command_id: bytes
    verdict: bytes
    source: _containers.RepeatedScalarFieldContainer[int]
    target: _containers.RepeatedScalarFieldContainer[int]
    name: _containers.RepeatedScalarFieldContainer[int]
    sent_unix_ns: _containers.RepeatedScalarFieldContainer[int]
    admitted_unix_ns: _containers.RepeatedScalarFieldContainer[int]
    escalation: bytes
    def __init__(self, service: _Optional[str] = ..., settled_unix_ns: _Optional[int] = ..., dictionary: _Optional[_Iterable[str]] = ..., command_id: _Optional[bytes] = ..., verdict: _Optional[bytes] = ..., source: _Optional[_Iterable[int]] = ..., target: _Optional[_Iterable[int]] = ..., name: _Optional[_Iterable[int]] = ..., sent_unix_ns: _Optional[_Iterable[int]] = ..., admitted_unix_ns: _Optional[_Iterable[int]] = ..., escalation: _Optional[bytes] = ...) -> None: ...
