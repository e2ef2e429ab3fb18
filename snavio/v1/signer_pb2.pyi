from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEY_STATE_UNSPECIFIED: _ClassVar[KeyState]
    KEY_STATE_SPREADING: _ClassVar[KeyState]
    KEY_STATE_PRIMARY: _ClassVar[KeyState]
    KEY_STATE_PREVIOUS: _ClassVar[KeyState]
    KEY_STATE_ENDED: _ClassVar[KeyState]
    KEY_STATE_REVOKED: _ClassVar[KeyState]
KEY_STATE_UNSPECIFIED: KeyState
KEY_STATE_SPREADING: KeyState
KEY_STATE_PRIMARY: KeyState
KEY_STATE_PREVIOUS: KeyState
KEY_STATE_ENDED: KeyState
KEY_STATE_REVOKED: KeyState

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
    __slots__ = ("version", "serial")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    version: int
    serial: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., serial: _Optional[_Iterable[str]] = ...) -> None: ...

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
    __slots__ = ("source", "expected_newest")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_NEWEST_FIELD_NUMBER: _ClassVar[int]
    source: str
    expected_newest: str
    def __init__(self, source: _Optional[str] = ..., expected_newest: _Optional[str] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("source", "key_version")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ...) -> None: ...

class KeyVersion(_message.Message):
    __slots__ = ("version", "secret", "not_before_unix_ns", "not_after_unix_ns", "primary_from_unix_ns", "revoked", "state")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    version: str
    secret: bytes
    not_before_unix_ns: int
    not_after_unix_ns: int
    primary_from_unix_ns: int
    revoked: bool
    state: KeyState
    def __init__(self, version: _Optional[str] = ..., secret: _Optional[bytes] = ..., not_before_unix_ns: _Optional[int] = ..., not_after_unix_ns: _Optional[int] = ..., primary_from_unix_ns: _Optional[int] = ..., revoked: _Optional[bool] = ..., state: _Optional[_Union[KeyState, str]] = ...) -> None: ...

class Keyset(_message.Message):
    __slots__ = ("source", "version", "deleted", "minimum")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    source: str
    version: _containers.RepeatedCompositeFieldContainer[KeyVersion]
    deleted: bool
    minimum: str
    def __init__(self, source: _Optional[str] = ..., version: _Optional[_Iterable[_Union[KeyVersion, _Mapping]]] = ..., deleted: _Optional[bool] = ..., minimum: _Optional[str] = ...) -> None: ...

class KeysetStatus(_message.Message):
    __slots__ = ("keyset", "primary", "last_poll_unix_ns", "next_rotation_unix_ns", "use", "observed_since_unix_ns", "now_unix_ns")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    LAST_POLL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROTATION_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOW_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    keyset: Keyset
    primary: str
    last_poll_unix_ns: int
    next_rotation_unix_ns: int
    use: _containers.RepeatedCompositeFieldContainer[KeyVersionUse]
    observed_since_unix_ns: int
    now_unix_ns: int
    def __init__(self, keyset: _Optional[_Union[Keyset, _Mapping]] = ..., primary: _Optional[str] = ..., last_poll_unix_ns: _Optional[int] = ..., next_rotation_unix_ns: _Optional[int] = ..., use: _Optional[_Iterable[_Union[KeyVersionUse, _Mapping]]] = ..., observed_since_unix_ns: _Optional[int] = ..., now_unix_ns: _Optional[int] = ...) -> None: ...

class KeyVersionUse(_message.Message):
    __slots__ = ("version", "last_hour", "last_day", "last_used_unix_ns", "safe_to_retire", "retire_reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_HOUR_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SAFE_TO_RETIRE_FIELD_NUMBER: _ClassVar[int]
    RETIRE_REASON_FIELD_NUMBER: _ClassVar[int]
    version: str
    last_hour: int
    last_day: int
    last_used_unix_ns: int
    safe_to_retire: bool
    retire_reason: str
    def __init__(self, version: _Optional[str] = ..., last_hour: _Optional[int] = ..., last_day: _Optional[int] = ..., last_used_unix_ns: _Optional[int] = ..., safe_to_retire: _Optional[bool] = ..., retire_reason: _Optional[str] = ...) -> None: ...

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

class CreateEnrolmentRequest(_message.Message):
    __slots__ = ("tenant", "principal", "ttl_seconds")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal: str
    ttl_seconds: int
    def __init__(self, tenant: _Optional[str] = ..., principal: _Optional[str] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class CreateEnrolmentResponse(_message.Message):
    __slots__ = ("token", "expires_unix_ns")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    token: str
    expires_unix_ns: int
    def __init__(self, token: _Optional[str] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class SetServicePrincipalsRequest(_message.Message):
    __slots__ = ("source", "principal", "suspended", "removed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    source: str
    principal: _containers.RepeatedScalarFieldContainer[str]
    suspended: bool
    removed: bool
    def __init__(self, source: _Optional[str] = ..., principal: _Optional[_Iterable[str]] = ..., suspended: _Optional[bool] = ..., removed: _Optional[bool] = ...) -> None: ...

class SetServicePrincipalsResponse(_message.Message):
    __slots__ = ("revoked_serial",)
    REVOKED_SERIAL_FIELD_NUMBER: _ClassVar[int]
    revoked_serial: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revoked_serial: _Optional[_Iterable[str]] = ...) -> None: ...

class AssumeServiceRequest(_message.Message):
    __slots__ = ("source", "csr_pem", "ttl_seconds")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    source: str
    csr_pem: str
    ttl_seconds: int
    def __init__(self, source: _Optional[str] = ..., csr_pem: _Optional[str] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class RevokeIdentityRequest(_message.Message):
    __slots__ = ("spiffe_id", "reason")
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    spiffe_id: str
    reason: str
    def __init__(self, spiffe_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RevokeIdentityResponse(_message.Message):
    __slots__ = ("serial",)
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    serial: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, serial: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreIdentityRequest(_message.Message):
    __slots__ = ("spiffe_id",)
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    spiffe_id: str
    def __init__(self, spiffe_id: _Optional[str] = ...) -> None: ...

class RestoreIdentityResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: _Optional[bool] = ...) -> None: ...

class CertificateRecord(_message.Message):
    __slots__ = ("serial", "spiffe_id", "issued_to", "parent_serial", "issued_unix_ns", "not_after_unix_ns", "revoked", "barred")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUED_TO_FIELD_NUMBER: _ClassVar[int]
    PARENT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    BARRED_FIELD_NUMBER: _ClassVar[int]
    serial: str
    spiffe_id: str
    issued_to: str
    parent_serial: str
    issued_unix_ns: int
    not_after_unix_ns: int
    revoked: bool
    barred: bool
    def __init__(self, serial: _Optional[str] = ..., spiffe_id: _Optional[str] = ..., issued_to: _Optional[str] = ..., parent_serial: _Optional[str] = ..., issued_unix_ns: _Optional[int] = ..., not_after_unix_ns: _Optional[int] = ..., revoked: _Optional[bool] = ..., barred: _Optional[bool] = ...) -> None: ...

class ListCertificatesRequest(_message.Message):
    __slots__ = ("spiffe_id", "after_serial", "limit")
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SERIAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    spiffe_id: str
    after_serial: str
    limit: int
    def __init__(self, spiffe_id: _Optional[str] = ..., after_serial: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListCertificatesResponse(_message.Message):
    __slots__ = ("certificate", "more")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    certificate: _containers.RepeatedCompositeFieldContainer[CertificateRecord]
    more: bool
    def __init__(self, certificate: _Optional[_Iterable[_Union[CertificateRecord, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class SetMinimumKeyRequest(_message.Message):
    __slots__ = ("source", "key_version")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ...) -> None: ...

class DescribeKeysetsRequest(_message.Message):
    __slots__ = ("source", "after_source", "limit")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SOURCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    source: str
    after_source: str
    limit: int
    def __init__(self, source: _Optional[str] = ..., after_source: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DescribeKeysetsResponse(_message.Message):
    __slots__ = ("keyset", "more")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    keyset: _containers.RepeatedCompositeFieldContainer[KeysetStatus]
    more: bool
    def __init__(self, keyset: _Optional[_Iterable[_Union[KeysetStatus, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class KeyUse(_message.Message):
    __slots__ = ("source", "key_version", "commands")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    commands: int
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ..., commands: _Optional[int] = ...) -> None: ...

class ReportKeyUsageRequest(_message.Message):
    __slots__ = ("use",)
    USE_FIELD_NUMBER: _ClassVar[int]
    use: _containers.RepeatedCompositeFieldContainer[KeyUse]
    def __init__(self, use: _Optional[_Iterable[_Union[KeyUse, _Mapping]]] = ...) -> None: ...

class ReportKeyUsageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProvisionScopeRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class RotateScopeRequest(_message.Message):
    __slots__ = ("scope", "emergency")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EMERGENCY_FIELD_NUMBER: _ClassVar[int]
    scope: str
    emergency: bool
    def __init__(self, scope: _Optional[str] = ..., emergency: _Optional[bool] = ...) -> None: ...

class SignRequest(_message.Message):
    __slots__ = ("scope", "key_id", "message")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    key_id: str
    message: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, scope: _Optional[str] = ..., key_id: _Optional[str] = ..., message: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SignResponse(_message.Message):
    __slots__ = ("key_id", "signature")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    signature: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, key_id: _Optional[str] = ..., signature: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetPublicKeysRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class PublicKey(_message.Message):
    __slots__ = ("key_id", "public_key", "valid_from_unix_ns", "valid_until_unix_ns", "signs_from_unix_ns")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    VALID_FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SIGNS_FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    public_key: bytes
    valid_from_unix_ns: int
    valid_until_unix_ns: int
    signs_from_unix_ns: int
    def __init__(self, key_id: _Optional[str] = ..., public_key: _Optional[bytes] = ..., valid_from_unix_ns: _Optional[int] = ..., valid_until_unix_ns: _Optional[int] = ..., signs_from_unix_ns: _Optional[int] = ...) -> None: ...

class PublicKeys(_message.Message):
    __slots__ = ("scope", "key", "active_key_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    scope: str
    key: _containers.RepeatedCompositeFieldContainer[PublicKey]
    active_key_id: str
    def __init__(self, scope: _Optional[str] = ..., key: _Optional[_Iterable[_Union[PublicKey, _Mapping]]] = ..., active_key_id: _Optional[str] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("since", "epoch", "limit")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since: int
    epoch: int
    limit: int
    def __init__(self, since: _Optional[int] = ..., epoch: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("seq", "name", "at_unix_ns", "fields")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    name: str
    at_unix_ns: int
    fields: str
    def __init__(self, seq: _Optional[int] = ..., name: _Optional[str] = ..., at_unix_ns: _Optional[int] = ..., fields: _Optional[str] = ...) -> None: ...

class EventsResponse(_message.Message):
    __slots__ = ("epoch", "event", "missed", "more")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    event: _containers.RepeatedCompositeFieldContainer[Event]
    missed: int
    more: bool
    def __init__(self, epoch: _Optional[int] = ..., event: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., missed: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...
