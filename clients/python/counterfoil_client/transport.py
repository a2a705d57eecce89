"""One send over HTTP: nothing is followed, and everything has an end."""

from __future__ import annotations

import functools
import http.client
import io
import ipaddress
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

#: The largest answer that is read, in bytes.
MAX_ANSWER = 64 << 20
#: The longest that a socket is asked to wait, in seconds.
_LONGEST_WAIT = 86_400.0


class TooLarge(Exception):
    """More than is read of an answer."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    document: dict[str, Any] | None
    #: The pause that is asked for, in seconds.
    retry_after: float | None


def opener(url: str) -> urllib.request.OpenerDirector:
    """What opens this url. A proxy of the environment is never asked for what is on this machine."""
    handlers: list[Any] = [_NoRedirects, _Http, _Https]
    if _loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def post(through: urllib.request.OpenerDirector, url: str, body: bytes, api_key: str | None, within: float) -> Answer:
    """Sends it and reads the answer; an ``OSError`` or ``HTTPException`` where there is none within this time."""
    within = min(max(0.001, within), _LONGEST_WAIT)
    until = time.monotonic() + within
    headers = {"content-type": "application/json", "accept": "application/json"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        response = through.open(request, timeout=within)
    except urllib.error.HTTPError as e:
        response = e
    with response:
        read = bytearray()
        # In pieces, so that one that trickles in ends too.
        while piece := response.read1(1 << 16):
            read += piece
            if len(read) > MAX_ANSWER:
                raise TooLarge(f"the answer is larger than {MAX_ANSWER >> 20} MiB")
            if time.monotonic() > until:
                raise TimeoutError("the answer did not arrive in time")
        length = _digits(response.headers.get("content-length"))
        if length is not None and len(read) < length:
            raise http.client.IncompleteRead(bytes(read), length - len(read))
        pause = _digits(response.headers.get("retry-after"))
        return Answer(response.status, _parsed(bytes(read)), None if pause is None else float(pause))


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _digits(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key of an API must not follow wherever somebody points; a place that can't be read is not read either."""

    def http_error_302(self, *_: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Until(io.RawIOBase):
    """Reads a socket until a moment, however little comes at a time."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not arrive in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, until: float, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock, until))


class _Bounded:
    """A connection whose time is for all of a send, and not for each of its steps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._until = time.monotonic() + self.timeout  # type: ignore[attr-defined]
        self.response_class = functools.partial(_Response, until=self._until)

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(max(0.001, self._until - time.monotonic()))  # type: ignore[attr-defined]


class _Connection(_Bounded, http.client.HTTPConnection):
    pass


class _SecureConnection(_Bounded, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> Any:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return self.do_open(_SecureConnection, req, context=context)
