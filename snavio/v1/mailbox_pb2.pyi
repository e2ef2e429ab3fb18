from snavio.v1 import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Standstill(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STANDSTILL_UNSPECIFIED: _ClassVar[Standstill]
    STANDSTILL_LEASED: _ClassVar[Standstill]
    STANDSTILL_DELAYED: _ClassVar[Standstill]
    STANDSTILL_RETRIES: _ClassVar[Standstill]
    STANDSTILL_TENANT_SHARE: _ClassVar[Standstill]
    STANDSTILL_MEMORY: _ClassVar[Standstill]

class Settlement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SETTLEMENT_UNSPECIFIED: _ClassVar[Settlement]
    SETTLEMENT_DONE: _ClassVar[Settlement]
    SETTLEMENT_LATE: _ClassVar[Settlement]
    SETTLEMENT_GONE: _ClassVar[Settlement]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_READY: _ClassVar[MessageState]
    MESSAGE_STATE_INFLIGHT: _ClassVar[MessageState]
    MESSAGE_STATE_DELIVERED: _ClassVar[MessageState]
    MESSAGE_STATE_DEAD: _ClassVar[MessageState]
    MESSAGE_STATE_CANCELED: _ClassVar[MessageState]

class AttemptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_OUTCOME_UNSPECIFIED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_EXPIRED: _ClassVar[AttemptOutcome]
    ATTEMPT_OUTCOME_NACKED: _ClassVar[AttemptOutcome]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_CANCEL: _ClassVar[Operation]
    OPERATION_RESUME: _ClassVar[Operation]
    OPERATION_REQUEUE: _ClassVar[Operation]
    OPERATION_PURGE: _ClassVar[Operation]
STANDSTILL_UNSPECIFIED: Standstill
STANDSTILL_LEASED: Standstill
STANDSTILL_DELAYED: Standstill
STANDSTILL_RETRIES: Standstill
STANDSTILL_TENANT_SHARE: Standstill
STANDSTILL_MEMORY: Standstill
SETTLEMENT_UNSPECIFIED: Settlement
SETTLEMENT_DONE: Settlement
SETTLEMENT_LATE: Settlement
SETTLEMENT_GONE: Settlement
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_READY: MessageState
MESSAGE_STATE_INFLIGHT: MessageState
MESSAGE_STATE_DELIVERED: MessageState
MESSAGE_STATE_DEAD: MessageState
MESSAGE_STATE_CANCELED: MessageState
ATTEMPT_OUTCOME_UNSPECIFIED: AttemptOutcome
ATTEMPT_OUTCOME_EXPIRED: AttemptOutcome
ATTEMPT_OUTCOME_NACKED: AttemptOutcome
OPERATION_UNSPECIFIED: Operation
OPERATION_CANCEL: Operation
OPERATION_RESUME: Operation
OPERATION_REQUEUE: Operation
OPERATION_PURGE: Operation

class TopicRuns(_message.Message):
    __slots__ = ("topic", "run", "once", "once_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    ONCE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    run: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Run]
    once: bool
    once_ms: int
    def __init__(self, topic: _Optional[str] = ..., run: _Optional[_Iterable[_Union[_batch_pb2.Run, _Mapping]]] = ..., once: _Optional[bool] = ..., once_ms: _Optional[int] = ...) -> None: ...

class SendBatch(_message.Message):
    __slots__ = ("hello", "header", "topic")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    hello: _batch_pb2.Hello
    header: _batch_pb2.BatchHeader
    topic: _containers.RepeatedCompositeFieldContainer[TopicRuns]
    def __init__(self, hello: _Optional[_Union[_batch_pb2.Hello, _Mapping]] = ..., header: _Optional[_Union[_batch_pb2.BatchHeader, _Mapping]] = ..., topic: _Optional[_Iterable[_Union[TopicRuns, _Mapping]]] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("topic", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message: _containers.RepeatedCompositeFieldContainer[NewMessage]
    def __init__(self, topic: _Optional[str] = ..., message: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("payload", "idem_key", "attrs", "partition_key", "delay_ms", "content_type", "traceparent", "corr_id", "payload_hash", "replay_ms", "idem_content")
    class AttrsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    IDEM_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    CORR_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_HASH_FIELD_NUMBER: _ClassVar[int]
    REPLAY_MS_FIELD_NUMBER: _ClassVar[int]
    IDEM_CONTENT_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    idem_key: str
    attrs: _containers.ScalarMap[str, str]
    partition_key: str
    delay_ms: int
    content_type: str
    traceparent: str
    corr_id: str
    payload_hash: bytes
    replay_ms: int
    idem_content: bytes
    def __init__(self, payload: _Optional[bytes] = ..., idem_key: _Optional[str] = ..., attrs: _Optional[_Mapping[str, str]] = ..., partition_key: _Optional[str] = ..., delay_ms: _Optional[int] = ..., content_type: _Optional[str] = ..., traceparent: _Optional[str] = ..., corr_id: _Optional[str] = ..., payload_hash: _Optional[bytes] = ..., replay_ms: _Optional[int] = ..., idem_content: _Optional[bytes] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("msg_id", "codes", "retry_after_ms")
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    msg_id: _containers.RepeatedScalarFieldContainer[int]
    codes: bytes
    retry_after_ms: int
    def __init__(self, msg_id: _Optional[_Iterable[int]] = ..., codes: _Optional[bytes] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "visibility_ms", "max_messages", "max_bytes", "wait_ms", "explain")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    visibility_ms: int
    max_messages: int
    max_bytes: int
    wait_ms: int
    explain: bool
    def __init__(self, topic: _Optional[str] = ..., visibility_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., explain: _Optional[bool] = ...) -> None: ...

class LeasedBatch(_message.Message):
    __slots__ = ("batch_id", "first", "attempt", "stored_unix_ns", "run", "shard", "payload_hash", "hash_chain")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STORED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_HASH_FIELD_NUMBER: _ClassVar[int]
    HASH_CHAIN_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    first: int
    attempt: int
    stored_unix_ns: int
    run: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Run]
    shard: int
    payload_hash: bytes
    hash_chain: bytes
    def __init__(self, batch_id: _Optional[int] = ..., first: _Optional[int] = ..., attempt: _Optional[int] = ..., stored_unix_ns: _Optional[int] = ..., run: _Optional[_Iterable[_Union[_batch_pb2.Run, _Mapping]]] = ..., shard: _Optional[int] = ..., payload_hash: _Optional[bytes] = ..., hash_chain: _Optional[bytes] = ...) -> None: ...

class StoredCommand(_message.Message):
    __slots__ = ("id", "timestamp", "type", "key_version", "audience", "hmac", "target", "name", "content_type", "payload", "traceparent", "idem_key", "attr", "payload_hash")
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
    IDEM_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_HASH_FIELD_NUMBER: _ClassVar[int]
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
    idem_key: str
    attr: _containers.RepeatedCompositeFieldContainer[StoredAttribute]
    payload_hash: bytes
    def __init__(self, id: _Optional[str] = ..., timestamp: _Optional[str] = ..., type: _Optional[str] = ..., key_version: _Optional[str] = ..., audience: _Optional[str] = ..., hmac: _Optional[bytes] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., content_type: _Optional[str] = ..., payload: _Optional[bytes] = ..., traceparent: _Optional[str] = ..., idem_key: _Optional[str] = ..., attr: _Optional[_Iterable[_Union[StoredAttribute, _Mapping]]] = ..., payload_hash: _Optional[bytes] = ...) -> None: ...

class StoredAttribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("boot_epoch", "batch", "integrity_failures", "standstill", "piece", "more")
    BOOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_FAILURES_FIELD_NUMBER: _ClassVar[int]
    STANDSTILL_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    boot_epoch: int
    batch: _containers.RepeatedCompositeFieldContainer[LeasedBatch]
    integrity_failures: int
    standstill: Standstill
    piece: bytes
    more: bool
    def __init__(self, boot_epoch: _Optional[int] = ..., batch: _Optional[_Iterable[_Union[LeasedBatch, _Mapping]]] = ..., integrity_failures: _Optional[int] = ..., standstill: _Optional[_Union[Standstill, str]] = ..., piece: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class Receipts(_message.Message):
    __slots__ = ("boot_epoch", "msg_id", "attempt")
    BOOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    boot_epoch: int
    msg_id: _containers.RepeatedScalarFieldContainer[int]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, boot_epoch: _Optional[int] = ..., msg_id: _Optional[_Iterable[int]] = ..., attempt: _Optional[_Iterable[int]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "receipts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "receipts", "delay_ms", "reason", "dead", "unseen")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    delay_ms: int
    reason: str
    dead: bool
    unseen: bool
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., dead: _Optional[bool] = ..., unseen: _Optional[bool] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "receipts", "visibility_ms", "add")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    receipts: Receipts
    visibility_ms: int
    add: bool
    def __init__(self, topic: _Optional[str] = ..., receipts: _Optional[_Union[Receipts, _Mapping]] = ..., visibility_ms: _Optional[int] = ..., add: _Optional[bool] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("codes",)
    CODES_FIELD_NUMBER: _ClassVar[int]
    codes: bytes
    def __init__(self, codes: _Optional[bytes] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicStats(_message.Message):
    __slots__ = ("topic", "ready", "inflight", "oldest_age_ms", "delivered", "dead", "canceled", "capacity", "died", "dlq_profile", "stored_total", "acked_total", "oldest_ready_unix_ns", "earliest_run_unix_ns", "when_full")
    class DiedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DIED_FIELD_NUMBER: _ClassVar[int]
    DLQ_PROFILE_FIELD_NUMBER: _ClassVar[int]
    STORED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ACKED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_RUN_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    WHEN_FULL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ready: int
    inflight: int
    oldest_age_ms: int
    delivered: int
    dead: int
    canceled: int
    capacity: int
    died: _containers.ScalarMap[str, int]
    dlq_profile: str
    stored_total: int
    acked_total: int
    oldest_ready_unix_ns: int
    earliest_run_unix_ns: int
    when_full: str
    def __init__(self, topic: _Optional[str] = ..., ready: _Optional[int] = ..., inflight: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., delivered: _Optional[int] = ..., dead: _Optional[int] = ..., canceled: _Optional[int] = ..., capacity: _Optional[int] = ..., died: _Optional[_Mapping[str, int]] = ..., dlq_profile: _Optional[str] = ..., stored_total: _Optional[int] = ..., acked_total: _Optional[int] = ..., oldest_ready_unix_ns: _Optional[int] = ..., earliest_run_unix_ns: _Optional[int] = ..., when_full: _Optional[str] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedCompositeFieldContainer[TopicStats]
    def __init__(self, topic: _Optional[_Iterable[_Union[TopicStats, _Mapping]]] = ...) -> None: ...

class RecvStreamRequest(_message.Message):
    __slots__ = ("open", "credit", "chunk_bytes")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    open: ReceiveRequest
    credit: int
    chunk_bytes: int
    def __init__(self, open: _Optional[_Union[ReceiveRequest, _Mapping]] = ..., credit: _Optional[int] = ..., chunk_bytes: _Optional[int] = ...) -> None: ...

class AttemptRecord(_message.Message):
    __slots__ = ("attempt", "at_unix_ns", "outcome", "reason")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    at_unix_ns: int
    outcome: AttemptOutcome
    reason: str
    def __init__(self, attempt: _Optional[int] = ..., at_unix_ns: _Optional[int] = ..., outcome: _Optional[_Union[AttemptOutcome, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("state", "stored_from_unix_ns", "stored_before_unix_ns", "source", "name", "command_id", "dead_reason", "min_attempts", "attribute", "idem_key")
    class AttributeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    STORED_FROM_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    STORED_BEFORE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DEAD_REASON_FIELD_NUMBER: _ClassVar[int]
    MIN_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    IDEM_KEY_FIELD_NUMBER: _ClassVar[int]
    state: _containers.RepeatedScalarFieldContainer[MessageState]
    stored_from_unix_ns: int
    stored_before_unix_ns: int
    source: str
    name: str
    command_id: str
    dead_reason: str
    min_attempts: int
    attribute: _containers.ScalarMap[str, str]
    idem_key: str
    def __init__(self, state: _Optional[_Iterable[_Union[MessageState, str]]] = ..., stored_from_unix_ns: _Optional[int] = ..., stored_before_unix_ns: _Optional[int] = ..., source: _Optional[str] = ..., name: _Optional[str] = ..., command_id: _Optional[str] = ..., dead_reason: _Optional[str] = ..., min_attempts: _Optional[int] = ..., attribute: _Optional[_Mapping[str, str]] = ..., idem_key: _Optional[str] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("topic", "filter", "limit", "after", "payload", "newest_first")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: Filter
    limit: int
    after: int
    payload: bool
    newest_first: bool
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., limit: _Optional[int] = ..., after: _Optional[int] = ..., payload: _Optional[bool] = ..., newest_first: _Optional[bool] = ...) -> None: ...

class MessageView(_message.Message):
    __slots__ = ("msg_id", "state", "attempt", "stored_unix_ns", "next_run_at_unix_ns", "source", "command_id", "target", "name", "content_type", "payload_bytes", "payload", "reason", "last_error", "ended_unix_ns", "attempt_record", "unreadable", "attribute", "idem_key", "shard")
    class AttributeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STORED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NEXT_RUN_AT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_RECORD_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    IDEM_KEY_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    msg_id: int
    state: MessageState
    attempt: int
    stored_unix_ns: int
    next_run_at_unix_ns: int
    source: str
    command_id: str
    target: str
    name: str
    content_type: str
    payload_bytes: int
    payload: bytes
    reason: str
    last_error: str
    ended_unix_ns: int
    attempt_record: _containers.RepeatedCompositeFieldContainer[AttemptRecord]
    unreadable: bool
    attribute: _containers.ScalarMap[str, str]
    idem_key: str
    shard: int
    def __init__(self, msg_id: _Optional[int] = ..., state: _Optional[_Union[MessageState, str]] = ..., attempt: _Optional[int] = ..., stored_unix_ns: _Optional[int] = ..., next_run_at_unix_ns: _Optional[int] = ..., source: _Optional[str] = ..., command_id: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., content_type: _Optional[str] = ..., payload_bytes: _Optional[int] = ..., payload: _Optional[bytes] = ..., reason: _Optional[str] = ..., last_error: _Optional[str] = ..., ended_unix_ns: _Optional[int] = ..., attempt_record: _Optional[_Iterable[_Union[AttemptRecord, _Mapping]]] = ..., unreadable: _Optional[bool] = ..., attribute: _Optional[_Mapping[str, str]] = ..., idem_key: _Optional[str] = ..., shard: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("message", "next")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    message: _containers.RepeatedCompositeFieldContainer[MessageView]
    next: int
    def __init__(self, message: _Optional[_Iterable[_Union[MessageView, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("topic", "operation", "msg_id", "filter", "preview", "token", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    operation: Operation
    msg_id: _containers.RepeatedScalarFieldContainer[int]
    filter: Filter
    preview: bool
    token: bytes
    reason: str
    def __init__(self, topic: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., msg_id: _Optional[_Iterable[int]] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., preview: _Optional[bool] = ..., token: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("matched", "changed", "sample", "token")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    sample: _containers.RepeatedCompositeFieldContainer[MessageView]
    token: bytes
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ..., sample: _Optional[_Iterable[_Union[MessageView, _Mapping]]] = ..., token: _Optional[bytes] = ...) -> None: ...

class SendAllRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: _containers.RepeatedCompositeFieldContainer[SendGroup]
    def __init__(self, group: _Optional[_Iterable[_Union[SendGroup, _Mapping]]] = ...) -> None: ...

class SendGroup(_message.Message):
    __slots__ = ("part", "refuse_duplicates")
    PART_FIELD_NUMBER: _ClassVar[int]
    REFUSE_DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    part: _containers.RepeatedCompositeFieldContainer[SendPart]
    refuse_duplicates: bool
    def __init__(self, part: _Optional[_Iterable[_Union[SendPart, _Mapping]]] = ..., refuse_duplicates: _Optional[bool] = ...) -> None: ...

class SendPart(_message.Message):
    __slots__ = ("topic", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedScalarFieldContainer[str]
    message: _containers.RepeatedCompositeFieldContainer[NewMessage]
    def __init__(self, topic: _Optional[_Iterable[str]] = ..., message: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ...) -> None: ...

class SendAllResponse(_message.Message):
    __slots__ = ("msg_id", "codes", "refusal")
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    msg_id: _containers.RepeatedScalarFieldContainer[int]
    codes: bytes
    refusal: _containers.RepeatedCompositeFieldContainer[GroupRefusal]
    def __init__(self, msg_id: _Optional[_Iterable[int]] = ..., codes: _Optional[bytes] = ..., refusal: _Optional[_Iterable[_Union[GroupRefusal, _Mapping]]] = ...) -> None: ...

class GroupRefusal(_message.Message):
    __slots__ = ("group", "reason", "detail", "retry_after_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    group: int
    reason: str
    detail: str
    retry_after_ms: int
    def __init__(self, group: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("topic", "source", "command_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    source: str
    command_id: str
    def __init__(self, topic: _Optional[str] = ..., source: _Optional[str] = ..., command_id: _Optional[str] = ...) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("waiting", "room", "full", "first_msg_id", "first_stored_unix_ns")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    FIRST_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_STORED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    room: int
    full: str
    first_msg_id: int
    first_stored_unix_ns: int
    def __init__(self, waiting: _Optional[int] = ..., room: _Optional[int] = ..., full: _Optional[str] = ..., first_msg_id: _Optional[int] = ..., first_stored_unix_ns: _Optional[int] = ...) -> None: ...
