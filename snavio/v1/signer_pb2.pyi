from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IssueCertificateRequest(_message.Message):
    __slots__ = ("csr_pem", "spiffe_id", "ttl_seconds")
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    csr_pem: str
    spiffe_id: str
    ttl_seconds: int
    def __init__(self, csr_pem: _Optional[str] = ..., spiffe_id: _Optional[str] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class IssueCertificateResponse(_message.Message):
    __slots__ = ("certificate_pem", "ca_pem", "serial", "not_after_unix_ns")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_unix_ns: int
    def __init__(self, certificate_pem: _Optional[str] = ..., ca_pem: _Optional[str] = ..., serial: _Optional[str] = ..., not_after_unix_ns: _Optional[int] = ...) -> None: ...

class RevokeCertificateRequest(_message.Message):
    __slots__ = ("serial", "reason")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    serial: str
    reason: str
    def __init__(self, serial: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RevokeCertificateResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DenylistRequest(_message.Message):
    __slots__ = ("since_version",)
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    def __init__(self, since_version: _Optional[int] = ...) -> None: ...

class DenylistResponse(_message.Message):
    __slots__ = ("version", "serial")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    version: int
    serial: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., serial: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateKeysetRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    def __init__(self, source: _Optional[str] = ...) -> None: ...

class RotateKeysetRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    def __init__(self, source: _Optional[str] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("source", "key_version")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ...) -> None: ...

class KeyVersion(_message.Message):
    __slots__ = ("version", "secret", "not_before_unix_ns", "not_after_unix_ns", "primary_from_unix_ns", "revoked")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    version: str
    secret: bytes
    not_before_unix_ns: int
    not_after_unix_ns: int
    primary_from_unix_ns: int
    revoked: bool
    def __init__(self, version: _Optional[str] = ..., secret: _Optional[bytes] = ..., not_before_unix_ns: _Optional[int] = ..., not_after_unix_ns: _Optional[int] = ..., primary_from_unix_ns: _Optional[int] = ..., revoked: _Optional[bool] = ...) -> None: ...

class Keyset(_message.Message):
    __slots__ = ("source", "version", "deleted")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    source: str
    version: _containers.RepeatedCompositeFieldContainer[KeyVersion]
    deleted: bool
    def __init__(self, source: _Optional[str] = ..., version: _Optional[_Iterable[_Union[KeyVersion, _Mapping]]] = ..., deleted: _Optional[bool] = ...) -> None: ...

class KeysetStatus(_message.Message):
    __slots__ = ("keyset", "primary")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    keyset: Keyset
    primary: str
    def __init__(self, keyset: _Optional[_Union[Keyset, _Mapping]] = ..., primary: _Optional[str] = ...) -> None: ...

class KeysetChangesRequest(_message.Message):
    __slots__ = ("since_version", "limit")
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    limit: int
    def __init__(self, since_version: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class KeysetChangesResponse(_message.Message):
    __slots__ = ("version", "keyset", "more", "store_epoch")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    version: int
    keyset: _containers.RepeatedCompositeFieldContainer[Keyset]
    more: bool
    store_epoch: int
    def __init__(self, version: _Optional[int] = ..., keyset: _Optional[_Iterable[_Union[Keyset, _Mapping]]] = ..., more: _Optional[bool] = ..., store_epoch: _Optional[int] = ...) -> None: ...

class TenantConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TenantConfigResponse(_message.Message):
    __slots__ = ("keyset", "primary", "poll_after_seconds")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    POLL_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    keyset: Keyset
    primary: str
    poll_after_seconds: int
    def __init__(self, keyset: _Optional[_Union[Keyset, _Mapping]] = ..., primary: _Optional[str] = ..., poll_after_seconds: _Optional[int] = ...) -> None: ...
