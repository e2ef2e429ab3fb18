"""Workers of the Pull API in a process of their own: plain sockets and prepared requests, so that they cost little.

    python -m bench.pull_workers PORT PATH MODE WORKERS SECONDS

`batch` and `single` fetch and acknowledge until the time is over or nothing is left; `idle` waits for messages that do
not come. Prints the messages that were acknowledged and the seconds that it took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

BATCHES = {"batch": 100, "single": 1, "idle": 1}


async def request(
    reading: asyncio.StreamReader, writing: asyncio.StreamWriter, path: str, body: bytes
) -> tuple[int, bytes]:
    """One request on a connection that is kept."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writing.write(head.encode() + body)
    answer = await reading.readuntil(b"\r\n\r\n")
    lines = answer.split(b"\r\n")
    size = next((int(line[16:]) for line in lines if line.lower().startswith(b"content-length: ")), 0)
    return int(lines[0].split()[1]), await reading.readexactly(size) if size else b""


async def work(port: int, path: str, mode: str, until: float) -> int:
    """One worker; the messages that it acknowledged."""
    reading, writing = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    wanted = {"batch": BATCHES[mode], "lease_ttl": "600s"} | ({"max_wait": "600s"} if mode == "idle" else {})
    asked, done = json.dumps(wanted).encode(), 0
    while time.monotonic() < until:
        status, body = await request(reading, writing, path + "/dequeue", asked)
        assert status == 200, (status, body)
        ids = [item["lease_id"] for item in json.loads(body)["items"]]
        if not ids:
            break
        acked = {"lease_ids": ids} if mode == "batch" else {"lease_id": ids[0]}
        status, body = await request(reading, writing, path + "/ack", json.dumps(acked).encode())
        assert status in (200, 204), (status, body)
        done += len(ids)
    writing.close()
    return done


async def main(port: int, path: str, mode: str, workers: int, seconds: float) -> None:
    """Run all workers."""
    began = time.monotonic()
    if mode == "idle":
        tasks = [asyncio.create_task(work(port, path, mode, began + seconds)) for _ in range(workers)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        return
    done = await asyncio.gather(*(work(port, path, mode, began + seconds) for _ in range(workers)))
    print(sum(done), time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
