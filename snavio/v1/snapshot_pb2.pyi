from snavio.v1 import signer_pb2 as _signer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SnapshotManifest(_message.Message):
    __slots__ = ("type", "format", "kind", "version_id", "directory_epoch", "generated_at", "expires_at", "ttl_policy", "parts", "key_id", "signature")
    class TtlPolicyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SnapshotTtl
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SnapshotTtl, _Mapping]] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    TTL_POLICY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    type: str
    format: int
    kind: str
    version_id: str
    directory_epoch: str
    generated_at: str
    expires_at: str
    ttl_policy: _containers.MessageMap[str, SnapshotTtl]
    parts: _containers.RepeatedCompositeFieldContainer[SnapshotPart]
    key_id: str
    signature: str
    def __init__(self, type: _Optional[str] = ..., format: _Optional[int] = ..., kind: _Optional[str] = ..., version_id: _Optional[str] = ..., directory_epoch: _Optional[str] = ..., generated_at: _Optional[str] = ..., expires_at: _Optional[str] = ..., ttl_policy: _Optional[_Mapping[str, SnapshotTtl]] = ..., parts: _Optional[_Iterable[_Union[SnapshotPart, _Mapping]]] = ..., key_id: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class SnapshotTtl(_message.Message):
    __slots__ = ("fresh_seconds", "stale_seconds", "ceiling_seconds")
    FRESH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CEILING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    fresh_seconds: int
    stale_seconds: int
    ceiling_seconds: int
    def __init__(self, fresh_seconds: _Optional[int] = ..., stale_seconds: _Optional[int] = ..., ceiling_seconds: _Optional[int] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("name", "path", "size", "rows", "blake3")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BLAKE3_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    size: int
    rows: int
    blake3: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., size: _Optional[int] = ..., rows: _Optional[int] = ..., blake3: _Optional[str] = ...) -> None: ...

class SealedKeys(_message.Message):
    __slots__ = ("keyset", "revoked_serial", "revoked")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    REVOKED_SERIAL_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    keyset: _containers.RepeatedCompositeFieldContainer[_signer_pb2.Keyset]
    revoked_serial: _containers.RepeatedScalarFieldContainer[str]
    revoked: _containers.RepeatedCompositeFieldContainer[_signer_pb2.RevokedSubject]
    def __init__(self, keyset: _Optional[_Iterable[_Union[_signer_pb2.Keyset, _Mapping]]] = ..., revoked_serial: _Optional[_Iterable[str]] = ..., revoked: _Optional[_Iterable[_Union[_signer_pb2.RevokedSubject, _Mapping]]] = ...) -> None: ...
