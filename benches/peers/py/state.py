"""What the official Python SDK does with the state of one round, alone on one core: `RequestStateBoundary`, which every
server of it has, opens what came back (AES-256-GCM), checks it against the request and the caller, and seals the next.

usage: state.py SECONDS STATE ARGUMENTS. Prints {"per_second": ...}.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

# Rounds between two looks at the clock.
STEP = 100


async def main() -> None:
    seconds, state, arguments = float(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    security = RequestStateSecurity(keys=[os.urandom(32)], bind_principal=lambda _: "ann")
    boundary = RequestStateBoundary(security, default_audience="bench")

    def request(token: str | None) -> ServerRequestContext[Any, Any]:
        params = {"name": "orders_refund", "arguments": arguments}
        if token is not None:
            params["requestState"] = token
        # The boundary looks at the method and its parameters only.
        return ServerRequestContext(
            session=cast(Any, None),
            lifespan_context={},
            protocol_version="2026-07-28",
            method="tools/call",
            params=params,
        )

    async def asks_again(context: ServerRequestContext[Any, Any]) -> Any:
        back = (context.params or {}).get("requestState")
        if back is not None and back != state:
            raise ValueError("the state came back as something else")
        return {"resultType": "input_required", "requestState": state}

    async def round_of(token: str | None) -> str:
        return cast(Any, await boundary(request(token), asks_again))["requestState"]

    token = await round_of(None)
    if token == state:
        raise ValueError("the state was not sealed")
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(STEP):
            token = await round_of(token)
        done += STEP
    print(json.dumps({"per_second": done / (time.perf_counter() - began)}))


asyncio.run(main())
