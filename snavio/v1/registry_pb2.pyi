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

class DispatchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISPATCH_MODE_UNSPECIFIED: _ClassVar[DispatchMode]
    DISPATCH_MODE_ADAPTIVE: _ClassVar[DispatchMode]
    DISPATCH_MODE_COLD_ONLY: _ClassVar[DispatchMode]

class QueueKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUEUE_KIND_UNSPECIFIED: _ClassVar[QueueKind]
    QUEUE_KIND_MAILBOX: _ClassVar[QueueKind]
    QUEUE_KIND_REDIS: _ClassVar[QueueKind]
    QUEUE_KIND_SQS: _ClassVar[QueueKind]

class RequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATE_UNSPECIFIED: _ClassVar[RequestState]
    REQUEST_STATE_PENDING: _ClassVar[RequestState]
    REQUEST_STATE_GRANTED: _ClassVar[RequestState]
    REQUEST_STATE_DECLINED: _ClassVar[RequestState]

class BanList(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BAN_LIST_UNSPECIFIED: _ClassVar[BanList]
    BAN_LIST_WARM_BAN: _ClassVar[BanList]
    BAN_LIST_COLD_ONLY: _ClassVar[BanList]
    BAN_LIST_FROZEN: _ClassVar[BanList]

class ProposalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROPOSAL_STATE_UNSPECIFIED: _ClassVar[ProposalState]
    PROPOSAL_STATE_APPLIED: _ClassVar[ProposalState]
    PROPOSAL_STATE_CONFIRMED: _ClassVar[ProposalState]
    PROPOSAL_STATE_WITHDRAWN: _ClassVar[ProposalState]
    PROPOSAL_STATE_LIFTED: _ClassVar[ProposalState]

class ProposalDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROPOSAL_DECISION_UNSPECIFIED: _ClassVar[ProposalDecision]
    PROPOSAL_DECISION_APPLIED: _ClassVar[ProposalDecision]
    PROPOSAL_DECISION_ALREADY: _ClassVar[ProposalDecision]
    PROPOSAL_DECISION_REFUSED: _ClassVar[ProposalDecision]

class ChannelKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANNEL_KIND_UNSPECIFIED: _ClassVar[ChannelKind]
    CHANNEL_KIND_DASHBOARD: _ClassVar[ChannelKind]
    CHANNEL_KIND_EMAIL: _ClassVar[ChannelKind]
    CHANNEL_KIND_WEBHOOK: _ClassVar[ChannelKind]

class GateState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_STATE_UNSPECIFIED: _ClassVar[GateState]
    GATE_STATE_PASSES: _ClassVar[GateState]
    GATE_STATE_FAILS: _ClassVar[GateState]
    GATE_STATE_NOTE: _ClassVar[GateState]
    GATE_STATE_UNKNOWN: _ClassVar[GateState]
    GATE_STATE_HIDDEN: _ClassVar[GateState]

class WhenFull(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHEN_FULL_UNSPECIFIED: _ClassVar[WhenFull]
    WHEN_FULL_REFUSE: _ClassVar[WhenFull]
    WHEN_FULL_BURY_OLDEST: _ClassVar[WhenFull]

class EndpointMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDPOINT_MODE_UNSPECIFIED: _ClassVar[EndpointMode]
    ENDPOINT_MODE_PULL: _ClassVar[EndpointMode]
    ENDPOINT_MODE_DELIVER: _ClassVar[EndpointMode]
    ENDPOINT_MODE_COMMAND: _ClassVar[EndpointMode]
PROFILE_UNSPECIFIED: Profile
PROFILE_CRITICAL: Profile
PROFILE_MODERATE: Profile
PROFILE_LOW: Profile
PROFILE_SYNC: Profile
DEDUPE_MODE_UNSPECIFIED: DedupeMode
DEDUPE_MODE_NONE: DedupeMode
DEDUPE_MODE_STRICT: DedupeMode
DISPATCH_MODE_UNSPECIFIED: DispatchMode
DISPATCH_MODE_ADAPTIVE: DispatchMode
DISPATCH_MODE_COLD_ONLY: DispatchMode
QUEUE_KIND_UNSPECIFIED: QueueKind
QUEUE_KIND_MAILBOX: QueueKind
QUEUE_KIND_REDIS: QueueKind
QUEUE_KIND_SQS: QueueKind
REQUEST_STATE_UNSPECIFIED: RequestState
REQUEST_STATE_PENDING: RequestState
REQUEST_STATE_GRANTED: RequestState
REQUEST_STATE_DECLINED: RequestState
BAN_LIST_UNSPECIFIED: BanList
BAN_LIST_WARM_BAN: BanList
BAN_LIST_COLD_ONLY: BanList
BAN_LIST_FROZEN: BanList
PROPOSAL_STATE_UNSPECIFIED: ProposalState
PROPOSAL_STATE_APPLIED: ProposalState
PROPOSAL_STATE_CONFIRMED: ProposalState
PROPOSAL_STATE_WITHDRAWN: ProposalState
PROPOSAL_STATE_LIFTED: ProposalState
PROPOSAL_DECISION_UNSPECIFIED: ProposalDecision
PROPOSAL_DECISION_APPLIED: ProposalDecision
PROPOSAL_DECISION_ALREADY: ProposalDecision
PROPOSAL_DECISION_REFUSED: ProposalDecision
CHANNEL_KIND_UNSPECIFIED: ChannelKind
CHANNEL_KIND_DASHBOARD: ChannelKind
CHANNEL_KIND_EMAIL: ChannelKind
CHANNEL_KIND_WEBHOOK: ChannelKind
GATE_STATE_UNSPECIFIED: GateState
GATE_STATE_PASSES: GateState
GATE_STATE_FAILS: GateState
GATE_STATE_NOTE: GateState
GATE_STATE_UNKNOWN: GateState
GATE_STATE_HIDDEN: GateState
WHEN_FULL_UNSPECIFIED: WhenFull
WHEN_FULL_REFUSE: WhenFull
WHEN_FULL_BURY_OLDEST: WhenFull
ENDPOINT_MODE_UNSPECIFIED: EndpointMode
ENDPOINT_MODE_PULL: EndpointMode
ENDPOINT_MODE_DELIVER: EndpointMode
ENDPOINT_MODE_COMMAND: EndpointMode

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

class Principal(_message.Message):
    __slots__ = ("tenant", "principal")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal: str
    def __init__(self, tenant: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("target", "tenant")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    target: str
    tenant: str
    def __init__(self, target: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("max", "interval_seconds", "burst", "cooldown_seconds", "shadow", "leases", "by_profile")
    MAX_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    BY_PROFILE_FIELD_NUMBER: _ClassVar[int]
    max: int
    interval_seconds: int
    burst: int
    cooldown_seconds: int
    shadow: bool
    leases: int
    by_profile: bool
    def __init__(self, max: _Optional[int] = ..., interval_seconds: _Optional[int] = ..., burst: _Optional[int] = ..., cooldown_seconds: _Optional[int] = ..., shadow: _Optional[bool] = ..., leases: _Optional[int] = ..., by_profile: _Optional[bool] = ...) -> None: ...

class Fairness(_message.Message):
    __slots__ = ("window_seconds", "dominant_share", "competing_share", "competitors", "minimum_volume", "ban_seconds")
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DOMINANT_SHARE_FIELD_NUMBER: _ClassVar[int]
    COMPETING_SHARE_FIELD_NUMBER: _ClassVar[int]
    COMPETITORS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_VOLUME_FIELD_NUMBER: _ClassVar[int]
    BAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    window_seconds: int
    dominant_share: float
    competing_share: float
    competitors: int
    minimum_volume: int
    ban_seconds: int
    def __init__(self, window_seconds: _Optional[int] = ..., dominant_share: _Optional[float] = ..., competing_share: _Optional[float] = ..., competitors: _Optional[int] = ..., minimum_volume: _Optional[int] = ..., ban_seconds: _Optional[int] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("target", "name", "queue_kind", "topic", "profile", "dedupe_mode", "expected_drain_seconds", "dlq", "limit", "fairness", "ttl_seconds", "expires_unix_ns", "dispatch_mode")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    DEDUPE_MODE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_MODE_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    queue_kind: QueueKind
    topic: str
    profile: Profile
    dedupe_mode: DedupeMode
    expected_drain_seconds: int
    dlq: str
    limit: Limit
    fairness: Fairness
    ttl_seconds: int
    expires_unix_ns: int
    dispatch_mode: DispatchMode
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., queue_kind: _Optional[_Union[QueueKind, str]] = ..., topic: _Optional[str] = ..., profile: _Optional[_Union[Profile, str]] = ..., dedupe_mode: _Optional[_Union[DedupeMode, str]] = ..., expected_drain_seconds: _Optional[int] = ..., dlq: _Optional[str] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ..., fairness: _Optional[_Union[Fairness, _Mapping]] = ..., ttl_seconds: _Optional[int] = ..., expires_unix_ns: _Optional[int] = ..., dispatch_mode: _Optional[_Union[DispatchMode, str]] = ...) -> None: ...

class AclEntry(_message.Message):
    __slots__ = ("source", "target", "name", "profile", "ttl_seconds", "expires_unix_ns")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    profile: Profile
    ttl_seconds: int
    expires_unix_ns: int
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., profile: _Optional[_Union[Profile, str]] = ..., ttl_seconds: _Optional[int] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class AccessRequest(_message.Message):
    __slots__ = ("source", "target", "name", "reason", "state", "requested_by", "answer", "expires_unix_ns", "right_ended")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RIGHT_ENDED_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    reason: str
    state: RequestState
    requested_by: str
    answer: str
    expires_unix_ns: int
    right_ended: bool
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., state: _Optional[_Union[RequestState, str]] = ..., requested_by: _Optional[str] = ..., answer: _Optional[str] = ..., expires_unix_ns: _Optional[int] = ..., right_ended: _Optional[bool] = ...) -> None: ...

class SourceQuota(_message.Message):
    __slots__ = ("source", "target", "name", "max", "interval_seconds", "always", "burst", "cooldown_seconds", "shadow")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ALWAYS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    max: int
    interval_seconds: int
    always: bool
    burst: int
    cooldown_seconds: int
    shadow: bool
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., max: _Optional[int] = ..., interval_seconds: _Optional[int] = ..., always: _Optional[bool] = ..., burst: _Optional[int] = ..., cooldown_seconds: _Optional[int] = ..., shadow: _Optional[bool] = ...) -> None: ...

class ProfileLimit(_message.Message):
    __slots__ = ("target", "profile", "limit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    target: str
    profile: Profile
    limit: Limit
    def __init__(self, target: _Optional[str] = ..., profile: _Optional[_Union[Profile, str]] = ..., limit: _Optional[_Union[Limit, _Mapping]] = ...) -> None: ...

class AlertChannel(_message.Message):
    __slots__ = ("tenant", "name", "channel", "address")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    channel: ChannelKind
    address: str
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ..., channel: _Optional[_Union[ChannelKind, str]] = ..., address: _Optional[str] = ...) -> None: ...

class Ban(_message.Message):
    __slots__ = ("list", "source", "target", "name", "until_unix_ns", "reason", "evidence")
    LIST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    list: BanList
    source: str
    target: str
    name: str
    until_unix_ns: int
    reason: str
    evidence: str
    def __init__(self, list: _Optional[_Union[BanList, str]] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., until_unix_ns: _Optional[int] = ..., reason: _Optional[str] = ..., evidence: _Optional[str] = ...) -> None: ...

class Suspension(_message.Message):
    __slots__ = ("source", "reason", "until_unix_ns", "evidence")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    reason: str
    until_unix_ns: int
    evidence: str
    def __init__(self, source: _Optional[str] = ..., reason: _Optional[str] = ..., until_unix_ns: _Optional[int] = ..., evidence: _Optional[str] = ...) -> None: ...

class BanProposal(_message.Message):
    __slots__ = ("proposal_id", "policy_version", "kind", "source", "affected_target", "total_violations", "window_start_unix_ns", "window_end_unix_ns", "ban_applied_until_unix_ns", "evidence", "provisional", "state", "cover", "decided_unix_ns", "concluded_unix_ns", "opens_window", "announced_unix_ns", "expires_unix_ns")
    PROPOSAL_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AFFECTED_TARGET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    BAN_APPLIED_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    DECIDED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CONCLUDED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    OPENS_WINDOW_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    proposal_id: str
    policy_version: str
    kind: str
    source: str
    affected_target: _containers.RepeatedScalarFieldContainer[str]
    total_violations: int
    window_start_unix_ns: int
    window_end_unix_ns: int
    ban_applied_until_unix_ns: int
    evidence: str
    provisional: bool
    state: ProposalState
    cover: _containers.RepeatedScalarFieldContainer[str]
    decided_unix_ns: int
    concluded_unix_ns: int
    opens_window: bool
    announced_unix_ns: int
    expires_unix_ns: int
    def __init__(self, proposal_id: _Optional[str] = ..., policy_version: _Optional[str] = ..., kind: _Optional[str] = ..., source: _Optional[str] = ..., affected_target: _Optional[_Iterable[str]] = ..., total_violations: _Optional[int] = ..., window_start_unix_ns: _Optional[int] = ..., window_end_unix_ns: _Optional[int] = ..., ban_applied_until_unix_ns: _Optional[int] = ..., evidence: _Optional[str] = ..., provisional: _Optional[bool] = ..., state: _Optional[_Union[ProposalState, str]] = ..., cover: _Optional[_Iterable[str]] = ..., decided_unix_ns: _Optional[int] = ..., concluded_unix_ns: _Optional[int] = ..., opens_window: _Optional[bool] = ..., announced_unix_ns: _Optional[int] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class TopicRule(_message.Message):
    __slots__ = ("tenant", "topic", "capacity", "when_full", "max_attempts", "backoff_base_ms", "backoff_max_ms", "ready_s", "ready_messages", "inflight_visibilities", "delivered_s", "delivered_messages", "dlq_s", "dlq_messages", "replay_ms", "shards")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    WHEN_FULL_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_BASE_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    READY_S_FIELD_NUMBER: _ClassVar[int]
    READY_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_VISIBILITIES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_S_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DLQ_S_FIELD_NUMBER: _ClassVar[int]
    DLQ_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REPLAY_MS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    topic: str
    capacity: int
    when_full: WhenFull
    max_attempts: int
    backoff_base_ms: int
    backoff_max_ms: int
    ready_s: int
    ready_messages: int
    inflight_visibilities: int
    delivered_s: int
    delivered_messages: int
    dlq_s: int
    dlq_messages: int
    replay_ms: int
    shards: int
    def __init__(self, tenant: _Optional[str] = ..., topic: _Optional[str] = ..., capacity: _Optional[int] = ..., when_full: _Optional[_Union[WhenFull, str]] = ..., max_attempts: _Optional[int] = ..., backoff_base_ms: _Optional[int] = ..., backoff_max_ms: _Optional[int] = ..., ready_s: _Optional[int] = ..., ready_messages: _Optional[int] = ..., inflight_visibilities: _Optional[int] = ..., delivered_s: _Optional[int] = ..., delivered_messages: _Optional[int] = ..., dlq_s: _Optional[int] = ..., dlq_messages: _Optional[int] = ..., replay_ms: _Optional[int] = ..., shards: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("tenant", "route", "mode", "target", "application", "endpoint_name", "publish", "publish_direct", "publish_managed", "topic", "fingerprint")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_DIRECT_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_MANAGED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    route: str
    mode: EndpointMode
    target: _containers.RepeatedScalarFieldContainer[str]
    application: str
    endpoint_name: str
    publish: bool
    publish_direct: bool
    publish_managed: bool
    topic: _containers.RepeatedScalarFieldContainer[str]
    fingerprint: str
    def __init__(self, tenant: _Optional[str] = ..., route: _Optional[str] = ..., mode: _Optional[_Union[EndpointMode, str]] = ..., target: _Optional[_Iterable[str]] = ..., application: _Optional[str] = ..., endpoint_name: _Optional[str] = ..., publish: _Optional[bool] = ..., publish_direct: _Optional[bool] = ..., publish_managed: _Optional[bool] = ..., topic: _Optional[_Iterable[str]] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("tenant", "principal", "service", "target", "route", "acl", "access_request", "source_quota", "alert_channel", "ban", "suspension", "ban_proposal", "profile_limit", "topic_rule", "endpoint")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    ACCESS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    ALERT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BAN_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    BAN_PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_RULE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    principal: Principal
    service: Service
    target: Target
    route: Route
    acl: AclEntry
    access_request: AccessRequest
    source_quota: SourceQuota
    alert_channel: AlertChannel
    ban: Ban
    suspension: Suspension
    ban_proposal: BanProposal
    profile_limit: ProfileLimit
    topic_rule: TopicRule
    endpoint: Endpoint
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., principal: _Optional[_Union[Principal, _Mapping]] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., route: _Optional[_Union[Route, _Mapping]] = ..., acl: _Optional[_Union[AclEntry, _Mapping]] = ..., access_request: _Optional[_Union[AccessRequest, _Mapping]] = ..., source_quota: _Optional[_Union[SourceQuota, _Mapping]] = ..., alert_channel: _Optional[_Union[AlertChannel, _Mapping]] = ..., ban: _Optional[_Union[Ban, _Mapping]] = ..., suspension: _Optional[_Union[Suspension, _Mapping]] = ..., ban_proposal: _Optional[_Union[BanProposal, _Mapping]] = ..., profile_limit: _Optional[_Union[ProfileLimit, _Mapping]] = ..., topic_rule: _Optional[_Union[TopicRule, _Mapping]] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class WriteOptions(_message.Message):
    __slots__ = ("reason", "expected_version")
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    reason: str
    expected_version: int
    def __init__(self, reason: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("version", "at_unix_ns", "actor", "deleted", "tenant", "service", "target", "route", "acl", "suspension", "principal", "access_request", "source_quota", "alert_channel", "ban", "ban_proposal", "profile_limit", "topic_rule", "endpoint", "reason", "before")
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
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACCESS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    ALERT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    BAN_FIELD_NUMBER: _ClassVar[int]
    BAN_PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_RULE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
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
    principal: Principal
    access_request: AccessRequest
    source_quota: SourceQuota
    alert_channel: AlertChannel
    ban: Ban
    ban_proposal: BanProposal
    profile_limit: ProfileLimit
    topic_rule: TopicRule
    endpoint: Endpoint
    reason: str
    before: Entry
    def __init__(self, version: _Optional[int] = ..., at_unix_ns: _Optional[int] = ..., actor: _Optional[str] = ..., deleted: _Optional[bool] = ..., tenant: _Optional[_Union[Tenant, _Mapping]] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., route: _Optional[_Union[Route, _Mapping]] = ..., acl: _Optional[_Union[AclEntry, _Mapping]] = ..., suspension: _Optional[_Union[Suspension, _Mapping]] = ..., principal: _Optional[_Union[Principal, _Mapping]] = ..., access_request: _Optional[_Union[AccessRequest, _Mapping]] = ..., source_quota: _Optional[_Union[SourceQuota, _Mapping]] = ..., alert_channel: _Optional[_Union[AlertChannel, _Mapping]] = ..., ban: _Optional[_Union[Ban, _Mapping]] = ..., ban_proposal: _Optional[_Union[BanProposal, _Mapping]] = ..., profile_limit: _Optional[_Union[ProfileLimit, _Mapping]] = ..., topic_rule: _Optional[_Union[TopicRule, _Mapping]] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ..., reason: _Optional[str] = ..., before: _Optional[_Union[Entry, _Mapping]] = ...) -> None: ...

class CreateTenantRequest(_message.Message):
    __slots__ = ("tenant", "principal", "options")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    principal: str
    options: WriteOptions
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., principal: _Optional[str] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

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

class EnrolmentTokenRequest(_message.Message):
    __slots__ = ("tenant", "principal", "ttl_seconds")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    principal: str
    ttl_seconds: int
    def __init__(self, tenant: _Optional[str] = ..., principal: _Optional[str] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class EnrolmentToken(_message.Message):
    __slots__ = ("token", "expires_unix_ns")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    token: str
    expires_unix_ns: int
    def __init__(self, token: _Optional[str] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class RegisterServiceRequest(_message.Message):
    __slots__ = ("service", "options")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    service: Service
    options: WriteOptions
    def __init__(self, service: _Optional[_Union[Service, _Mapping]] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class ClaimTargetRequest(_message.Message):
    __slots__ = ("target", "options")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    options: WriteOptions
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class PutRouteRequest(_message.Message):
    __slots__ = ("route", "options")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    route: Route
    options: WriteOptions
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class DeleteRouteRequest(_message.Message):
    __slots__ = ("target", "name", "options")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    options: WriteOptions
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class GrantAccessRequest(_message.Message):
    __slots__ = ("acl", "options")
    ACL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    options: WriteOptions
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class RevokeAccessRequest(_message.Message):
    __slots__ = ("acl", "options")
    ACL_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    options: WriteOptions
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class SetSuspensionRequest(_message.Message):
    __slots__ = ("suspension", "suspended", "options")
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    suspension: Suspension
    suspended: bool
    options: WriteOptions
    def __init__(self, suspension: _Optional[_Union[Suspension, _Mapping]] = ..., suspended: _Optional[bool] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("version", "changed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[bool] = ...) -> None: ...

class ChangesRequest(_message.Message):
    __slots__ = ("since_version", "directory_epoch", "limit", "instance", "bound_ms")
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    since_version: int
    directory_epoch: int
    limit: int
    instance: str
    bound_ms: int
    def __init__(self, since_version: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., limit: _Optional[int] = ..., instance: _Optional[str] = ..., bound_ms: _Optional[int] = ...) -> None: ...

class FollowersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Follower(_message.Message):
    __slots__ = ("service", "instance", "version", "silent_ms", "bound_ms")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    service: str
    instance: str
    version: int
    silent_ms: int
    bound_ms: int
    def __init__(self, service: _Optional[str] = ..., instance: _Optional[str] = ..., version: _Optional[int] = ..., silent_ms: _Optional[int] = ..., bound_ms: _Optional[int] = ...) -> None: ...

class FollowersResponse(_message.Message):
    __slots__ = ("follower", "listening_ms")
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    LISTENING_MS_FIELD_NUMBER: _ClassVar[int]
    follower: _containers.RepeatedCompositeFieldContainer[Follower]
    listening_ms: int
    def __init__(self, follower: _Optional[_Iterable[_Union[Follower, _Mapping]]] = ..., listening_ms: _Optional[int] = ...) -> None: ...

class ChangesResponse(_message.Message):
    __slots__ = ("version", "directory_epoch", "change", "more", "now_unix_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NOW_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    directory_epoch: int
    change: _containers.RepeatedCompositeFieldContainer[Change]
    more: bool
    now_unix_ns: int
    def __init__(self, version: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., change: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., more: _Optional[bool] = ..., now_unix_ns: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("key", "instance", "bound_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedCompositeFieldContainer[ResolveKey]
    instance: str
    bound_ms: int
    def __init__(self, key: _Optional[_Iterable[_Union[ResolveKey, _Mapping]]] = ..., instance: _Optional[str] = ..., bound_ms: _Optional[int] = ...) -> None: ...

class Resolution(_message.Message):
    __slots__ = ("route", "allowed", "suspended", "warm_banned", "source_quota", "frozen", "frozen_until_unix_ns", "acl_version")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    WARM_BANNED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    FROZEN_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ACL_VERSION_FIELD_NUMBER: _ClassVar[int]
    route: Route
    allowed: bool
    suspended: bool
    warm_banned: bool
    source_quota: SourceQuota
    frozen: bool
    frozen_until_unix_ns: int
    acl_version: int
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., allowed: _Optional[bool] = ..., suspended: _Optional[bool] = ..., warm_banned: _Optional[bool] = ..., source_quota: _Optional[_Union[SourceQuota, _Mapping]] = ..., frozen: _Optional[bool] = ..., frozen_until_unix_ns: _Optional[int] = ..., acl_version: _Optional[int] = ...) -> None: ...

class ResolveResponse(_message.Message):
    __slots__ = ("version", "resolution")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    version: int
    resolution: _containers.RepeatedCompositeFieldContainer[Resolution]
    def __init__(self, version: _Optional[int] = ..., resolution: _Optional[_Iterable[_Union[Resolution, _Mapping]]] = ...) -> None: ...

class DumpRequest(_message.Message):
    __slots__ = ("version", "page_token", "limit", "directory_epoch", "kind")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    version: int
    page_token: str
    limit: int
    directory_epoch: int
    kind: str
    def __init__(self, version: _Optional[int] = ..., page_token: _Optional[str] = ..., limit: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class DumpResponse(_message.Message):
    __slots__ = ("version", "directory_epoch", "entry", "next_page_token")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    directory_epoch: int
    entry: _containers.RepeatedCompositeFieldContainer[Change]
    next_page_token: str
    def __init__(self, version: _Optional[int] = ..., directory_epoch: _Optional[int] = ..., entry: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("entry", "delete", "expected_version")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    entry: Entry
    delete: bool
    expected_version: int
    def __init__(self, entry: _Optional[_Union[Entry, _Mapping]] = ..., delete: _Optional[bool] = ..., expected_version: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("write", "reason", "dry_run", "check", "tell_mistakes")
    WRITE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    TELL_MISTAKES_FIELD_NUMBER: _ClassVar[int]
    write: _containers.RepeatedCompositeFieldContainer[Write]
    reason: str
    dry_run: bool
    check: _containers.RepeatedCompositeFieldContainer[CheckRequest]
    tell_mistakes: bool
    def __init__(self, write: _Optional[_Iterable[_Union[Write, _Mapping]]] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., check: _Optional[_Iterable[_Union[CheckRequest, _Mapping]]] = ..., tell_mistakes: _Optional[bool] = ...) -> None: ...

class WriteMistake(_message.Message):
    __slots__ = ("write", "reason", "message")
    WRITE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    write: int
    reason: str
    message: str
    def __init__(self, write: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("before", "after", "version")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    before: Entry
    after: Entry
    version: int
    def __init__(self, before: _Optional[_Union[Entry, _Mapping]] = ..., after: _Optional[_Union[Entry, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("version", "changed", "difference", "check", "enrolment", "mistake", "more_mistakes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    ENROLMENT_FIELD_NUMBER: _ClassVar[int]
    MISTAKE_FIELD_NUMBER: _ClassVar[int]
    MORE_MISTAKES_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    difference: _containers.RepeatedCompositeFieldContainer[Difference]
    check: _containers.RepeatedCompositeFieldContainer[CheckResponse]
    enrolment: _containers.RepeatedCompositeFieldContainer[TenantEnrolment]
    mistake: _containers.RepeatedCompositeFieldContainer[WriteMistake]
    more_mistakes: int
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[bool] = ..., difference: _Optional[_Iterable[_Union[Difference, _Mapping]]] = ..., check: _Optional[_Iterable[_Union[CheckResponse, _Mapping]]] = ..., enrolment: _Optional[_Iterable[_Union[TenantEnrolment, _Mapping]]] = ..., mistake: _Optional[_Iterable[_Union[WriteMistake, _Mapping]]] = ..., more_mistakes: _Optional[int] = ...) -> None: ...

class TenantEnrolment(_message.Message):
    __slots__ = ("tenant", "token", "expires_unix_ns")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    token: str
    expires_unix_ns: int
    def __init__(self, tenant: _Optional[str] = ..., token: _Optional[str] = ..., expires_unix_ns: _Optional[int] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("source", "target", "name", "caller_unix_ns", "command_id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALLER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    caller_unix_ns: int
    command_id: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., caller_unix_ns: _Optional[int] = ..., command_id: _Optional[str] = ...) -> None: ...

class GateReport(_message.Message):
    __slots__ = ("gate", "state", "detail", "advice")
    GATE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    gate: str
    state: GateState
    detail: str
    advice: str
    def __init__(self, gate: _Optional[str] = ..., state: _Optional[_Union[GateState, str]] = ..., detail: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("version", "passes", "failing_gate", "verdict", "gate", "acl_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    FAILING_GATE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    ACL_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    passes: bool
    failing_gate: str
    verdict: str
    gate: _containers.RepeatedCompositeFieldContainer[GateReport]
    acl_version: int
    def __init__(self, version: _Optional[int] = ..., passes: _Optional[bool] = ..., failing_gate: _Optional[str] = ..., verdict: _Optional[str] = ..., gate: _Optional[_Iterable[_Union[GateReport, _Mapping]]] = ..., acl_version: _Optional[int] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("kind", "key", "limit")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ...) -> None: ...

class HistoryResponse(_message.Message):
    __slots__ = ("change",)
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    change: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, change: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class AccessAtRequest(_message.Message):
    __slots__ = ("target", "name", "at_unix_ns")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    at_unix_ns: int
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., at_unix_ns: _Optional[int] = ...) -> None: ...

class Access(_message.Message):
    __slots__ = ("acl", "version", "since_unix_ns", "actor", "reason", "suspended")
    ACL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    version: int
    since_unix_ns: int
    actor: str
    reason: str
    suspended: bool
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ..., version: _Optional[int] = ..., since_unix_ns: _Optional[int] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., suspended: _Optional[bool] = ...) -> None: ...

class AccessAtResponse(_message.Message):
    __slots__ = ("version", "routed", "access", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUTED_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    routed: bool
    access: _containers.RepeatedCompositeFieldContainer[Access]
    more: bool
    def __init__(self, version: _Optional[int] = ..., routed: _Optional[bool] = ..., access: _Optional[_Iterable[_Union[Access, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class AclDiffRequest(_message.Message):
    __slots__ = ("from_unix_ns", "to_unix_ns", "target")
    FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    from_unix_ns: int
    to_unix_ns: int
    target: str
    def __init__(self, from_unix_ns: _Optional[int] = ..., to_unix_ns: _Optional[int] = ..., target: _Optional[str] = ...) -> None: ...

class AclDifference(_message.Message):
    __slots__ = ("acl", "granted", "version", "at_unix_ns", "actor", "reason")
    ACL_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    acl: AclEntry
    granted: bool
    version: int
    at_unix_ns: int
    actor: str
    reason: str
    def __init__(self, acl: _Optional[_Union[AclEntry, _Mapping]] = ..., granted: _Optional[bool] = ..., version: _Optional[int] = ..., at_unix_ns: _Optional[int] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AclDiffResponse(_message.Message):
    __slots__ = ("from_version", "to_version", "difference", "more")
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    from_version: int
    to_version: int
    difference: _containers.RepeatedCompositeFieldContainer[AclDifference]
    more: bool
    def __init__(self, from_version: _Optional[int] = ..., to_version: _Optional[int] = ..., difference: _Optional[_Iterable[_Union[AclDifference, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ListAccessRequest(_message.Message):
    __slots__ = ("target", "source")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    target: str
    source: str
    def __init__(self, target: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class ListAccessResponse(_message.Message):
    __slots__ = ("version", "acl", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    acl: _containers.RepeatedCompositeFieldContainer[AclEntry]
    more: bool
    def __init__(self, version: _Optional[int] = ..., acl: _Optional[_Iterable[_Union[AclEntry, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class RequestAccessRequest(_message.Message):
    __slots__ = ("access_request",)
    ACCESS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    access_request: AccessRequest
    def __init__(self, access_request: _Optional[_Union[AccessRequest, _Mapping]] = ...) -> None: ...

class AnswerAccessRequest(_message.Message):
    __slots__ = ("source", "target", "name", "grant", "profile", "ttl_seconds", "options")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    grant: bool
    profile: Profile
    ttl_seconds: int
    options: WriteOptions
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., grant: _Optional[bool] = ..., profile: _Optional[_Union[Profile, str]] = ..., ttl_seconds: _Optional[int] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class ListAccessRequestsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListAccessRequestsResponse(_message.Message):
    __slots__ = ("incoming", "outgoing")
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    incoming: _containers.RepeatedCompositeFieldContainer[AccessRequest]
    outgoing: _containers.RepeatedCompositeFieldContainer[AccessRequest]
    def __init__(self, incoming: _Optional[_Iterable[_Union[AccessRequest, _Mapping]]] = ..., outgoing: _Optional[_Iterable[_Union[AccessRequest, _Mapping]]] = ...) -> None: ...

class SetBanRequest(_message.Message):
    __slots__ = ("ban", "lifted", "options")
    BAN_FIELD_NUMBER: _ClassVar[int]
    LIFTED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ban: Ban
    lifted: bool
    options: WriteOptions
    def __init__(self, ban: _Optional[_Union[Ban, _Mapping]] = ..., lifted: _Optional[bool] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class ProposeBansRequest(_message.Message):
    __slots__ = ("proposal",)
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    proposal: _containers.RepeatedCompositeFieldContainer[BanProposal]
    def __init__(self, proposal: _Optional[_Iterable[_Union[BanProposal, _Mapping]]] = ...) -> None: ...

class ProposalOutcome(_message.Message):
    __slots__ = ("proposal_id", "decision", "reason", "detail", "cover", "until_unix_ns", "state", "retry_after_ms")
    PROPOSAL_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    proposal_id: str
    decision: ProposalDecision
    reason: str
    detail: str
    cover: _containers.RepeatedScalarFieldContainer[str]
    until_unix_ns: int
    state: ProposalState
    retry_after_ms: int
    def __init__(self, proposal_id: _Optional[str] = ..., decision: _Optional[_Union[ProposalDecision, str]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., cover: _Optional[_Iterable[str]] = ..., until_unix_ns: _Optional[int] = ..., state: _Optional[_Union[ProposalState, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ProposeBansResponse(_message.Message):
    __slots__ = ("version", "outcome")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    version: int
    outcome: _containers.RepeatedCompositeFieldContainer[ProposalOutcome]
    def __init__(self, version: _Optional[int] = ..., outcome: _Optional[_Iterable[_Union[ProposalOutcome, _Mapping]]] = ...) -> None: ...

class ConcludeAuditRequest(_message.Message):
    __slots__ = ("from_unix_ns", "to_unix_ns", "policy_version", "kind", "proposal_id", "as_of_version")
    FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_ID_FIELD_NUMBER: _ClassVar[int]
    AS_OF_VERSION_FIELD_NUMBER: _ClassVar[int]
    from_unix_ns: int
    to_unix_ns: int
    policy_version: str
    kind: _containers.RepeatedScalarFieldContainer[str]
    proposal_id: _containers.RepeatedScalarFieldContainer[str]
    as_of_version: int
    def __init__(self, from_unix_ns: _Optional[int] = ..., to_unix_ns: _Optional[int] = ..., policy_version: _Optional[str] = ..., kind: _Optional[_Iterable[str]] = ..., proposal_id: _Optional[_Iterable[str]] = ..., as_of_version: _Optional[int] = ...) -> None: ...

class ConcludeAuditResponse(_message.Message):
    __slots__ = ("version", "confirmed", "withdrawn", "unknown", "left")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    version: int
    confirmed: _containers.RepeatedScalarFieldContainer[str]
    withdrawn: _containers.RepeatedScalarFieldContainer[str]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    left: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., confirmed: _Optional[_Iterable[str]] = ..., withdrawn: _Optional[_Iterable[str]] = ..., unknown: _Optional[_Iterable[str]] = ..., left: _Optional[_Iterable[str]] = ...) -> None: ...

class ListBansRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    def __init__(self, source: _Optional[str] = ...) -> None: ...

class StandingBan(_message.Message):
    __slots__ = ("ban", "version")
    BAN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ban: Ban
    version: int
    def __init__(self, ban: _Optional[_Union[Ban, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class ListBansResponse(_message.Message):
    __slots__ = ("version", "ban", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BAN_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    ban: _containers.RepeatedCompositeFieldContainer[StandingBan]
    more: bool
    def __init__(self, version: _Optional[int] = ..., ban: _Optional[_Iterable[_Union[StandingBan, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ExplainBanRequest(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    def __init__(self, source: _Optional[str] = ...) -> None: ...

class RefusedProposal(_message.Message):
    __slots__ = ("proposal", "reason", "detail", "at_unix_ns")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    proposal: BanProposal
    reason: str
    detail: str
    at_unix_ns: int
    def __init__(self, proposal: _Optional[_Union[BanProposal, _Mapping]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., at_unix_ns: _Optional[int] = ...) -> None: ...

class ExplainBanResponse(_message.Message):
    __slots__ = ("version", "ban", "proposal", "refused", "allowlisted")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BAN_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ALLOWLISTED_FIELD_NUMBER: _ClassVar[int]
    version: int
    ban: _containers.RepeatedCompositeFieldContainer[StandingBan]
    proposal: _containers.RepeatedCompositeFieldContainer[BanProposal]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedProposal]
    allowlisted: bool
    def __init__(self, version: _Optional[int] = ..., ban: _Optional[_Iterable[_Union[StandingBan, _Mapping]]] = ..., proposal: _Optional[_Iterable[_Union[BanProposal, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedProposal, _Mapping]]] = ..., allowlisted: _Optional[bool] = ...) -> None: ...

class LiftBanRequest(_message.Message):
    __slots__ = ("source", "target", "name", "list", "reason")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    name: str
    list: BanList
    reason: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., list: _Optional[_Union[BanList, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class LiftBanResponse(_message.Message):
    __slots__ = ("version", "lifted")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LIFTED_FIELD_NUMBER: _ClassVar[int]
    version: int
    lifted: _containers.RepeatedCompositeFieldContainer[Ban]
    def __init__(self, version: _Optional[int] = ..., lifted: _Optional[_Iterable[_Union[Ban, _Mapping]]] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("kind", "tenant", "target", "page_token", "limit")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    tenant: str
    target: str
    page_token: str
    limit: int
    def __init__(self, kind: _Optional[str] = ..., tenant: _Optional[str] = ..., target: _Optional[str] = ..., page_token: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class StandingEntry(_message.Message):
    __slots__ = ("entry", "version")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    entry: Entry
    version: int
    def __init__(self, entry: _Optional[_Union[Entry, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("version", "entry", "next_page_token")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    entry: _containers.RepeatedCompositeFieldContainer[StandingEntry]
    next_page_token: str
    def __init__(self, version: _Optional[int] = ..., entry: _Optional[_Iterable[_Union[StandingEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteEntryRequest(_message.Message):
    __slots__ = ("kind", "key", "with_dependents", "dry_run", "options")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WITH_DEPENDENTS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: _containers.RepeatedScalarFieldContainer[str]
    with_dependents: bool
    dry_run: bool
    options: WriteOptions
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., with_dependents: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., options: _Optional[_Union[WriteOptions, _Mapping]] = ...) -> None: ...

class EntryCount(_message.Message):
    __slots__ = ("kind", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    count: int
    def __init__(self, kind: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class DeleteEntryResponse(_message.Message):
    __slots__ = ("version", "changed", "dependent", "queue")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    DEPENDENT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    version: int
    changed: bool
    dependent: _containers.RepeatedCompositeFieldContainer[EntryCount]
    queue: _containers.RepeatedCompositeFieldContainer[QueueAddress]
    def __init__(self, version: _Optional[int] = ..., changed: _Optional[bool] = ..., dependent: _Optional[_Iterable[_Union[EntryCount, _Mapping]]] = ..., queue: _Optional[_Iterable[_Union[QueueAddress, _Mapping]]] = ...) -> None: ...

class QueueAddress(_message.Message):
    __slots__ = ("kind", "address")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    kind: QueueKind
    address: str
    def __init__(self, kind: _Optional[_Union[QueueKind, str]] = ..., address: _Optional[str] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("tenant", "kind", "since_version", "from_unix_ns", "to_unix_ns", "limit")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    kind: _containers.RepeatedScalarFieldContainer[str]
    since_version: int
    from_unix_ns: int
    to_unix_ns: int
    limit: int
    def __init__(self, tenant: _Optional[str] = ..., kind: _Optional[_Iterable[str]] = ..., since_version: _Optional[int] = ..., from_unix_ns: _Optional[int] = ..., to_unix_ns: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("version", "change", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    change: _containers.RepeatedCompositeFieldContainer[Change]
    more: bool
    def __init__(self, version: _Optional[int] = ..., change: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...
