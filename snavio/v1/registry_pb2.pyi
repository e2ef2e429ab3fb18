from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Profile(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_UNSPECIFIED: _ClassVar[Profile]
    PROFILE_CRITICAL: _ClassVar[Profile]
    PROFILE_MODERATE: _ClassVar[Profile]
    PROFILE_LOW: _ClassVar[Profile]
    PROFILE_SYNC: _ClassVar[Profile]

class DedupeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEDUPE_MODE_UNSPECIFIED: _ClassVar[DedupeMode]
    DEDUPE_MODE_NONE: _ClassVar[DedupeMode]
    DEDUPE_MODE_STRICT: _ClassVar[DedupeMode]

class QueueKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUEUE_KIND_UNSPECIFIED: _ClassVar[QueueKind]
    QUEUE_KIND_MAILBOX: _ClassVar[QueueKind]
PROFILE_UNSPECIFIED: Profile
PROFILE_CRITICAL: Profile
PROFILE_MODERATE: Profile
PROFILE_LOW: Profile
PROFILE_SYNC: Profile
DEDUPE_MODE_UNSPECIFIED: DedupeMode
DEDUPE_MODE_NONE: DedupeMode
DEDUPE_MODE_STRICT: DedupeMode
QUEUE_KIND_UNSPECIFIED: QueueKind
QUEUE_KIND_MAILBOX: QueueKind

class Tenant(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("tenant", "service", "principal")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    service: str
    principal: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., service: _Optional[str] = ..., principal: _Optional[_Iterable[str]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("target", "tenant")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    target: str
    tenant: str
    def __init__(self, target: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("target", "name", "queue_kind", "topic", "profile", "dedupe_mode", "expected_drain_seconds")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    DEDUPE_MODE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    queue_kind: QueueKind
    topic: str
    profile: Profile
    dedupe_mode: DedupeMode
    expected_drain_seconds: int
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., queue_kind: _Optional[_Union[QueueKind, str]] = ..., topic: _Optional[str] = ..., profile: _Optional[_Union[Profile, str]] = ..., dedupe_mode: _Optional[_Union[DedupeMode, str]] = ..., expected_drain_seconds: _Optional[int] = ...) -> None: ...

class AclEntry(_message.Message):
    __slots__ = ("source", "target", "name")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Suspension(_message.Message):
    __slots__ = ("source", "reason")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    source: str
    reason: str
    def __init__(self, source: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("version", "at_unix_ns", "actor", "deleted", "tenant", "service", "target", "route", "acl", "suspension")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    at_unix_ns: int
    actor: str
    deleted: bool
    tenant: Tenant
    service: Service
    target: Target
    route: Route
    acl: AclEntry
    suspension: Suspension
    def __init__(self, version: _Optional[int] = ..., at_unix_ns: _Optional[int] = ..., actor: _Optional[str] = ..., deleted: _Optional[bool] = ..., tenant: _Optional[_Union[Tenant, _Mapping]] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., route: _Optional[_Union[Route, _Mapping]] = ..., acl: _Optional[_Union[AclEntry, _Mapping]] = ..., suspension: _Optional[_Union[Suspension, _Mapping]] = ...) -> None: ...

class CreateTenantRequest(_message.Message):
    __slots__ = ("tenant", "principal")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    principal: str
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., principal: _Optional[str] = ...) -> None: ...

class CreateTenantResponse(_message.Message):
    __slots__ = ("version", "changed", "enrolment_token", "enrolment_expires_unix_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    ENROLMENT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ENROLMENT_EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    enrolment_token: str
    enrolment_expires_unix_ns: int
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[bool] = ..., enrolment_token: _Optional[str] = ..., enrolment_expires_unix_ns: _Optional[int] = ...) -> None: ...

class RegisterServiceRequest(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: Service
    def __init__(self, service: _Optional[_Union[Service, _Mapping]] = ...) -> None: ...

class ClaimTargetRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class PutRouteRequest(_message.Message):
    __slots__ = ("route",)
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ...) -> None: ...

class DeleteRouteRequest(_message.Message):
    __slots__ = ("target", "name")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GrantAccessRequest(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ...) -> None: ...

class RevokeAccessRequest(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ...) -> None: ...

class SetSuspensionRequest(_message.Message):
    __slots__ = ("suspension", "suspended")
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    suspension: Suspension
    suspended: bool
    def __init__(self, suspension: _Optional[_Union[Suspension, _Mapping]] = ..., suspended: _Optional[bool] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("version", "changed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[bool] = ...) -> None: ...

class ChangesRequest(_message.Message):
    __slots__ = ("since_version", "directory_epoch", "limit")
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    directory_epoch: int
    limit: int
    def __init__(self, since_version: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ChangesResponse(_message.Message):
    __slots__ = ("version", "directory_epoch", "change", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    directory_epoch: int
    change: _containers.RepeatedCompositeFieldContainer[Change]
    more: bool
    def __init__(self, version: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., change: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ResolveKey(_message.Message):
    __slots__ = ("source", "target", "name")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ResolveRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedCompositeFieldContainer[ResolveKey]
    def __init__(self, key: _Optional[_Iterable[_Union[ResolveKey, _Mapping]]] = ...) -> None: ...

class Resolution(_message.Message):
    __slots__ = ("route", "allowed", "suspended")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    route: Route
    allowed: bool
    suspended: bool
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., allowed: _Optional[bool] = ..., suspended: _Optional[bool] = ...) -> None: ...

class ResolveResponse(_message.Message):
    __slots__ = ("version", "resolution")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    version: int
    resolution: _containers.RepeatedCompositeFieldContainer[Resolution]
    def __init__(self, version: _Optional[int] = ..., resolution: _Optional[_Iterable[_Union[Resolution, _Mapping]]] = ...) -> None: ...
