"""What a Python worker has in common with the other: one JSON request a line on stdin, one JSON answer a line on stdout.

{"n", "op": "call", "client", "url", "tool", "arguments", "meta", "timeoutMs", "auth", "abortAfterMs", "asked"}
{"n", "op": "list" | "resources" | "prompts", ...}     every page; resources are read, too
{"n", "op": "subscribe", ...}                          to changes of the list of tools
{"n", "op": "seen", ...}                               the notifications that have come since
{"n", "op": "forget", "client"}

`client` names a client object that is kept from one request to the next, as a host would keep it. These clients are
torn down by a lost connection; the next request then makes a new one. Nothing is ever sent twice from here.

With `asked` the client says that its user can be asked, that it can sample and that it has roots. What a server asks is
passed on, {"ask", "client", "method", "params"} on a line, and the answer to it comes back as {"answer", "result"}.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

import anyio

logging.disable(logging.CRITICAL)

CHANGED = "notifications/tools/list_changed"


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Questions:
    """What servers ask, on its way to whoever reads these lines, and the answers to it."""

    def __init__(self) -> None:
        self.number = 0
        self.open: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, client: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        number = self.number
        answer = self.open[number] = asyncio.get_running_loop().create_future()
        say({"ask": number, "client": client, "method": method, "params": params})
        try:
            return await answer
        finally:
            del self.open[number]

    def answer(self, number: int, result: dict[str, Any]) -> None:
        if (waiting := self.open.get(number)) is not None and not waiting.done():
            waiting.set_result(result)


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def told(error: BaseException) -> dict[str, Any]:
    inner = innermost(error)
    # The older client keeps the error object whole.
    inner_error = getattr(inner, "error", inner)
    code = getattr(inner_error, "code", None)
    return {
        "name": type(inner).__name__,
        "code": code if isinstance(code, int) else None,
        "message": str(inner),
        "data": getattr(inner_error, "data", None),
    }


def plain(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Session(Protocol):
    """One connected client object of whichever version."""

    async def call(self, request: dict[str, Any], seconds: float) -> Any: ...
    async def page(self, what: str, cursor: str | None) -> Any:
        """A page of "tools", "resources" or "prompts"."""
    async def read(self, uri: Any) -> Any: ...
    def serves(self, what: str) -> bool: ...
    def revision(self) -> str | None: ...
    async def subscribe(self, seen: list[str]) -> str:
        """Asks for changes of the list of tools where that takes asking, and says how."""


Asked = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Passes on the method and the parameters of what a server asks, and comes back with the answer."""

Connect = Callable[[str, str | None, list[str], Asked | None], AbstractAsyncContextManager[Session]]


class Host:
    """One client object in its own task, since its scopes must be entered and left by the same one."""

    def __init__(self, connect: Connect, url: str, auth: str | None, asked: Asked | None) -> None:
        self.seen: list[str] = []
        self.connect = lambda: connect(url, auth, self.seen, asked)
        self.queue: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[Any]] | None] = asyncio.Queue()
        self.current: asyncio.Future[Any] | None = None
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        try:
            async with self.connect() as session:
                while (item := await self.queue.get()) is not None:
                    request, self.current = item
                    try:
                        self.answer(await self.carry_out(session, request))
                    except Exception as error:
                        self.fail(error)
                        # The client's library has closed its own streams, and no call of this session will ever leave again:
                        # a host that goes on connects anew.
                        if isinstance(innermost(error), (anyio.ClosedResourceError, anyio.BrokenResourceError)):
                            break
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

    async def carry_out(self, session: Session, request: dict[str, Any]) -> Any:
        op = request["op"]
        if op == "list":
            return {"tools": [plain(t) for t in await self.pages(session, "tools")], "protocolVersion": session.revision()}
        if op in ("resources", "prompts"):
            if not session.serves(op):
                return {"served": False}
            all = await self.pages(session, op)
            answer: dict[str, Any] = {"served": True, op: [plain(one) for one in all]}
            if op == "resources":
                contents = [(await session.read(one.uri)).contents for one in all]
                answer["contents"] = [plain(one) for some in contents for one in some]
            return answer
        if op == "subscribe":
            return {"how": await session.subscribe(self.seen)}
        if op == "seen":
            return {"seen": self.seen}
        call = session.call(request, (request.get("timeoutMs") or 5000) / 1000)
        if (abort := request.get("abortAfterMs")) is not None:
            async with asyncio.timeout(abort / 1000):
                result = await call
        else:
            result = await call
        return plain(result)

    async def pages(self, session: Session, what: str) -> list[Any]:
        all: list[Any] = []
        cursor = None
        while True:
            page = await session.page(what, cursor)
            all += getattr(page, what)
            cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
            if not cursor:
                return all


async def main(connect: Connect) -> None:
    hosts: dict[tuple[str, str, str | None, bool], Host] = {}
    questions = Questions()
    loop = asyncio.get_running_loop()

    async def serve(request: dict[str, Any]) -> None:
        try:
            if request["op"] == "forget":
                for key in [key for key in hosts if key[0] == request["client"]]:
                    await hosts.pop(key).queue.put(None)
                say({"n": request["n"], "result": {}})
                return
            name, is_asked = request["client"], bool(request.get("asked"))
            key = (name, request["url"], request.get("auth"), is_asked)
            host = hosts.get(key)
            if host is None or host.task.done():
                asked = partial(questions.ask, name) if is_asked else None
                host = hosts[key] = Host(connect, request["url"], request.get("auth"), asked)
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
        request = json.loads(line)
        if (number := request.get("answer")) is not None:
            questions.answer(number, request["result"])
            continue
        task = asyncio.create_task(serve(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def run(connect: Connect) -> None:
    asyncio.run(main(connect))
