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
/** Nothing ran; the same again is safe. */
export class Unavailable extends CounterfoilError {}
/** It is not known whether it was admitted; the same again is safe. */
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
/** The time or the tries are used up and nothing is known. The very same again is safe: the error names its key. */
export class NoAnswer extends CounterfoilError {
  /** The key that every send had, if the execution had no name in an operation. */
  readonly key: string | undefined;
  constructor(detail: ErrorDetail, key: string | undefined, options?: ErrorOptions) {
    super(detail, options);
    this.key = key;
  }
}

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

/** The error of a kind; of one that this version doesn't know, the general one. */
export function errorOf(detail: ErrorDetail): CounterfoilError {
  const known = Object.hasOwn(BY_KIND, detail.kind) ? BY_KIND[detail.kind] : undefined;
  if (known) return new known(detail);
  if (detail.kind === 'no_answer') return new CounterfoilError(detail);
  if (detail.status === 401 || detail.status === 403) return new Unauthorized(detail);
  if (detail.status !== undefined && detail.status < 500) return new UsageError(detail);
  return new CounterfoilError(detail);
}

/** Whether this version has an error of its own for a kind. */
export function knowsKind(kind: string): boolean {
  return Object.hasOwn(BY_KIND, kind);
}
