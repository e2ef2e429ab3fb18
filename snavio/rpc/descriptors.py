"""Answers of gRPC reflection: the files that describe services, messages, methods and fields.

Never imports anything but descriptors that the process has loaded already.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import (
    ErrorResponse,
    ExtensionNumberResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)

_NOT_FOUND: Final = 5
_UNIMPLEMENTED: Final = 12
V1_FILE: Final = "grpc/reflection/v1/reflection.proto"


class Descriptors:
    """Replaces grpcio-reflection's servicer, which finds no methods and does not know the name v1."""

    def __init__(self, services: tuple[str, ...], *, pool: Any = None) -> None:
        self._services = services
        self._pool = pool or descriptor_pool.Default()

    def answer(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        """The answer to one question; errors are answers too."""
        kind = request.WhichOneof("message_request")
        try:
            return self._answers(kind, request)
        except KeyError:
            return _error(request, _NOT_FOUND, "Symbol not found.")

    def _answers(self, kind: str | None, request: ServerReflectionRequest) -> ServerReflectionResponse:
        if kind == "list_services":
            named = [ServiceResponse(name=name) for name in self._services]
            return _response(request, list_services_response=ListServiceResponse(service=named))
        if kind == "file_by_filename":
            return _files(request, self._file_named(request.file_by_filename))
        if kind == "file_containing_symbol":
            return _files(request, self._file_of(request.file_containing_symbol))
        if kind == "file_containing_extension":
            asked = request.file_containing_extension
            message = self._pool.FindMessageTypeByName(asked.containing_type)
            extension = self._pool.FindExtensionByNumber(message, asked.extension_number)
            return _files(request, _written(extension.file))
        if kind == "all_extension_numbers_of_type":
            message = self._pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
            numbers = sorted(extension.number for extension in self._pool.FindAllExtensions(message))
            found = ExtensionNumberResponse(base_type_name=message.full_name, extension_number=numbers)
            return _response(request, all_extension_numbers_response=found)
        return _error(request, _UNIMPLEMENTED, "No such question.")

    def _file_named(self, name: str) -> list[FileDescriptorProto]:
        if name == V1_FILE:
            return [self._v1()]
        return _written(self._pool.FindFileByName(name))

    def _file_of(self, symbol: str) -> list[FileDescriptorProto]:
        # Clients print types with a leading dot, and people copy them.
        symbol = symbol.removeprefix(".")
        if symbol == "grpc.reflection.v1" or symbol.startswith("grpc.reflection.v1."):
            return [self._v1()]
        try:
            return _written(self._pool.FindFileContainingSymbol(symbol))
        except KeyError:
            # The pool knows messages, fields, enums and services by name, and others only within what they belong to.
            return _written(self._owner_of(symbol).file)

    def _owner_of(self, symbol: str) -> Any:
        """The service of a method, the message of a oneof, or the enum of a value that is named beneath it, as grpcurl
        prints values.
        """
        owner, _, name = symbol.rpartition(".")
        for find, members in (
            (self._pool.FindServiceByName, "methods_by_name"),
            (self._pool.FindMessageTypeByName, "oneofs_by_name"),
            (self._pool.FindEnumTypeByName, "values_by_name"),
        ):
            try:
                found = find(owner)
            except KeyError:
                continue
            if name in getattr(found, members):
                return found
        raise KeyError(symbol)

    def _v1(self) -> FileDescriptorProto:
        """The descriptor of reflection v1, which grpcio-reflection lacks: v1alpha's under the later name."""
        proto = FileDescriptorProto()
        ServerReflectionRequest.DESCRIPTOR.file.CopyToProto(proto)
        proto.name, proto.package = V1_FILE, "grpc.reflection.v1"
        for message in proto.message_type:
            for field in message.field:
                # A number or a text that names a type, were it an empty one, makes clients refuse the whole file.
                if field.HasField("type_name"):
                    field.type_name = _later(field.type_name)
        for service in proto.service:
            for method in service.method:
                method.input_type, method.output_type = _later(method.input_type), _later(method.output_type)
        return proto


def _later(name: str) -> str:
    return name.replace(".grpc.reflection.v1alpha.", ".grpc.reflection.v1.")


def _written(file: Any) -> list[FileDescriptorProto]:
    """A file and all that it imports, dependencies last."""
    found: dict[str, FileDescriptorProto] = {}
    ahead = [file]
    while ahead:
        each = ahead.pop()
        if each.name in found:
            continue
        proto = found[each.name] = FileDescriptorProto()
        each.CopyToProto(proto)
        ahead += each.dependencies
    return list(found.values())


def _files(request: ServerReflectionRequest, files: list[FileDescriptorProto]) -> ServerReflectionResponse:
    serialised = [file.SerializeToString() for file in files]
    return _response(
        request, file_descriptor_response=FileDescriptorResponse(file_descriptor_proto=serialised)
    )


def _error(request: ServerReflectionRequest, code: int, message: str) -> ServerReflectionResponse:
    return _response(request, error_response=ErrorResponse(error_code=code, error_message=message))


def _response(request: ServerReflectionRequest, **answer: Any) -> ServerReflectionResponse:
    return ServerReflectionResponse(valid_host=request.host, original_request=request, **answer)
