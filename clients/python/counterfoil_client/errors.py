"""What can come instead of a result. What is safe now is in ``kind``, the text and ``advice``."""

from __future__ import annotations

import math
from typing import Any

#: What is safe where nothing is known.
MAY_HAVE = (
    "It may have been carried out. Under the same `operation`, or with this error's `key`, the same again is safe: "
    "nothing is done twice."
)
#: The same of a dry run.
DRY = "Nothing is sent by a dry run."


class CounterfoilError(Exception):
    """All errors of this client."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        advice: str | None = None,
        operation_id: str | None = None,
        retry_key: str | None = None,
        new_key: str | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(f"{message} {advice}" if advice else message)
        self.kind = kind
        self.message = message
        self.advice = advice
        self.operation_id = operation_id
        #: The key that means "I am that call again".
        self.retry_key = retry_key
        #: A key that means "a second one, please".
        self.new_key = new_key
        #: When asking again makes sense, in seconds.
        self.retry_after = retry_after
        #: The HTTP status; ``None`` where there was no answer.
        self.status = status
        #: The key that every send of the execution had, also where the client made it: with it, the same again is that
        #: execution again. ``None`` where ``operation`` stands for it.
        self.key: str | None = None


class InDoubt(CounterfoilError):
    """It may or may not have happened, and a person has to decide. Never repeat it under another key."""


class KeyConflict(CounterfoilError):
    """The key, or the named step, was used with other arguments. Nothing ran."""


class KeyExpired(CounterfoilError):
    """The key's operation is no longer kept. Nothing ran."""


class KeyRequired(CounterfoilError):
    """The method takes no execution without a key. Nothing ran."""


class Twin(CounterfoilError):
    """The same was executed a moment ago. Nothing ran again."""


class StillRunning(CounterfoilError):
    """It goes on; the same again gets its result."""


class Unavailable(CounterfoilError):
    """The gateway can't do it at the moment. Nothing ran, or it had no effect; the very same again, with its key, is safe."""


class AdmissionUnknown(CounterfoilError):
    """It is not known whether it was admitted; the very same again, with its key, is safe."""


class BadArguments(CounterfoilError):
    """The arguments don't fit. Nothing ran."""


class Denied(CounterfoilError):
    """It was denied or cancelled. Nothing more is done of it."""


class Limited(CounterfoilError):
    """A limit of use is reached. Nothing ran."""


class ApprovalRequired(CounterfoilError):
    """A person has to say yes first. Nothing was done yet."""


class CredentialRequired(CounterfoilError):
    """The caller has to give a credential of its own first. Nothing ran."""


class AnswerConflict(CounterfoilError):
    """Another answer to the same question counts."""


class HandleExpired(CounterfoilError):
    """A handle has expired. Nothing was done."""


class HandleUnknown(CounterfoilError):
    """There is no such handle. Nothing was done."""


class UsageError(CounterfoilError):
    """The request itself is wrong: an unknown method, a bad key, both ``key`` and ``operation``. Nothing ran."""


class Unauthorized(CounterfoilError):
    """The gateway doesn't know this API key, or doesn't take requests from here. Nothing ran."""


class Refused(CounterfoilError):
    """The provider or tool refused. That is a result: it is kept, and the same again gets the same."""

    def __init__(self, result: Any, status: int) -> None:
        text = result.text or "the provider or tool refused"
        super().__init__("refused", text, operation_id=result.operation_id, status=status)
        self.result = result


class NoAnswer(CounterfoilError):
    """Nothing is known: it may have been carried out.

    The very same again is safe, with the error's key or under the same operation. What came last, if that was more than
    silence, is the cause.
    """


BY_KIND: dict[str, type[CounterfoilError]] = {
    "in_doubt": InDoubt,
    "key_conflict": KeyConflict,
    "key_expired": KeyExpired,
    "key_required": KeyRequired,
    "twin": Twin,
    "still_running": StillRunning,
    "unavailable": Unavailable,
    "admission_unknown": AdmissionUnknown,
    "bad_arguments": BadArguments,
    "denied": Denied,
    "limited": Limited,
    "approval_required": ApprovalRequired,
    "credential_required": CredentialRequired,
    "answer_conflict": AnswerConflict,
    "handle_expired": HandleExpired,
    "handle_unknown": HandleUnknown,
}


def is_refusal(error: CounterfoilError) -> bool:
    """Whether the gateway refused for now, before anything ran."""
    return error.status == 503 and error.kind == "unavailable"


def error_of(
    answer: dict[str, Any] | None, status: int, unknown: str = MAY_HAVE, retry_after: float | None = None
) -> CounterfoilError:
    """The error of an answer; of a kind that this version doesn't know, the general one.

    ``unknown``: what is safe where the answer is not the gateway's. ``retry_after``: the pause that its head asks for.
    """
    if 300 <= status < 400:
        message = f"The answer is a redirect (HTTP {status}), which is not followed."
        return CounterfoilError("redirected", message, advice="Check the url of the gateway.", status=status)
    error = answer.get("error") if answer else None
    if not isinstance(error, dict):
        message = f"The answer is not the gateway's (HTTP {status})."
        return NoAnswer("no_answer", message, advice=unknown, retry_after=retry_after, status=status)

    def text(name: str) -> str | None:
        value = error.get(name)
        return value if isinstance(value, str) else None

    kind = text("kind") or text("code") or "unknown"
    pause = error.get("retryAfterMs")
    known = BY_KIND.get(kind)
    if known is None:
        # Where the gateway told what became of the execution, the status says no more.
        told = answer is not None and answer.get("outcome") == "error"
        known = CounterfoilError if told or not 400 <= status < 500 else Unauthorized if status in (401, 403) else UsageError
    return known(
        kind,
        text("message") or f"HTTP {status}",
        advice=text("advice"),
        operation_id=text("operationId"),
        retry_key=text("retryKey"),
        new_key=text("newKey"),
        retry_after=pause / 1000 if isinstance(pause, (int, float)) and math.isfinite(pause) else retry_after,
        status=status,
    )
