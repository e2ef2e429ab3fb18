from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class Counter(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class Gauge(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("name", "count", "p50_us", "p95_us", "p99_us", "max_us")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_US_FIELD_NUMBER: _ClassVar[int]
    P95_US_FIELD_NUMBER: _ClassVar[int]
    P99_US_FIELD_NUMBER: _ClassVar[int]
    MAX_US_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    p50_us: int
    p95_us: int
    p99_us: int
    max_us: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., p50_us: _Optional[int] = ..., p95_us: _Optional[int] = ..., p99_us: _Optional[int] = ..., max_us: _Optional[int] = ...) -> None: ...

class ShareUse(_message.Message):
    __slots__ = ("bound", "total", "per_tenant", "reserve", "used", "refused", "holder")
    class Holder(_message.Message):
        __slots__ = ("tenant", "used")
        TENANT_FIELD_NUMBER: _ClassVar[int]
        USED_FIELD_NUMBER: _ClassVar[int]
        tenant: str
        used: int
        def __init__(self, tenant: _Optional[str] = ..., used: _Optional[int] = ...) -> None: ...
    BOUND_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PER_TENANT_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    bound: str
    total: int
    per_tenant: int
    reserve: int
    used: int
    refused: int
    holder: _containers.RepeatedCompositeFieldContainer[ShareUse.Holder]
    def __init__(self, bound: _Optional[str] = ..., total: _Optional[int] = ..., per_tenant: _Optional[int] = ..., reserve: _Optional[int] = ..., used: _Optional[int] = ..., refused: _Optional[int] = ..., holder: _Optional[_Iterable[_Union[ShareUse.Holder, _Mapping]]] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("service", "instance", "version", "pid", "started_unix_ns", "resident_bytes", "cpu_us", "counter", "gauge", "latency", "share")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    GAUGE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    service: str
    instance: str
    version: str
    pid: int
    started_unix_ns: int
    resident_bytes: int
    cpu_us: int
    counter: _containers.RepeatedCompositeFieldContainer[Counter]
    gauge: _containers.RepeatedCompositeFieldContainer[Gauge]
    latency: _containers.RepeatedCompositeFieldContainer[Latency]
    share: _containers.RepeatedCompositeFieldContainer[ShareUse]
    def __init__(self, service: _Optional[str] = ..., instance: _Optional[str] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., started_unix_ns: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., cpu_us: _Optional[int] = ..., counter: _Optional[_Iterable[_Union[Counter, _Mapping]]] = ..., gauge: _Optional[_Iterable[_Union[Gauge, _Mapping]]] = ..., latency: _Optional[_Iterable[_Union[Latency, _Mapping]]] = ..., share: _Optional[_Iterable[_Union[ShareUse, _Mapping]]] = ...) -> None: ...
