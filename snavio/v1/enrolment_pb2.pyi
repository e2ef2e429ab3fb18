from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class EnrollRequest(_message.Message):
    __slots__ = ("token", "csr_pem", "name")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    token: str
    csr_pem: str
    name: str
    def __init__(self, token: _Optional[str] = ..., csr_pem: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class EnrollResponse(_message.Message):
    __slots__ = ("certificate_pem", "ca_pem", "serial", "not_after_unix_ns", "spiffe_id")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    SPIFFE_ID_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_unix_ns: int
    spiffe_id: str
    def __init__(self, certificate_pem: _Optional[str] = ..., ca_pem: _Optional[str] = ..., serial: _Optional[str] = ..., not_after_unix_ns: _Optional[int] = ..., spiffe_id: _Optional[str] = ...) -> None: ...
