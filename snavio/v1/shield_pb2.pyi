from snavio.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GreetRequest(_message.Message):
    __slots__ = ("wire_version",)
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    wire_version: int
    def __init__(self, wire_version: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("command", "budget_ms")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    budget_ms: int
    def __init__(self, command: _Optional[bytes] = ..., budget_ms: _Optional[int] = ...) -> None: ...

class Submission(_message.Message):
    __slots__ = ("hello", "header", "command")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    hello: _batch_pb2.Hello
    header: _batch_pb2.BatchHeader
    command: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, hello: _Optional[_Union[_batch_pb2.Hello, _Mapping]] = ..., header: _Optional[_Union[_batch_pb2.BatchHeader, _Mapping]] = ..., command: _Optional[_Iterable[bytes]] = ...) -> None: ...
