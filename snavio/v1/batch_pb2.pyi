from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_DELIVERED: _ClassVar[Verdict]
    VERDICT_DUPLICATE: _ClassVar[Verdict]
    VERDICT_MALFORMED: _ClassVar[Verdict]
    VERDICT_OVERSIZED: _ClassVar[Verdict]
    VERDICT_SOURCE_PRESENT: _ClassVar[Verdict]
    VERDICT_INVALID_ID: _ClassVar[Verdict]
    VERDICT_INVALID_TIMESTAMP: _ClassVar[Verdict]
    VERDICT_INVALID_TYPE: _ClassVar[Verdict]
    VERDICT_INVALID_KEY_VERSION: _ClassVar[Verdict]
    VERDICT_INVALID_AUDIENCE: _ClassVar[Verdict]
    VERDICT_INVALID_HMAC: _ClassVar[Verdict]
    VERDICT_INVALID_TARGET: _ClassVar[Verdict]
    VERDICT_INVALID_NAME: _ClassVar[Verdict]
    VERDICT_INVALID_CONTENT_TYPE: _ClassVar[Verdict]
    VERDICT_INVALID_TRACEPARENT: _ClassVar[Verdict]
    VERDICT_SUSPENDED: _ClassVar[Verdict]
    VERDICT_UNKNOWN_KEY_VERSION: _ClassVar[Verdict]
    VERDICT_KEY_EXPIRED: _ClassVar[Verdict]
    VERDICT_KEY_REVOKED: _ClassVar[Verdict]
    VERDICT_WRONG_AUDIENCE: _ClassVar[Verdict]
    VERDICT_TIMESTAMP_OUTSIDE_WINDOW: _ClassVar[Verdict]
    VERDICT_HMAC_MISMATCH: _ClassVar[Verdict]
    VERDICT_REPLAYED: _ClassVar[Verdict]
    VERDICT_CERTIFICATE_EXPIRED: _ClassVar[Verdict]
    VERDICT_CERTIFICATE_REVOKED: _ClassVar[Verdict]
    VERDICT_RATE_LIMIT_EXCEEDED: _ClassVar[Verdict]
    VERDICT_ACL_DENY: _ClassVar[Verdict]
    VERDICT_ROUTE_MISSING: _ClassVar[Verdict]
    VERDICT_DELIVERY_FAILURE: _ClassVar[Verdict]
    VERDICT_FAIRNESS_VIOLATION: _ClassVar[Verdict]
    VERDICT_OUTCOME_UNKNOWN: _ClassVar[Verdict]
    VERDICT_SATURATED: _ClassVar[Verdict]
    VERDICT_CONFLICT: _ClassVar[Verdict]
    VERDICT_FROZEN: _ClassVar[Verdict]
VERDICT_UNSPECIFIED: Verdict
VERDICT_DELIVERED: Verdict
VERDICT_DUPLICATE: Verdict
VERDICT_MALFORMED: Verdict
VERDICT_OVERSIZED: Verdict
VERDICT_SOURCE_PRESENT: Verdict
VERDICT_INVALID_ID: Verdict
VERDICT_INVALID_TIMESTAMP: Verdict
VERDICT_INVALID_TYPE: Verdict
VERDICT_INVALID_KEY_VERSION: Verdict
VERDICT_INVALID_AUDIENCE: Verdict
VERDICT_INVALID_HMAC: Verdict
VERDICT_INVALID_TARGET: Verdict
VERDICT_INVALID_NAME: Verdict
VERDICT_INVALID_CONTENT_TYPE: Verdict
VERDICT_INVALID_TRACEPARENT: Verdict
VERDICT_SUSPENDED: Verdict
VERDICT_UNKNOWN_KEY_VERSION: Verdict
VERDICT_KEY_EXPIRED: Verdict
VERDICT_KEY_REVOKED: Verdict
VERDICT_WRONG_AUDIENCE: Verdict
VERDICT_TIMESTAMP_OUTSIDE_WINDOW: Verdict
VERDICT_HMAC_MISMATCH: Verdict
VERDICT_REPLAYED: Verdict
VERDICT_CERTIFICATE_EXPIRED: Verdict
VERDICT_CERTIFICATE_REVOKED: Verdict
VERDICT_RATE_LIMIT_EXCEEDED: Verdict
VERDICT_ACL_DENY: Verdict
VERDICT_ROUTE_MISSING: Verdict
VERDICT_DELIVERY_FAILURE: Verdict
VERDICT_FAIRNESS_VIOLATION: Verdict
VERDICT_OUTCOME_UNKNOWN: Verdict
VERDICT_SATURATED: Verdict
VERDICT_CONFLICT: Verdict
VERDICT_FROZEN: Verdict

class Hello(_message.Message):
    __slots__ = ("wire_version", "server_unix_ns", "audience", "limits", "instance", "epoch", "going_away", "still_there")
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    AUDIENCE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    STILL_THERE_FIELD_NUMBER: _ClassVar[int]
    wire_version: int
    server_unix_ns: int
    audience: str
    limits: Limits
    instance: str
    epoch: int
    going_away: bool
    still_there: bool
    def __init__(self, wire_version: _Optional[int] = ..., server_unix_ns: _Optional[int] = ..., audience: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., instance: _Optional[str] = ..., epoch: _Optional[int] = ..., going_away: _Optional[bool] = ..., still_there: _Optional[bool] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_batch_bytes", "max_batch_commands", "max_payload_bytes", "max_batches_in_flight", "window_ms")
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCHES_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    max_batch_bytes: int
    max_batch_commands: int
    max_payload_bytes: int
    max_batches_in_flight: int
    window_ms: int
    def __init__(self, max_batch_bytes: _Optional[int] = ..., max_batch_commands: _Optional[int] = ..., max_payload_bytes: _Optional[int] = ..., max_batches_in_flight: _Optional[int] = ..., window_ms: _Optional[int] = ...) -> None: ...

class BatchHeader(_message.Message):
    __slots__ = ("batch_seq", "budget_ms")
    BATCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    batch_seq: int
    budget_ms: int
    def __init__(self, batch_seq: _Optional[int] = ..., budget_ms: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("source", "key_version", "cert_serial", "admitted_unix_ns", "command")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEY_VERSION_FIELD_NUMBER: _ClassVar[int]
    CERT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    source: str
    key_version: str
    cert_serial: str
    admitted_unix_ns: int
    command: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, source: _Optional[str] = ..., key_version: _Optional[str] = ..., cert_serial: _Optional[str] = ..., admitted_unix_ns: _Optional[int] = ..., command: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("hello", "header", "run")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    header: BatchHeader
    run: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., header: _Optional[_Union[BatchHeader, _Mapping]] = ..., run: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("index", "reason", "retry_after_ms", "throttle_until_unix_ns", "detail", "source_share", "competing_share", "dispatch_volume")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_UNTIL_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SHARE_FIELD_NUMBER: _ClassVar[int]
    COMPETING_SHARE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_VOLUME_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: Verdict
    retry_after_ms: int
    throttle_until_unix_ns: int
    detail: str
    source_share: float
    competing_share: float
    dispatch_volume: int
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[_Union[Verdict, str]] = ..., retry_after_ms: _Optional[int] = ..., throttle_until_unix_ns: _Optional[int] = ..., detail: _Optional[str] = ..., source_share: _Optional[float] = ..., competing_share: _Optional[float] = ..., dispatch_volume: _Optional[int] = ...) -> None: ...

class Verdicts(_message.Message):
    __slots__ = ("hello", "batch_seq", "first", "codes", "refusal", "final")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    batch_seq: int
    first: int
    codes: bytes
    refusal: _containers.RepeatedCompositeFieldContainer[Refusal]
    final: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., batch_seq: _Optional[int] = ..., first: _Optional[int] = ..., codes: _Optional[bytes] = ..., refusal: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., final: _Optional[bool] = ...) -> None: ...
