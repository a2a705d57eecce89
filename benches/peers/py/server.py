"""The same tools with the official Python SDK, on uvicorn, stateless and answering JSON.

Prints {"url": ...} when it listens; ends when its standard input does. The reader of standard input is a thread that
sleeps in its one read.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("echo", log_level="WARNING")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Gives back what it was given"""
    return text


class Who(BaseModel):
    """The first answer."""

    who: str


class Why(BaseModel):
    """The second answer."""

    why: str


def ask_who(text: str) -> Elicit[Who]:
    return Elicit(f"Who is to have {text}?", Who)


def ask_why(who: Annotated[Who, Resolve(ask_who)]) -> Elicit[Why]:
    return Elicit(f"Why is {who.who} to have it?", Why)


@server.tool(structured_output=False)
def two_rounds(text: str, who: Annotated[Who, Resolve(ask_who)], why: Annotated[Why, Resolve(ask_why)]) -> str:
    """Gives back what it was given, after two rounds of questions"""
    return f"{text} {who.who} {why.why}"


def until_stdin_ends() -> None:
    sys.stdin.buffer.read(1)
    os._exit(0)


async def main() -> None:
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    # Named by its protocol: asyncio lets small writes go at once on such sockets only.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    threading.Thread(target=until_stdin_ends, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


asyncio.run(main())
