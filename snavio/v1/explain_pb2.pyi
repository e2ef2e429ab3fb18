from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATE_UNSPECIFIED: _ClassVar[StepState]
    STEP_STATE_PASSED: _ClassVar[StepState]
    STEP_STATE_REFUSED: _ClassVar[StepState]
    STEP_STATE_NOTE: _ClassVar[StepState]
    STEP_STATE_NOT_REACHED: _ClassVar[StepState]
    STEP_STATE_UNKNOWN: _ClassVar[StepState]
STEP_STATE_UNSPECIFIED: StepState
STEP_STATE_PASSED: StepState
STEP_STATE_REFUSED: StepState
STEP_STATE_NOTE: StepState
STEP_STATE_NOT_REACHED: StepState
STEP_STATE_UNKNOWN: StepState

class ExplainRequest(_message.Message):
    __slots__ = ("command_id",)
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    def __init__(self, command_id: _Optional[str] = ...) -> None: ...

class TraceStep(_message.Message):
    __slots__ = ("step", "state", "detail", "fact")
    class FactEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FACT_FIELD_NUMBER: _ClassVar[int]
    step: str
    state: StepState
    detail: str
    fact: _containers.ScalarMap[str, str]
    def __init__(self, step: _Optional[str] = ..., state: _Optional[_Union[StepState, str]] = ..., detail: _Optional[str] = ..., fact: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("instance", "path", "source", "target", "name", "verdict", "escalation", "sent_unix_ns", "admitted_unix_ns", "settled_unix_ns", "step")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    instance: str
    path: str
    source: str
    target: str
    name: str
    verdict: str
    escalation: str
    sent_unix_ns: int
    admitted_unix_ns: int
    settled_unix_ns: int
    step: _containers.RepeatedCompositeFieldContainer[TraceStep]
    def __init__(self, instance: _Optional[str] = ..., path: _Optional[str] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ..., verdict: _Optional[str] = ..., escalation: _Optional[str] = ..., sent_unix_ns: _Optional[int] = ..., admitted_unix_ns: _Optional[int] = ..., settled_unix_ns: _Optional[int] = ..., step: _Optional[_Iterable[_Union[TraceStep, _Mapping]]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("instance", "trace", "oldest_unix_ns")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    instance: str
    trace: _containers.RepeatedCompositeFieldContainer[Trace]
    oldest_unix_ns: int
    def __init__(self, instance: _Optional[str] = ..., trace: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ..., oldest_unix_ns: _Optional[int] = ...) -> None: ...
