from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HttpEnvelope(_message.Message):
    __slots__ = ("method", "route", "path", "query", "header", "remote", "received_unix_ns", "request_id", "caller", "body", "body_size")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    method: str
    route: str
    path: str
    query: str
    header: _containers.RepeatedCompositeFieldContainer[HttpHeader]
    remote: str
    received_unix_ns: int
    request_id: str
    caller: str
    body: bytes
    body_size: int
    def __init__(self, method: _Optional[str] = ..., route: _Optional[str] = ..., path: _Optional[str] = ..., query: _Optional[str] = ..., header: _Optional[_Iterable[_Union[HttpHeader, _Mapping]]] = ..., remote: _Optional[str] = ..., received_unix_ns: _Optional[int] = ..., request_id: _Optional[str] = ..., caller: _Optional[str] = ..., body: _Optional[bytes] = ..., body_size: _Optional[int] = ...) -> None: ...

class HttpHeader(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
