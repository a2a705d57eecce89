/** What an error says, as it came from the gateway. */
export interface ErrorDetail {
  kind: string;
  message: string;
  advice?: string | undefined;
  operationId?: string | undefined;
  /** The key that means "I am that call again". */
  retryKey?: string | undefined;
  /** A key that means "a second one, please". */
  newKey?: string | undefined;
  /** When asking again makes sense, in milliseconds. */
  retryAfterMs?: number | undefined;
  /** The HTTP status; none where there was no answer. */
  status?: number | undefined;
  /** The key that every send had. */
  key?: string | undefined;
}

/** All errors of this client. What is safe now is in `kind`, `message` and `advice`. */
export class CounterfoilError extends Error {
  readonly kind: string;
  readonly advice: string | undefined;
  readonly operationId: string | undefined;
  readonly retryKey: string | undefined;
  readonly newKey: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly status: number | undefined;
  /**
   * The key that every send of the execution had, also where the client made it: with it, the same again is that execution
   * again. Undefined where `operation` stands for it.
   */
  readonly key: string | undefined;

  constructor(detail: ErrorDetail, options?: ErrorOptions) {
    super(detail.advice ? `${detail.message} ${detail.advice}` : detail.message, options);
    this.name = new.target.name;
    this.kind = detail.kind;
    this.advice = detail.advice;
    this.operationId = detail.operationId;
    this.retryKey = detail.retryKey;
    this.newKey = detail.newKey;
    this.retryAfterMs = detail.retryAfterMs;
    this.status = detail.status;
    this.key = detail.key;
  }
}

/** It may or may not have happened, and a person has to decide. Never repeat it under another key. */
export class InDoubt extends CounterfoilError {}
/** The key, or the named step, was used with other arguments. Nothing ran. */
export class KeyConflict extends CounterfoilError {}
/** The key's operation is no longer kept. Nothing ran. */
export class KeyExpired extends CounterfoilError {}
/** The method takes no execution without a key. Nothing ran. */
export class KeyRequired extends CounterfoilError {}
/** The same was executed a moment ago. Nothing ran again. */
export class Twin extends CounterfoilError {}
/** It goes on; the same again gets its result. */
export class StillRunning extends CounterfoilError {}
/** The gateway can't do it at the moment. Nothing ran, or it had no effect; the very same again, with its key, is safe. */
export class Unavailable extends CounterfoilError {}
/** It is not known whether it was admitted; the very same again, with its key, is safe. */
export class AdmissionUnknown extends CounterfoilError {}
/** The arguments don't fit. Nothing ran. */
export class BadArguments extends CounterfoilError {}
/** It was denied or cancelled. Nothing more is done of it. */
export class Denied extends CounterfoilError {}
/** A limit of use is reached. Nothing ran. */
export class Limited extends CounterfoilError {}
/** A person has to say yes first. Nothing was done yet. */
export class ApprovalRequired extends CounterfoilError {}
/** The caller has to give a credential of its own first. Nothing ran. */
export class CredentialRequired extends CounterfoilError {}
/** Another answer to the same question counts. */
export class AnswerConflict extends CounterfoilError {}
/** A handle has expired. Nothing was done. */
export class HandleExpired extends CounterfoilError {}
/** There is no such handle. Nothing was done. */
export class HandleUnknown extends CounterfoilError {}
/** The request itself is wrong: an unknown method, a bad key, both `key` and `operation`. Nothing ran. */
export class UsageError extends CounterfoilError {}
/** The gateway doesn't know this API key, or doesn't take requests from here. Nothing ran. */
export class Unauthorized extends CounterfoilError {}
/** It was aborted; the signal's reason is the cause. What was sent may be carried out: with the error's key, the same again is safe. */
export class Aborted extends CounterfoilError {}
/**
 * Nothing is known: it may have been carried out. The very same again is safe, with the error's key or under the same
 * operation. What came last, if that was more than silence, is the cause.
 */
export class NoAnswer extends CounterfoilError {}

const BY_KIND: Readonly<Record<string, typeof CounterfoilError>> = {
  in_doubt: InDoubt,
  key_conflict: KeyConflict,
  key_expired: KeyExpired,
  key_required: KeyRequired,
  twin: Twin,
  still_running: StillRunning,
  unavailable: Unavailable,
  admission_unknown: AdmissionUnknown,
  bad_arguments: BadArguments,
  denied: Denied,
  limited: Limited,
  approval_required: ApprovalRequired,
  credential_required: CredentialRequired,
  answer_conflict: AnswerConflict,
  handle_expired: HandleExpired,
  handle_unknown: HandleUnknown,
};

/**
 * The error of a kind; of one that this version doesn't know, the general one. `outcome`: the gateway told what became of
 * the execution, so that the status says no more.
 */
export function errorOf(detail: ErrorDetail, outcome = false): CounterfoilError {
  const known = Object.hasOwn(BY_KIND, detail.kind) ? BY_KIND[detail.kind] : undefined;
  if (known) return new known(detail);
  if (detail.kind === 'no_answer') return new NoAnswer(detail);
  const status = detail.status ?? 0;
  if (outcome || status < 400 || status >= 500) return new CounterfoilError(detail);
  return status === 401 || status === 403 ? new Unauthorized(detail) : new UsageError(detail);
}

/** Whether this version has an error of its own for a kind. */
export function knowsKind(kind: string): boolean {
  return Object.hasOwn(BY_KIND, kind);
}
