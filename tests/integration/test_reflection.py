"""Reflection of a whole mesh: every symbol, in both versions, as foreign tools ask for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_reflection.v1alpha.reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from tests.support.mesh import SOURCE, DemoMesh
from tools.generate_proto import run_protoc

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSIONS = ("v1alpha", "v1")
PUBLIC = ("shield", "signer", "mailbox", "registry")
"""The services that tenants call."""


def symbols(file: FileDescriptorProto) -> Iterator[str]:
    """Full name of everything that a file defines."""

    def of_message(scope: str, message: DescriptorProto) -> Iterator[str]:
        name = f"{scope}.{message.name}"
        yield name
        yield from (f"{name}.{field.name}" for field in message.field)
        for oneof in message.oneof_decl:
            if not oneof.name.startswith("_"):  # one that an optional field has for itself
                yield f"{name}.{oneof.name}"
        for enum in message.enum_type:
            yield f"{name}.{enum.name}"
            yield from (f"{name}.{value.name}" for value in enum.value)
        for nested in message.nested_type:
            yield from of_message(name, nested)

    for message in file.message_type:
        yield from of_message(file.package, message)
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}"
        # Values are siblings of their enum.
        yield from (f"{file.package}.{value.name}" for value in enum.value)
    for service in file.service:
        yield f"{file.package}.{service.name}"
        yield from (f"{file.package}.{service.name}.{method.name}" for method in service.method)


class Questions:
    """A stream of reflection of one version to one service, under a tenant's certificate."""

    def __init__(self, mesh: DemoMesh, service: str, version: str) -> None:
        files = CertificateFiles.in_folder(mesh.certificates("acme-billing"))
        self._channel = MeshChannel(mesh.addresses[service], files=files, service=service)
        self._stream = self._channel.stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        )

    async def ask(self, **question: object) -> ServerReflectionResponse:
        request = ServerReflectionRequest(**question)
        await self._stream.write(request.SerializeToString())
        return ServerReflectionResponse.FromString(await self._stream.read())

    async def files(self, **question: object) -> list[FileDescriptorProto]:
        answer = await self.ask(**question)
        assert not answer.HasField("error_response"), (question, answer.error_response.error_message)
        return [
            FileDescriptorProto.FromString(each)
            for each in answer.file_descriptor_response.file_descriptor_proto
        ]

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("service", PUBLIC)
async def test_every_symbol_of_a_service_is_described(mesh: DemoMesh, service: str, version: str) -> None:
    questions = Questions(mesh, service, version)
    own = f"snavio.v1.{service.capitalize()}"
    listed = await questions.ask(list_services="")
    names = {each.name for each in listed.list_services_response.service}
    assert own in names
    asked = 0
    for name in sorted(names):
        files = await questions.files(file_containing_symbol=name)
        # All that it imports comes along, or can be had by its name: a client builds the whole from that alone.
        pool = descriptor_pool.DescriptorPool()
        known = {file.name: file for file in files}
        assert {each for file in files for each in file.dependency} <= known.keys()
        add_all(pool, known)
        assert pool.FindServiceByName(name).full_name == name
        for file in files:
            (again, *_) = await questions.files(file_by_filename=file.name)
            assert again == file
            for symbol in symbols(file):
                found = await questions.files(file_containing_symbol=symbol)
                assert found[0].name == file.name, symbol
                asked += 1
    assert asked > 50
    await questions.close()


def add_all(pool: descriptor_pool.DescriptorPool, known: dict[str, FileDescriptorProto]) -> None:
    """Add files after those that they import."""
    added: set[str] = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            for each in known[name].dependency:
                add(each)
            pool.Add(known[name])

    for name in known:
        add(name)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_travels_inside_of_bytes_is_described_too(mesh: DemoMesh, version: str) -> None:
    """No method names these messages, and nobody can read the bytes without them."""
    for service, symbol in (
        ("shield", "snavio.v1.Command"),
        ("mailbox", "snavio.v1.StoredCommand"),
        ("shield", "google.rpc.RetryInfo"),
        ("signer", "google.rpc.Status"),
    ):
        questions = Questions(mesh, service, version)
        assert await questions.files(file_containing_symbol=symbol), symbol
        await questions.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_questions_about_extensions_are_answered(mesh: DemoMesh, version: str) -> None:
    questions = Questions(mesh, "shield", version)
    numbers = await questions.ask(all_extension_numbers_of_type="snavio.v1.Hello")
    assert numbers.all_extension_numbers_response.base_type_name == "snavio.v1.Hello"
    assert list(numbers.all_extension_numbers_response.extension_number) == []
    none = await questions.ask(
        file_containing_extension=ExtensionRequest(containing_type="snavio.v1.Hello", extension_number=1000)
    )
    assert none.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    nobody = await questions.ask(all_extension_numbers_of_type="snavio.v1.Nobody")
    assert nobody.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    await questions.close()


async def test_the_protos_name_a_package_for_every_language(tmp_path: Path) -> None:
    described = tmp_path / "protos.binpb"
    await asyncio.to_thread(run_protoc, f"--descriptor_set_out={described}")
    for file in FileDescriptorSet.FromString(described.read_bytes()).file:
        options = file.options
        assert options.go_package == "snavio.local/go/snaviov1", file.name
        assert (options.java_package, options.java_multiple_files) == ("local.snavio.v1", True)
        assert (options.csharp_namespace, options.php_namespace) == ("Snavio.V1", "Snavio\\V1")
        assert options.ruby_package == "Snavio::V1"


# -- grpcurl ---------------------------------------------------------------------------------------------


def grpcurl(mesh: DemoMesh, service: str, *words: str, data: str = "") -> str:
    """Output of grpcurl, as the billing service, without any proto file."""
    program = os.environ.get("SNAVIO_GRPCURL") or shutil.which("grpcurl")
    if program is None:
        pytest.skip("grpcurl is not there")
    folder = mesh.certificates("acme-billing")
    options = [
        *("-cacert", folder / "ca.pem", "-cert", folder / "cert.pem", "-key", folder / "key.pem"),
        *("-authority", f"{service}.mesh.snavio.local", "-max-time", "30"),
        *(("-d", data) if data else ()),
    ]
    done = subprocess.run(
        [program, *map(str, options), mesh.addresses[service], *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_grpcurl_describes_and_calls_without_any_proto(mesh: DemoMesh) -> None:
    listed = await asyncio.to_thread(grpcurl, mesh, "shield", "list")
    assert "snavio.v1.Shield" in listed.split()
    described = await asyncio.to_thread(grpcurl, mesh, "shield", "describe")
    assert (
        "rpc SubmitStream ( stream .snavio.v1.Submission ) returns ( stream .snavio.v1.Verdicts );"
        in described
    )
    for symbol in (
        "snavio.v1.Shield.Submit",
        "snavio.v1.Submission",
        "snavio.v1.Verdict",
        "snavio.v1.Verdict.VERDICT_DELIVERED",
        "snavio.v1.Hello.limits",
        "snavio.v1.Command",
        "grpc.reflection.v1.ServerReflection",
    ):
        assert symbol in await asyncio.to_thread(grpcurl, mesh, "shield", "describe", symbol)
    called = await asyncio.to_thread(
        grpcurl, mesh, "shield", "snavio.v1.Shield/Greet", data='{"wire_version": 1}'
    )
    assert json.loads(called)["audience"]
    config = await asyncio.to_thread(grpcurl, mesh, "signer", "snavio.v1.Signer/TenantConfig")
    assert json.loads(config)["keyset"]["source"] == SOURCE
