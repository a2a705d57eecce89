"""The official Python client as a worker. Its argument says how it opens: `auto` asks the server which revisions it
speaks, `pin` speaks 2026-07-28 or nothing."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import host  # noqa: E402
import httpx2  # noqa: E402
import mcp_types as types  # noqa: E402
from mcp import Client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

MODES: dict[str, Any] = {"auto": "auto", "pin": "2026-07-28"}
MODE = sys.argv[1] if len(sys.argv) > 1 else "auto"
PINNED = MODE == "pin"


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.listening: asyncio.Task[None] | None = None

    async def call(self, request: dict[str, Any], seconds: float) -> Any:
        return await self.client.call_tool(
            request["tool"], request.get("arguments") or {}, read_timeout_seconds=seconds, meta=request.get("meta")
        )

    async def page(self, what: str, cursor: str | None) -> Any:
        return await getattr(self.client, f"list_{what}")(cursor=cursor)

    async def read(self, uri: Any) -> Any:
        return await self.client.read_resource(uri)

    def serves(self, what: str) -> bool:
        # A pinned client never asks what is served, so its host must know.
        return PINNED or getattr(self.client.server_capabilities, what) is not None

    def revision(self) -> str | None:
        return self.client.protocol_version

    async def subscribe(self, seen: list[str]) -> str:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def listen() -> None:
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    ready.set_result("subscriptions/listen")
                    async for _ in events:
                        seen.append(host.CHANGED)
            except Exception as error:
                if not ready.done():
                    ready.set_exception(error)

        self.listening = asyncio.create_task(listen())
        return await ready


def callbacks(asked: host.Asked | None) -> dict[str, Any]:
    """How the client answers what it is asked. Only what has a callback is declared."""
    if asked is None:
        return {}

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await asked("elicitation/create", host.plain(params)))

    async def sample(_: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(await asked("sampling/createMessage", host.plain(params)))

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(await asked("roots/list", {}))

    return {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}


@asynccontextmanager
async def connect(url: str, auth: str | None, _seen: list[str], asked: host.Asked | None) -> AsyncIterator[Session]:
    server: Any = url
    if auth:
        http = httpx2.AsyncClient(headers={"Authorization": auth}, timeout=httpx2.Timeout(30, read=300))
        server = streamable_http_client(url, http_client=http)

    async with Client(server, mode=MODES[MODE], **callbacks(asked)) as client:
        session = Session(client)
        try:
            yield session
        finally:
            if session.listening is not None:
                session.listening.cancel()


host.run(connect)
