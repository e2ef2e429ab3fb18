from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_SKEW_NEAR_LIMIT: _ClassVar[EventKind]
    EVENT_KIND_SKEW_SAMPLE: _ClassVar[EventKind]
    EVENT_KIND_WARM_PATH_BAN: _ClassVar[EventKind]

class CachePhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_PHASE_UNSPECIFIED: _ClassVar[CachePhase]
    CACHE_PHASE_FRESH: _ClassVar[CachePhase]
    CACHE_PHASE_STALE: _ClassVar[CachePhase]
    CACHE_PHASE_EXPIRED: _ClassVar[CachePhase]

class GrantKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRANT_KIND_UNSPECIFIED: _ClassVar[GrantKind]
    GRANT_KIND_UNLIMITED: _ClassVar[GrantKind]
    GRANT_KIND_PREFETCHED: _ClassVar[GrantKind]
    GRANT_KIND_ARBITRATED: _ClassVar[GrantKind]
    GRANT_KIND_SHADOW: _ClassVar[GrantKind]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_SKEW_NEAR_LIMIT: EventKind
EVENT_KIND_SKEW_SAMPLE: EventKind
EVENT_KIND_WARM_PATH_BAN: EventKind
CACHE_PHASE_UNSPECIFIED: CachePhase
CACHE_PHASE_FRESH: CachePhase
CACHE_PHASE_STALE: CachePhase
CACHE_PHASE_EXPIRED: CachePhase
GRANT_KIND_UNSPECIFIED: GrantKind
GRANT_KIND_UNLIMITED: GrantKind
GRANT_KIND_PREFETCHED: GrantKind
GRANT_KIND_ARBITRATED: GrantKind
GRANT_KIND_SHADOW: GrantKind

class TelemetryBlock(_message.Message):
    __slots__ = ("service", "settled_unix_ns", "dictionary", "command_id", "verdict", "sent_unix_ns", "kind", "lane", "run", "lanes", "runs", "details", "event")
    class Lane(_message.Message):
        __slots__ = ("source", "target", "name", "topic", "acl_age_ms", "acl_version", "escalation", "phase", "grant")
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        TARGET_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        ACL_AGE_MS_FIELD_NUMBER: _ClassVar[int]
        ACL_VERSION_FIELD_NUMBER: _ClassVar[int]
        ESCALATION_FIELD_NUMBER: _ClassVar[int]
        PHASE_FIELD_NUMBER: _ClassVar[int]
        GRANT_FIELD_NUMBER: _ClassVar[int]
        source: int
        target: int
        name: int
        topic: int
        acl_age_ms: int
        acl_version: int
        escalation: int
        phase: CachePhase
        grant: GrantKind
        def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ..., name: _Optional[int] = ..., topic: _Optional[int] = ..., acl_age_ms: _Optional[int] = ..., acl_version: _Optional[int] = ..., escalation: _Optional[int] = ..., phase: _Optional[_Union[CachePhase, str]] = ..., grant: _Optional[_Union[GrantKind, str]] = ...) -> None: ...
    class Run(_message.Message):
        __slots__ = ("key_version", "admitted_unix_ns")
        KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
        ADMITTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
        key_version: int
        admitted_unix_ns: int
        def __init__(self, key_version: _Optional[int] = ..., admitted_unix_ns: _Optional[int] = ...) -> None: ...
    class Detail(_message.Message):
        __slots__ = ("row", "alike", "retry_after_ms", "throttle_until_unix_ns", "source_share", "competing_share", "dispatch_volume", "count", "detail")
        ROW_FIELD_NUMBER: _ClassVar[int]
        ALIKE_FIELD_NUMBER: _ClassVar[int]
        RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
        THROTTLE_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
        SOURCE_SHARE_FIELD_NUMBER: _ClassVar[int]
        COMPETING_SHARE_FIELD_NUMBER: _ClassVar[int]
        DISPATCH_VOLUME_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        DETAIL_FIELD_NUMBER: _ClassVar[int]
        row: int
        alike: bool
        retry_after_ms: int
        throttle_until_unix_ns: int
        source_share: float
        competing_share: float
        dispatch_volume: int
        count: int
        detail: str
        def __init__(self, row: _Optional[int] = ..., alike: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., throttle_until_unix_ns: _Optional[int] = ..., source_share: _Optional[float] = ..., competing_share: _Optional[float] = ..., dispatch_volume: _Optional[int] = ..., count: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...
    class Event(_message.Message):
        __slots__ = ("at_unix_ns", "name", "fields")
        AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        FIELDS_FIELD_NUMBER: _ClassVar[int]
        at_unix_ns: int
        name: str
        fields: bytes
        def __init__(self, at_unix_ns: _Optional[int] = ..., name: _Optional[str] = ..., fields: _Optional[bytes] = ...) -> None: ...
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    service: str
    settled_unix_ns: int
    dictionary: _containers.RepeatedScalarFieldContainer[str]
    command_id: bytes
    verdict: bytes
    sent_unix_ns: _containers.RepeatedScalarFieldContainer[int]
    kind: bytes
    lane: _containers.RepeatedScalarFieldContainer[int]
    run: _containers.RepeatedScalarFieldContainer[int]
    lanes: _containers.RepeatedCompositeFieldContainer[TelemetryBlock.Lane]
    runs: _containers.RepeatedCompositeFieldContainer[TelemetryBlock.Run]
    details: _containers.RepeatedCompositeFieldContainer[TelemetryBlock.Detail]
    event: _containers.RepeatedCompositeFieldContainer[TelemetryBlock.Event]
    def __init__(self, service: _Optional[str] = ..., settled_unix_ns: _Optional[int] = ..., dictionary: _Optional[_Iterable[str]] = ..., command_id: _Optional[bytes] = ..., verdict: _Optional[bytes] = ..., sent_unix_ns: _Optional[_Iterable[int]] = ..., kind: _Optional[bytes] = ..., lane: _Optional[_Iterable[int]] = ..., run: _Optional[_Iterable[int]] = ..., lanes: _Optional[_Iterable[_Union[TelemetryBlock.Lane, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[TelemetryBlock.Run, _Mapping]]] = ..., details: _Optional[_Iterable[_Union[TelemetryBlock.Detail, _Mapping]]] = ..., event: _Optional[_Iterable[_Union[TelemetryBlock.Event, _Mapping]]] = ...) -> None: ...
