"""The official Python client of the legacy era as a worker."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import host  # noqa: E402
import mcp.types as types  # noqa: E402
from mcp import ClientSession  # noqa: E402
from mcp.client.streamable_http import streamablehttp_client  # noqa: E402


class Session:
    def __init__(self, client: ClientSession, opened: types.InitializeResult, session_id: Any) -> None:
        self.client = client
        self.opened = opened
        self.session_id = session_id

    async def call(self, request: dict[str, Any], seconds: float) -> Any:
        # This client says nothing to the server when a call is given up, so a host that wants it cancelled does.
        number = self.client._request_id
        try:
            return await self.client.call_tool(
                request["tool"],
                request.get("arguments") or {},
                read_timeout_seconds=timedelta(seconds=seconds),
                meta=request.get("meta"),
            )
        except asyncio.CancelledError:
            params = types.CancelledNotificationParams(requestId=number, reason="aborted by the test")
            cancelled = types.ClientNotification(types.CancelledNotification(params=params))
            await asyncio.shield(asyncio.ensure_future(self.client.send_notification(cancelled)))
            raise

    async def page(self, what: str, cursor: str | None) -> Any:
        params = types.PaginatedRequestParams(cursor=cursor)
        return await getattr(self.client, f"list_{what}")(params=params)

    async def read(self, uri: Any) -> Any:
        return await self.client.read_resource(uri)

    def serves(self, what: str) -> bool:
        return getattr(self.opened.capabilities, what) is not None

    def revision(self) -> str | None:
        return str(self.opened.protocolVersion)

    async def subscribe(self, _seen: list[str]) -> str:
        # The GET stream is opened by the client itself, and only where the server minted a session.
        return "GET" if self.session_id() else "nothing: without a session this client opens no GET stream"


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
async def connect(url: str, auth: str | None, seen: list[str], asked: host.Asked | None) -> AsyncIterator[Session]:
    async def hear(message: Any) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(message.root, types.ToolListChangedNotification):
            seen.append(host.CHANGED)

    headers = {"Authorization": auth} if auth else {}
    async with streamablehttp_client(url, headers=headers) as (read, write, session_id):
        async with ClientSession(read, write, message_handler=hear, **callbacks(asked)) as client:
            yield Session(client, await client.initialize(), session_id)


host.run(connect)
