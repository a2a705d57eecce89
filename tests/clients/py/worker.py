"""The official Python client as a worker: one JSON request a line on stdin, one JSON answer a line on stdout.

{"n", "op": "call", "client", "url", "tool", "arguments", "meta", "timeoutMs", "auth", "abortAfterMs"}
{"n", "op": "list", "client", "url", "auth"}
{"n", "op": "forget", "client"}

`client` names a client object that is kept from one request to the next, as a host would keep it. This client is
torn down by a lost connection; the next request then makes a new one. Nothing is ever sent twice from here.
"""

import asyncio
import json
import logging
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

logging.disable(logging.CRITICAL)


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def told(error: BaseException) -> dict[str, Any]:
    inner = innermost(error)
    return {
        "name": type(inner).__name__,
        "code": getattr(inner, "code", None),
        "message": str(inner),
        "data": getattr(inner, "data", None),
    }


class Host:
    """One client object in its own task, since its scopes must be entered and left by the same one."""

    def __init__(self, url: str, auth: str | None) -> None:
        self.url = url
        self.auth = auth
        self.queue: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[Any]] | None] = asyncio.Queue()
        self.current: asyncio.Future[Any] | None = None
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        try:
            if self.auth:
                http = httpx2.AsyncClient(headers={"Authorization": self.auth}, timeout=httpx2.Timeout(30, read=300))
                server: Any = streamable_http_client(self.url, http_client=http)
            else:
                server = self.url
            async with Client(server) as client:
                while (item := await self.queue.get()) is not None:
                    request, self.current = item
                    try:
                        self.answer(await self.carry_out(client, request))
                    except Exception as error:
                        self.fail(error)
        except BaseException as error:
            self.fail(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        while not self.queue.empty():
            if (item := self.queue.get_nowait()) is not None and not item[1].done():
                item[1].set_exception(ConnectionError("the client was torn down before the call was made"))

    def answer(self, result: Any) -> None:
        if self.current is not None and not self.current.done():
            self.current.set_result(result)

    def fail(self, error: BaseException) -> None:
        if self.current is not None and not self.current.done():
            self.current.set_exception(error if isinstance(error, Exception) else ConnectionError(repr(error)))
        elif self.current is None:
            # It failed before its first request: whoever waits must hear of it.
            while not self.queue.empty():
                if (item := self.queue.get_nowait()) is not None and not item[1].done():
                    item[1].set_exception(error if isinstance(error, Exception) else ConnectionError(repr(error)))

    async def carry_out(self, client: Client, request: dict[str, Any]) -> Any:
        seconds = (request.get("timeoutMs") or 5000) / 1000
        if request["op"] == "list":
            tools: list[Any] = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    break
            return {"tools": tools, "protocolVersion": client.protocol_version}
        call = client.call_tool(
            request["tool"], request.get("arguments") or {}, read_timeout_seconds=seconds, meta=request.get("meta")
        )
        if (abort := request.get("abortAfterMs")) is not None:
            async with asyncio.timeout(abort / 1000):
                result = await call
        else:
            result = await call
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main() -> None:
    hosts: dict[tuple[str, str, str | None], Host] = {}
    loop = asyncio.get_running_loop()

    async def serve(request: dict[str, Any]) -> None:
        try:
            if request["op"] == "forget":
                for key in [key for key in hosts if key[0] == request["client"]]:
                    await hosts.pop(key).queue.put(None)
                say({"n": request["n"], "result": {}})
                return
            key = (request["client"], request["url"], request.get("auth"))
            host = hosts.get(key)
            if host is None or host.task.done():
                host = hosts[key] = Host(request["url"], request.get("auth"))
            future = loop.create_future()
            await host.queue.put((request, future))
            done, _ = await asyncio.wait({future, host.task}, return_when=asyncio.FIRST_COMPLETED)
            if future not in done and not future.done():
                await asyncio.sleep(0)
            if future.done():
                say({"n": request["n"], "result": future.result()})
            else:
                future.cancel()
                raise ConnectionError("the client was torn down")
        except Exception as error:
            say({"n": request["n"], "error": told(error)})

    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    say({"ready": True, "python": sys.version.split()[0]})
    while line := await reader.readline():
        task = asyncio.create_task(serve(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main())
