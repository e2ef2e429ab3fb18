"""A client of HTTP/2 without manners: it sends headers and any part of a body, and sees only how the server ends it.

It must never help the caller to be correct, except that it keeps to the server's flow control: bytes beyond a window
would end the connection for another reason than the one under test.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from types import TracebackType
from typing import Final, Self

from snavio.rpc.credentials import CertificateFiles

DATA: Final = 0x0
HEADERS: Final = 0x1
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_INITIAL_WINDOW: Final = 65_535


def tls(files: CertificateFiles | None, ca: bytes) -> ssl.SSLContext:
    """A client's TLS that accepts any name: who answers is not what is tested."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if files is not None:
        context.load_cert_chain(files.certificate, files.private_key)
    return context


def message_head(size: int) -> bytes:
    """The prefix that gRPC puts before a message of `size` bytes."""
    return b"\0" + struct.pack(">I", size)


def _literal(name: str, value: str) -> bytes:
    # Never indexed and not Huffman-coded; lengths below 127 fit one byte.
    assert len(name) < 127 and len(value) < 127
    return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class RawHttp2:
    """One connection."""

    def __init__(self, address: str, context: ssl.SSLContext, *, from_host: str = "127.0.0.1") -> None:
        self._from_host = from_host
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._context = context
        self._next = 1
        self._window = _INITIAL_WINDOW
        self._stream_window: dict[int, int] = {}
        self._initial = _INITIAL_WINDOW
        self._changed = asyncio.Event()
        self.ended: set[int] = set()
        """Streams that the server has ended."""
        self.sent: dict[int, int] = {}
        """Bytes of bodies that the server's windows let through, by stream."""
        self.closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._host,
            self._port,
            ssl=self._context,
            server_hostname="shield.mesh.snavio.local",
            local_addr=(self._from_host, 0),
        )
        self._writer.write(PREFACE + _frame(SETTINGS, 0, 0, b""))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._writer.transport.abort()

    async def call(self, method: str) -> int:
        """Send the headers of a call and nothing else; the stream's number."""
        stream, self._next = self._next, self._next + 2
        self._stream_window[stream] = self._initial
        self.sent[stream] = 0
        block = b"".join(
            _literal(*pair)
            for pair in (
                (":method", "POST"),
                (":scheme", "https"),
                (":path", method),
                (":authority", "shield.mesh.snavio.local"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            )
        )
        self._writer.write(_frame(HEADERS, END_HEADERS, stream, block))
        await self._writer.drain()
        return stream

    async def send(self, stream: int, data: bytes) -> int:
        """Send as much of `data` as the server takes before it ends the stream; how much that was."""
        sent = 0
        while sent < len(data) and stream not in self.ended and not self.closed.is_set():
            room = min(self._window, self._stream_window[stream], 16_384, len(data) - sent)
            if room <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._window -= room
            self._stream_window[stream] -= room
            self._writer.write(_frame(DATA, 0, stream, data[sent : sent + room]))
            await self._writer.drain()
            sent += room
            self.sent[stream] = sent
        return sent

    async def end_of(self, stream: int) -> None:
        """Wait until the server has ended the stream or the connection."""
        while stream not in self.ended and not self.closed.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                kind, flags = head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7FFF_FFFF
                self._take(kind, flags, stream, await self._reader.readexactly(size))
                self._changed.set()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.closed.set()
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == WINDOW_UPDATE:
            more = int.from_bytes(body, "big")
            if stream:
                self._stream_window[stream] = self._stream_window.get(stream, 0) + more
            else:
                self._window += more
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(body), 6):
                key, value = struct.unpack(">HI", body[at : at + 6])
                if key == 4:
                    for each in self._stream_window:
                        self._stream_window[each] += value - self._initial
                    self._initial = value
            self._writer.write(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._writer.write(_frame(PING, ACK, 0, body))
        elif kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
            self.ended.add(stream)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
