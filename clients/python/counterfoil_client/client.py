"""Executes methods through a Counterfoil gateway (``POST /api/v1/exec``).

Every send of one execution has the same key, so it is sent again after a lost answer, and has its effect once.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from .errors import DRY, MAY_HAVE, CounterfoilError, NoAnswer, Refused, error_of, is_refusal
from .transport import Answer, TooLarge, opener, post

#: Pauses double from the first to the longest, with full jitter; in seconds.
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
#: The longest pause that a gateway may ask for.
_LONGEST_ASKED = 60.0
#: Kinds after which the very same is sent again.
_AGAIN = frozenset({"unavailable", "admission_unknown", "still_running", "limited"})
#: Statuses of proxies and gateways after which it is.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})

#: Kinds that are true of the execution whatever became of its earlier sends.
_OF_IT = frozenset(
    {
        "no_answer",
        "refused",
        "in_doubt",
        "still_running",
        "admission_unknown",
        "approval_required",
        "key_conflict",
    }
)
#: Kinds that leave open whether the send is carried out. All others say that nothing ran, or what came of it.
_OPEN = frozenset({"admission_unknown", "still_running"})


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
        parts = self.result.get("content")
        parts = parts if isinstance(parts, list) else []
        return "\n".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))


@dataclass(frozen=True)
class _Failure:
    """What came of a send that brought no result."""

    error: CounterfoilError
    #: It may have been carried out, or be so still.
    unclear: bool = False
    #: The pause after which it may be sent again; ``None``: not by itself.
    after: float | None = None


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
        if self._api_key and not all("!" <= c <= "~" for c in self._api_key):
            raise ValueError("the API key has a character that a header can't have")
        self._timeout = _span("timeout", timeout)
        self._send_timeout = _span("send_timeout", send_timeout)
        self._retries = _span("retries", retries)
        self._opener = opener(self._url)

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
        in it; without one, a step is known by its method and arguments. ``key``: a key of one's own instead. Without either,
        one is made for this execution.

        Sends again by itself, with the same key, after lost connections, torn or late answers, and what says that it is
        safe. Raises :class:`Refused` for a refusal of the provider, a :class:`CounterfoilError` by kind for what the gateway
        says, and :class:`NoAnswer` when time or tries are used up or an earlier send may have been carried out. Each has the
        ``key`` that was sent. What is no JSON is a ``ValueError`` or ``TypeError``, and nothing is sent.
        """
        if key is None and operation is None:
            key = str(uuid.uuid4())
        asked = {"id": id, "arguments": dict(arguments or {}), "key": key, "operation": operation, "step": step}
        body = json.dumps(asked, allow_nan=False).encode()
        until = time.monotonic() + (self._timeout if timeout is None else _span("timeout", timeout))
        tried = 0
        unclear = False
        while True:
            sent = self._send(body, min(self._send_timeout, until - time.monotonic()))
            if isinstance(sent, ExecResult):
                return sent
            unclear = unclear or sent.unclear
            pause = sent.after
            if pause is not None:
                pause = max(pause, random.uniform(0, min(_FIRST_PAUSE * 2 ** min(tried, 10), _LONGEST_PAUSE)))
            if pause is None or tried >= self._retries or time.monotonic() + pause >= until:
                error = _of_the_execution(sent.error) if unclear else sent.error
                error.key = key
                raise error
            time.sleep(pause)
            tried += 1

    def dry_run(self, id: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The request that would be sent, its credential masked.

        Nothing is sent to the provider, whatever it raises: a :class:`CounterfoilError` by kind, or :class:`NoAnswer` where
        the gateway gave none. What is no JSON is a ``ValueError`` or ``TypeError``.
        """
        asked = {"id": id, "arguments": dict(arguments or {}), "dryRun": True}
        body = json.dumps(asked, allow_nan=False).encode()
        try:
            answer = self._post(body, self._send_timeout)
        except _SILENCE as e:
            raise _silence(e, DRY) from e
        document, status = answer.document or {}, answer.status
        outcome = document.get("outcome")
        if outcome == "dry_run":
            return document
        error = error_of(answer.document, status, DRY, answer.retry_after)
        if outcome == "error" or status < 500 or is_refusal(error) or isinstance(error, NoAnswer):
            raise error
        # What a failure says is true of executions; a refusal ran nothing.
        raise NoAnswer("no_answer", f"The gateway failed (HTTP {status}).", advice=DRY, status=status) from error

    def _post(self, body: bytes, within: float) -> Answer:
        return post(self._opener, self._url, body, self._api_key, within)

    def _send(self, body: bytes, within: float) -> ExecResult | _Failure:
        try:
            answer = self._post(body, within)
        except _SILENCE as e:
            error = _silence(e, MAY_HAVE)
            # What was too large once is so again.
            return _Failure(error, unclear=True, after=None if isinstance(e, TooLarge) else 0.0)
        document, status = answer.document or {}, answer.status
        if document.get("outcome") == "result":
            result = _result_of(document)
            return _Failure(Refused(result, status)) if document.get("isError") is True else result
        error = error_of(answer.document, status, retry_after=answer.retry_after)
        if error.kind == "redirected":
            return _Failure(error)
        told = document.get("outcome") == "error"
        passing = status in _PASSING or (status < 300 and error.kind == "no_answer")
        again = error.kind in _AGAIN if told else passing
        asked = error.retry_after or 0.0
        # What a proxy or a failure says leaves open whether it ran.
        unclear = not is_refusal(error) and (passing or status >= 500 or error.kind == "no_answer")
        unclear = error.kind in _OPEN if told else unclear
        # A pause of hours (a budget) is for the caller to decide about.
        return _Failure(error, unclear=unclear, after=max(0.0, asked) if again and asked <= _LONGEST_ASKED else None)


#: What comes in the place of an answer.
_SILENCE = (OSError, http.client.HTTPException, TooLarge)


def _silence(cause: Exception, advice: str) -> NoAnswer:
    error = NoAnswer("no_answer", f"The gateway gave no answer ({cause or type(cause).__name__}).", advice=advice)
    error.__cause__ = cause
    return error


def _span(name: str, value: float) -> float:
    """Times and counts that are none are said at once."""
    if not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise ValueError(f"{name} is not a number of at least 0")
    return value


def _result_of(document: dict[str, Any]) -> ExecResult:
    result = document.get("result")
    operation = document.get("operation")
    operation = operation if isinstance(operation, dict) else {}
    return ExecResult(
        result if isinstance(result, dict) else {},
        operation.get("id"),
        operation.get("replayed") is True,
    )


def _of_the_execution(last: CounterfoilError) -> CounterfoilError:
    """What is to be said where a send may have been carried out: "nothing ran" of the last one is not true of them all."""
    if last.kind in _OF_IT or last.operation_id is not None:
        return last
    message = f'An earlier send got no clear answer; the last one got "{last.message}".'
    error = NoAnswer("no_answer", message, advice=MAY_HAVE, retry_after=last.retry_after, status=last.status)
    error.__cause__ = last
    return error
