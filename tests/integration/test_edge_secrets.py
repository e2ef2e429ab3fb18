"""The bytes of secrets: variables, files, and Vault over HTTP in both versions of its key-value store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aiohttp import web

from snavio.edge.references import parse_reference
from snavio.errors import BadRequest, NotFound, SnavioError, Unavailable
from snavio.wiring import open_secret_source


async def read(text: str, **environment: str) -> bytes:
    return await open_secret_source(environment).read(parse_reference(text))


async def test_variables_and_files_are_read_without_the_line_break_of_an_editor(tmp_path: Path) -> None:
    assert await read("env:A", A="s3cret") == b"s3cret"
    assert await read("raw:x y") == b"x y"
    (tmp_path / "s").write_bytes(b"from a file\n")
    assert await read(f"file:{tmp_path}/s") == b"from a file"


async def test_what_is_not_there_or_empty_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    for text, kind in {
        "env:NONE": NotFound,
        f"file:{tmp_path}/none": NotFound,
        f"file:{tmp_path}/empty": NotFound,
        f"file:{tmp_path}/pipe": BadRequest,
        f"file:{tmp_path}": SnavioError,
        f"file:{tmp_path}/large": BadRequest,
        "vault:a/b": BadRequest,
    }.items():
        with pytest.raises(kind):
            await read(text)


async def test_both_versions_of_vault_are_read_and_its_refusals_are_told_apart() -> None:
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("x-vault-token"))
        match request.path:
            case "/v1/secret/data/edge":
                return web.json_response(
                    {"data": {"data": {"value": "v2", "other": "o"}, "metadata": {"version": 3}}}
                )
            case "/v1/kv/edge":
                return web.json_response({"data": {"value": "v1"}})
            case "/v1/forbidden":
                return web.Response(status=403)
            case "/v1/elsewhere":
                return web.Response(status=302, headers={"Location": "/v1/kv/edge"})
            case "/v1/broken":
                return web.Response(body=b"{")
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        both = {"SNAVIO_VAULT_ADDR": address, "SNAVIO_VAULT_TOKEN": "t0ken"}
        assert await read("vault:secret/data/edge", **both) == b"v2"
        assert await read("vault:secret/data/edge#other", **both) == b"o"
        assert await read("vault:kv/edge", HOOKAIDO_VAULT_ADDR=address, HOOKAIDO_VAULT_TOKEN="t0ken") == b"v1"
        assert set(asked) == {"t0ken"}
        for path, kind in {
            "nothing": NotFound,
            "kv/edge#nothing": NotFound,
            "forbidden": Unavailable,
            "elsewhere": Unavailable,
            "broken": Unavailable,
            "../sys/seal": BadRequest,
        }.items():
            with pytest.raises(kind) as told:
                await read(f"vault:{path}", **both)
            assert "t0ken" not in str(told.value)
    finally:
        await runner.cleanup()
    with pytest.raises(Unavailable):
        await read("vault:kv/edge", **both)
