from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Command(_message.Message):
    __slots__ = ("id", "timestamp", "type", "key_version", "audience", "hmac", "target", "name", "content_type", "payload", "traceparent", "source")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUDIENCE_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    timestamp: str
    type: str
    key_version: str
    audience: str
    hmac: bytes
    target: str
    name: str
    content_type: str
    payload: bytes
    traceparent: str
    source: str
    def __init__(self, id: _Optional[str] = ..., timestamp: _Optional[str] = ..., type: _Optional[str] = ..., key_version: _Optional[str] = ..., audience: _Optional[str] = ..., hmac: _Optional[bytes] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., content_type: _Optional[str] = ..., payload: _Optional[bytes] = ..., traceparent: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...
