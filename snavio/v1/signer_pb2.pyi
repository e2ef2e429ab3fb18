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
    __slots__ = ("version", "serial", "revoked", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    serial: _containers.RepeatedScalarFieldContainer[str]
    revoked: _containers.RepeatedCompositeFieldContainer[RevokedSubject]
    more: bool
    def __init__(self, version: _Optional[int] = ..., serial: _Optional[_Iterable[str]] = ..., revoked: _Optional[_Iterable[_Union[RevokedSubject, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class RevokedSubject(_message.Message):
    __slots__ = ("subject", "issued_before_unix_ns")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ISSUED_BEFORE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    issued_before_unix_ns: int
    def __init__(self, subject: _Optional[str] = ..., issued_before_unix_ns: _Optional[int] = ...) -> None: ...

class DenylistRequest(_message.Message):
    __slots__ = ("since_version",)
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    def __init__(self, since_version: _Optional[int] = ...) -> None: ...

class DenylistResponse(_message.Message):
    __slots__ = ("version", "serial", "more", "revoked")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    version: int
    serial: _containers.RepeatedScalarFieldContainer[str]
    more: bool
    revoked: _containers.RepeatedCompositeFieldContainer[RevokedSubject]
    def __init__(self, version: _Optional[int] = ..., serial: _Optional[_Iterable[str]] = ..., more: _Optional[bool] = ..., revoked: _Optional[_Iterable[_Union[RevokedSubject, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("keyset", "primary", "last_poll_unix_ns", "next_rotation_unix_ns", "use", "observed_since_unix_ns", "now_unix_ns", "holder", "rehearsal")
    KEYSET_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    LAST_POLL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROTATION_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOW_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    keyset: Keyset
    primary: str
    last_poll_unix_ns: int
    next_rotation_unix_ns: int
    use: _containers.RepeatedCompositeFieldContainer[KeyVersionUse]
    observed_since_unix_ns: int
    now_unix_ns: int
    holder: _containers.RepeatedCompositeFieldContainer[KeyHolder]
    rehearsal: KeyRehearsal
    def __init__(self, keyset: _Optional[_Union[Keyset, _Mapping]] = ..., primary: _Optional[str] = ..., last_poll_unix_ns: _Optional[int] = ..., next_rotation_unix_ns: _Optional[int] = ..., use: _Optional[_Iterable[_Union[KeyVersionUse, _Mapping]]] = ..., observed_since_unix_ns: _Optional[int] = ..., now_unix_ns: _Optional[int] = ..., holder: _Optional[_Iterable[_Union[KeyHolder, _Mapping]]] = ..., rehearsal: _Optional[_Union[KeyRehearsal, _Mapping]] = ...) -> None: ...

class KeyRehearsal(_message.Message):
    __slots__ = ("minimum", "since_unix_ns", "would_refuse", "last_unix_ns")
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    WOULD_REFUSE_FIELD_NUMBER: _ClassVar[int]
    LAST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    minimum: str
    since_unix_ns: int
    would_refuse: int
    last_unix_ns: int
    def __init__(self, minimum: _Optional[str] = ..., since_unix_ns: _Optional[int] = ..., would_refuse: _Optional[int] = ..., last_unix_ns: _Optional[int] = ...) -> None: ...

class KeyHolder(_message.Message):
    __slots__ = ("name", "up_to_date", "heard_unix_ns", "ends_unix_ns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UP_TO_DATE_FIELD_NUMBER: _ClassVar[int]
    HEARD_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ENDS_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    name: str
    up_to_date: bool
    heard_unix_ns: int
    ends_unix_ns: int
    def __init__(self, name: _Optional[str] = ..., up_to_date: _Optional[bool] = ..., heard_unix_ns: _Optional[int] = ..., ends_unix_ns: _Optional[int] = ...) -> None: ...

class KeyVersionUse(_message.Message):
    __slots__ = ("version", "last_hour", "last_day", "last_used_unix_ns", "safe_to_retire", "retire_reason", "last_two_days")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_HOUR_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SAFE_TO_RETIRE_FIELD_NUMBER: _ClassVar[int]
    RETIRE_REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_TWO_DAYS_FIELD_NUMBER: _ClassVar[int]
    version: str
    last_hour: int
    last_day: int
    last_used_unix_ns: int
    safe_to_retire: bool
    retire_reason: str
    last_two_days: int
    def __init__(self, version: _Optional[str] = ..., last_hour: _Optional[int] = ..., last_day: _Optional[int] = ..., last_used_unix_ns: _Optional[int] = ..., safe_to_retire: _Optional[bool] = ..., retire_reason: _Optional[str] = ..., last_two_days: _Optional[int] = ...) -> None: ...

class KeysetChangesRequest(_message.Message):
    __slots__ = ("since_version", "limit", "holder", "store_epoch", "good_for_ms")
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GOOD_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    limit: int
    holder: str
    store_epoch: int
    good_for_ms: int
    def __init__(self, since_version: _Optional[int] = ..., limit: _Optional[int] = ..., holder: _Optional[str] = ..., store_epoch: _Optional[int] = ..., good_for_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("tenant", "principal", "ttl_seconds", "on_behalf_of")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal: str
    ttl_seconds: int
    on_behalf_of: str
    def __init__(self, tenant: _Optional[str] = ..., principal: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., on_behalf_of: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("serial", "revoked", "more")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    serial: _containers.RepeatedScalarFieldContainer[str]
    revoked: _containers.RepeatedCompositeFieldContainer[RevokedSubject]
    more: bool
    def __init__(self, serial: _Optional[_Iterable[str]] = ..., revoked: _Optional[_Iterable[_Union[RevokedSubject, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("serial", "spiffe_id", "issued_to", "parent_serial", "issued_unix_ns", "not_after_unix_ns", "revoked", "barred", "root_serial")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUED_TO_FIELD_NUMBER: _ClassVar[int]
    PARENT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    BARRED_FIELD_NUMBER: _ClassVar[int]
    ROOT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    serial: str
    spiffe_id: str
    issued_to: str
    parent_serial: str
    issued_unix_ns: int
    not_after_unix_ns: int
    revoked: bool
    barred: bool
    root_serial: str
    def __init__(self, serial: _Optional[str] = ..., spiffe_id: _Optional[str] = ..., issued_to: _Optional[str] = ..., parent_serial: _Optional[str] = ..., issued_unix_ns: _Optional[int] = ..., not_after_unix_ns: _Optional[int] = ..., revoked: _Optional[bool] = ..., barred: _Optional[bool] = ..., root_serial: _Optional[str] = ...) -> None: ...

class ListCertificatesRequest(_message.Message):
    __slots__ = ("spiffe_id", "after_serial", "limit", "serial_prefix")
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SERIAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SERIAL_PREFIX_FIELD_NUMBER: _ClassVar[int]
    spiffe_id: str
    after_serial: str
    limit: int
    serial_prefix: str
    def __init__(self, spiffe_id: _Optional[str] = ..., after_serial: _Optional[str] = ..., limit: _Optional[int] = ..., serial_prefix: _Optional[str] = ...) -> None: ...

class ListCertificatesResponse(_message.Message):
    __slots__ = ("certificate", "more")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    certificate: _containers.RepeatedCompositeFieldContainer[CertificateRecord]
    more: bool
    def __init__(self, certificate: _Optional[_Iterable[_Union[CertificateRecord, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class SetMinimumKeyRequest(_message.Message):
    __slots__ = ("source", "key_version", "rehearse")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    REHEARSE_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    rehearse: bool
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ..., rehearse: _Optional[bool] = ...) -> None: ...

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

class ScopeMessages(_message.Message):
    __slots__ = ("scope", "key_id", "message")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    key_id: str
    message: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, scope: _Optional[str] = ..., key_id: _Optional[str] = ..., message: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SignManyRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: _containers.RepeatedCompositeFieldContainer[ScopeMessages]
    def __init__(self, scope: _Optional[_Iterable[_Union[ScopeMessages, _Mapping]]] = ...) -> None: ...

class ScopeSignatures(_message.Message):
    __slots__ = ("key_id", "signature", "reason")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    signature: _containers.RepeatedScalarFieldContainer[bytes]
    reason: str
    def __init__(self, key_id: _Optional[str] = ..., signature: _Optional[_Iterable[bytes]] = ..., reason: _Optional[str] = ...) -> None: ...

class SignManyResponse(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: _containers.RepeatedCompositeFieldContainer[ScopeSignatures]
    def __init__(self, scope: _Optional[_Iterable[_Union[ScopeSignatures, _Mapping]]] = ...) -> None: ...

class GetPublicKeysRequest(_message.Message):
    __slots__ = ("scope", "include_ended")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ENDED_FIELD_NUMBER: _ClassVar[int]
    scope: str
    include_ended: bool
    def __init__(self, scope: _Optional[str] = ..., include_ended: _Optional[bool] = ...) -> None: ...

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

class SnapshotKeyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotKeyResponse(_message.Message):
    __slots__ = ("key", "platform")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    platform: PublicKeys
    def __init__(self, key: _Optional[bytes] = ..., platform: _Optional[_Union[PublicKeys, _Mapping]] = ...) -> None: ...

class IssueCapabilityRequest(_message.Message):
    __slots__ = ("realm", "operation", "holder", "ttl_seconds", "quota_messages", "quota_interval_ms")
    REALM_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    realm: str
    operation: _containers.RepeatedScalarFieldContainer[str]
    holder: str
    ttl_seconds: int
    quota_messages: int
    quota_interval_ms: int
    def __init__(self, realm: _Optional[str] = ..., operation: _Optional[_Iterable[str]] = ..., holder: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., quota_messages: _Optional[int] = ..., quota_interval_ms: _Optional[int] = ...) -> None: ...

class IssueCapabilityResponse(_message.Message):
    __slots__ = ("capability", "id", "ttl_seconds", "expires_unix_ns")
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    capability: str
    id: str
    ttl_seconds: int
    expires_unix_ns: int
    def __init__(self, capability: _Optional[str] = ..., id: _Optional[str] = ..., ttl_seconds: _Optional[int] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class RootVersion(_message.Message):
    __slots__ = ("realm", "version")
    REALM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    realm: str
    version: int
    def __init__(self, realm: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RevokeCapabilityRequest(_message.Message):
    __slots__ = ("id", "holder", "root", "reason", "bar", "restore")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BAR_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    holder: str
    root: RootVersion
    reason: str
    bar: bool
    restore: bool
    def __init__(self, id: _Optional[str] = ..., holder: _Optional[str] = ..., root: _Optional[_Union[RootVersion, _Mapping]] = ..., reason: _Optional[str] = ..., bar: _Optional[bool] = ..., restore: _Optional[bool] = ...) -> None: ...

class RevokeCapabilityResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ListCapabilitiesRequest(_message.Message):
    __slots__ = ("realm", "holder", "after_id", "limit")
    REALM_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    realm: str
    holder: str
    after_id: str
    limit: int
    def __init__(self, realm: _Optional[str] = ..., holder: _Optional[str] = ..., after_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class CapabilityRecord(_message.Message):
    __slots__ = ("id", "realm", "operation", "holder", "issued_to", "root_version", "issued_unix_ns", "expires_unix_ns", "revoked")
    ID_FIELD_NUMBER: _ClassVar[int]
    REALM_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ISSUED_TO_FIELD_NUMBER: _ClassVar[int]
    ROOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    id: str
    realm: str
    operation: _containers.RepeatedScalarFieldContainer[str]
    holder: str
    issued_to: str
    root_version: int
    issued_unix_ns: int
    expires_unix_ns: int
    revoked: bool
    def __init__(self, id: _Optional[str] = ..., realm: _Optional[str] = ..., operation: _Optional[_Iterable[str]] = ..., holder: _Optional[str] = ..., issued_to: _Optional[str] = ..., root_version: _Optional[int] = ..., issued_unix_ns: _Optional[int] = ..., expires_unix_ns: _Optional[int] = ..., revoked: _Optional[bool] = ...) -> None: ...

class ListCapabilitiesResponse(_message.Message):
    __slots__ = ("capability", "more")
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    capability: _containers.RepeatedCompositeFieldContainer[CapabilityRecord]
    more: bool
    def __init__(self, capability: _Optional[_Iterable[_Union[CapabilityRecord, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class RotateCapabilityRootRequest(_message.Message):
    __slots__ = ("realm",)
    REALM_FIELD_NUMBER: _ClassVar[int]
    realm: str
    def __init__(self, realm: _Optional[str] = ...) -> None: ...

class RotateCapabilityRootResponse(_message.Message):
    __slots__ = ("version", "overlap_until_unix_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    overlap_until_unix_ns: int
    def __init__(self, version: _Optional[int] = ..., overlap_until_unix_ns: _Optional[int] = ...) -> None: ...

class MailboxRootsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MailboxRoot(_message.Message):
    __slots__ = ("root", "secret", "ends_unix_ns")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    ENDS_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    root: str
    secret: bytes
    ends_unix_ns: int
    def __init__(self, root: _Optional[str] = ..., secret: _Optional[bytes] = ..., ends_unix_ns: _Optional[int] = ...) -> None: ...

class MailboxRootsResponse(_message.Message):
    __slots__ = ("root", "max_ttl_seconds")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    MAX_TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    root: _containers.RepeatedCompositeFieldContainer[MailboxRoot]
    max_ttl_seconds: int
    def __init__(self, root: _Optional[_Iterable[_Union[MailboxRoot, _Mapping]]] = ..., max_ttl_seconds: _Optional[int] = ...) -> None: ...

class CapabilityRevocationsRequest(_message.Message):
    __slots__ = ("since_version", "epoch")
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    epoch: int
    def __init__(self, since_version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class RevokedCapability(_message.Message):
    __slots__ = ("id", "forget_unix_ns")
    ID_FIELD_NUMBER: _ClassVar[int]
    FORGET_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    id: str
    forget_unix_ns: int
    def __init__(self, id: _Optional[str] = ..., forget_unix_ns: _Optional[int] = ...) -> None: ...

class RevokedHolder(_message.Message):
    __slots__ = ("holder", "issued_until_unix_ms", "forget_unix_ns")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    FORGET_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    holder: str
    issued_until_unix_ms: int
    forget_unix_ns: int
    def __init__(self, holder: _Optional[str] = ..., issued_until_unix_ms: _Optional[int] = ..., forget_unix_ns: _Optional[int] = ...) -> None: ...

class RootLine(_message.Message):
    __slots__ = ("realm", "version", "minimum", "old_version", "old_ends_unix_ns")
    REALM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    OLD_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLD_ENDS_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    realm: str
    version: int
    minimum: int
    old_version: _containers.RepeatedScalarFieldContainer[int]
    old_ends_unix_ns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, realm: _Optional[str] = ..., version: _Optional[int] = ..., minimum: _Optional[int] = ..., old_version: _Optional[_Iterable[int]] = ..., old_ends_unix_ns: _Optional[_Iterable[int]] = ...) -> None: ...

class CapabilityRevocationsResponse(_message.Message):
    __slots__ = ("version", "epoch", "capability", "holder", "line", "root", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    epoch: int
    capability: _containers.RepeatedCompositeFieldContainer[RevokedCapability]
    holder: _containers.RepeatedCompositeFieldContainer[RevokedHolder]
    line: _containers.RepeatedCompositeFieldContainer[RootLine]
    root: _containers.RepeatedScalarFieldContainer[str]
    more: bool
    def __init__(self, version: _Optional[int] = ..., epoch: _Optional[int] = ..., capability: _Optional[_Iterable[_Union[RevokedCapability, _Mapping]]] = ..., holder: _Optional[_Iterable[_Union[RevokedHolder, _Mapping]]] = ..., line: _Optional[_Iterable[_Union[RootLine, _Mapping]]] = ..., root: _Optional[_Iterable[str]] = ..., more: _Optional[bool] = ...) -> None: ...

class CheckCapabilityRequest(_message.Message):
    __slots__ = ("capability", "holder", "operation", "topic")
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    capability: str
    holder: str
    operation: str
    topic: str
    def __init__(self, capability: _Optional[str] = ..., holder: _Optional[str] = ..., operation: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class CheckCapabilityResponse(_message.Message):
    __slots__ = ("expires_unix_ns", "narrowed_to_sources", "source", "narrowed_to_families", "family")
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NARROWED_TO_SOURCES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NARROWED_TO_FAMILIES_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    expires_unix_ns: int
    narrowed_to_sources: bool
    source: _containers.RepeatedScalarFieldContainer[str]
    narrowed_to_families: bool
    family: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, expires_unix_ns: _Optional[int] = ..., narrowed_to_sources: _Optional[bool] = ..., source: _Optional[_Iterable[str]] = ..., narrowed_to_families: _Optional[bool] = ..., family: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateJoiningRequest(_message.Message):
    __slots__ = ("service", "ttl_seconds")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    service: str
    ttl_seconds: int
    def __init__(self, service: _Optional[str] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class CreateJoiningResponse(_message.Message):
    __slots__ = ("token", "expires_unix_ns")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    token: str
    expires_unix_ns: int
    def __init__(self, token: _Optional[str] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...
