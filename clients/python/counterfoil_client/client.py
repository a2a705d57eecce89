"""Executes methods through a Counterfoil gateway (``POST /api/v1/exec``).

Every send of one execution has the same key, so it is sent again after a lost answer, and has its effect once.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from .errors import CounterfoilError, NoAnswer, Refused, error_of

#: The largest answer that is read, in bytes.
_MAX_ANSWER = 16 << 20
#: Pauses double from the first to the longest, with full jitter; in seconds.
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
#: The longest pause that a gateway may ask for.
_LONGEST_ASKED = 60.0
#: Kinds after which the very same is sent again.
_AGAIN = frozenset({"unavailable", "admission_unknown", "still_running", "limited"})
#: Statuses of proxies and gateways after which it is.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class ExecResult:
    """A result: kept by the gateway, and the same for every execution of this key."""

    #: The tool result: ``content``, ``structuredContent``.
    result: dict[str, Any]
    #: The operation; ``None`` for a method that only reads.
    operation_id: str | None
    #: An earlier execution produced it: nothing was sent to the provider this time.
    replayed: bool

    @property
    def structured(self) -> Any:
        """``structuredContent``, if there is any."""
        return self.result.get("structuredContent")

    @property
    def text(self) -> str:
        """The text parts, joined."""
        parts = self.result.get("content") or []
        return "\n".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))


@dataclass(frozen=True)
class _Answer:
    status: int
    document: dict[str, Any] | None
    retry_after: float | None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key of an API must not follow wherever somebody points."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Counterfoil:
    """A gateway.

    ``url``: default ``COUNTERFOIL_URL``, else ``http://127.0.0.1:8600``. ``api_key``: default ``COUNTERFOIL_API_KEY``.
    ``timeout``: how long an execution may take with all its sends, in seconds. ``send_timeout``: one send; the gateway
    answers within 45 s. ``retries``: how often it is sent again at most. Safe to use from several threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        send_timeout: float = 60.0,
        retries: int = 10,
    ) -> None:
        base = url or os.environ.get("COUNTERFOIL_URL") or "http://127.0.0.1:8600"
        self._url = urljoin(base if base.endswith("/") else f"{base}/", "api/v1/exec")
        if not self._url.startswith(("http://", "https://")):
            raise ValueError("the gateway's url begins with http:// or https://")
        self._api_key = api_key or os.environ.get("COUNTERFOIL_API_KEY")
        self._timeout = timeout
        self._send_timeout = send_timeout
        self._retries = retries
        self._opener = urllib.request.build_opener(_NoRedirects)

    def exec(
        self,
        id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        operation: str | None = None,
        step: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> ExecResult:
        """Executes a method and gives its result.

        ``operation``: a name of the run that this is a step of, the same whenever it runs again. ``step``: the step's name
        in it; without one, a step is known by its method and arguments. ``key``: a key of one's own instead.

        Sends again by itself, with the same key, after lost connections, torn or late answers, and what says that it is
        safe. Raises :class:`Refused` for a refusal of the provider, a :class:`CounterfoilError` by kind for what the gateway
        says, and :class:`NoAnswer` when time or tries are used up.
        """
        if key is None and operation is None:
            key = str(uuid.uuid4())
        asked = {"id": id, "arguments": dict(arguments or {}), "key": key, "operation": operation, "step": step}
        body = json.dumps(asked, allow_nan=False).encode()
        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        tried = 0
        while True:
            last, pause = self._send(body, min(self._send_timeout, until - time.monotonic()))
            if isinstance(last, ExecResult):
                return last
            if pause is None:
                raise last
            pause = max(pause, random.uniform(0, min(_FIRST_PAUSE * 2 ** min(tried, 10), _LONGEST_PAUSE)))
            if tried >= self._retries or time.monotonic() + pause >= until:
                raise _unanswered(last, key) from last
            time.sleep(pause)
            tried += 1

    def dry_run(self, id: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The request that would be sent, its credential masked. Nothing is sent to the provider."""
        asked = {"id": id, "arguments": dict(arguments or {}), "dryRun": True}
        answer = self._post(json.dumps(asked, allow_nan=False).encode(), self._send_timeout)
        if answer.document and answer.document.get("outcome") == "dry_run":
            return answer.document
        raise error_of(answer.document, answer.status)

    def _send(self, body: bytes, within: float) -> tuple[ExecResult | CounterfoilError, float | None]:
        """One send: the result, or an error and the pause after which the same may be sent again (``None``: not by itself)."""
        try:
            answer = self._post(body, within)
        except (OSError, http.client.HTTPException) as e:
            error = CounterfoilError("no_answer", f"The gateway gave no answer ({e or type(e).__name__}).")
            error.__cause__ = e
            return error, 0.0
        document = answer.document or {}
        if document.get("outcome") == "result":
            result = _result_of(document)
            return (Refused(result, answer.status), None) if document.get("isError") is True else (result, None)
        error = error_of(answer.document, answer.status)
        asked = error.retry_after if error.retry_after is not None else answer.retry_after
        passing = document.get("outcome") != "error" and (
            answer.status in _PASSING or (answer.status < 300 and error.kind == "no_answer")
        )
        # A pause of hours (a budget) is for the caller to decide about.
        if not (passing or error.kind in _AGAIN) or (asked or 0) > _LONGEST_ASKED:
            return error, None
        return error, asked or 0.0

    def _post(self, body: bytes, within: float) -> _Answer:
        until = time.monotonic() + within
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._api_key:
            headers["authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            response = self._opener.open(request, timeout=max(0.001, within))
        except urllib.error.HTTPError as e:
            response = e
        with response:
            read = bytearray()
            # In pieces, so that one that trickles in ends too.
            while piece := response.read1(1 << 16):
                read += piece
                if len(read) > _MAX_ANSWER:
                    raise http.client.HTTPException("the answer is larger than 16 MiB")
                if time.monotonic() > until:
                    raise TimeoutError("the answer did not arrive in time")
            length = response.headers.get("content-length")
            if length is not None and length.isdigit() and len(read) < int(length):
                raise http.client.IncompleteRead(bytes(read), int(length) - len(read))
            return _Answer(response.status, _parsed(bytes(read)), _seconds(response.headers.get("retry-after")))


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.strip().isdigit() else None


def _result_of(document: dict[str, Any]) -> ExecResult:
    result = document.get("result")
    operation = document.get("operation")
    operation = operation if isinstance(operation, dict) else {}
    return ExecResult(
        result if isinstance(result, dict) else {},
        operation.get("id"),
        operation.get("replayed") is True,
    )


def _unanswered(last: CounterfoilError, key: str | None) -> CounterfoilError:
    # What the gateway said last is said; only silence has no words of its own.
    if last.kind != "no_answer":
        return last
    advice = "It may have been carried out. The very same again is safe: nothing is done twice."
    error = NoAnswer("no_answer", last.message, advice=advice, status=last.status)
    error.key = key
    return error
