/**
 * Executes methods through a Counterfoil gateway (`POST /api/v1/exec`). Every send of one execution has the same key, so
 * it is sent again after a lost answer, and has its effect once.
 */
import { Aborted, BadArguments, CounterfoilError, NoAnswer, UsageError, errorOf, type ErrorDetail } from './errors.js';

export * from './errors.js';

export interface ClientOptions {
  /** The gateway. Default: `COUNTERFOIL_URL`, else `http://127.0.0.1:8600`. */
  url?: string;
  /** An API key, where the gateway asks for one. Default: `COUNTERFOIL_API_KEY`. */
  apiKey?: string;
  /** How long an execution may take with all its sends, in milliseconds. Default: 120,000. */
  timeout?: number;
  /** How long one send may take, in milliseconds. Default: 60,000: the gateway answers within 45 s. */
  sendTimeout?: number;
  /** How often it is sent again at most. Default: 10. */
  retries?: number;
  /** Used instead of the platform's `fetch`. */
  fetch?: typeof fetch;
}

export interface ExecOptions {
  /** A name of the run that this is a step of, the same whenever it runs again: a job's id, an order's, an operation's. */
  operation?: string;
  /** The step's name in the operation. Without it, a step is known by its method and arguments. */
  step?: string;
  /** A key of one's own, instead of `operation`. Without either, one is made for this execution. */
  key?: string;
  /** Overrides the client's. */
  timeout?: number;
  /** Gives up when it is aborted, with {@link Aborted}. What was sent may still be carried out. */
  signal?: AbortSignal;
}

/** A result: kept by the gateway, and the same for every execution of this key. */
export interface ExecResult {
  /** The tool result: `content`, `structuredContent`. */
  result: Record<string, unknown>;
  /** `structuredContent`, else undefined. */
  structured: unknown;
  /** The text parts, joined. */
  text: string;
  /** The operation; undefined for a method that only reads. */
  operationId: string | undefined;
  /** An earlier execution produced it: nothing was sent to the provider this time. */
  replayed: boolean;
}

/** The provider or tool refused. That is a result: it is kept, and the same again gets the same. */
export class Refused extends CounterfoilError {
  readonly result: ExecResult;
  constructor(result: ExecResult, status: number, key?: string) {
    const message = result.text || 'the provider or tool refused';
    super({ kind: 'refused', message, operationId: result.operationId, status, key });
    this.result = result;
  }
}

/** The largest answer that is read, in bytes. */
const MAX_ANSWER = 64 << 20;
/** The longest time that the platform's timers know, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1;
/** Pauses double from the first to the longest, with full jitter. */
const FIRST_PAUSE = 200;
const LONGEST_PAUSE = 5_000;
/** The longest pause that a gateway may ask for. */
const LONGEST_ASKED = 60_000;
/** Kinds after which the very same is sent again. */
const AGAIN = new Set(['unavailable', 'admission_unknown', 'still_running', 'limited']);
/** Statuses of proxies and gateways after which it is. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);
/** Kinds that are true of the execution whatever became of its earlier sends. */
const OF_IT = new Set([
  'no_answer', 'refused', 'in_doubt', 'still_running', 'admission_unknown', 'approval_required', 'key_conflict',
]);
/** Kinds that leave open whether the send is carried out. All others say that nothing ran, or what came of it. */
const OPEN = new Set(['admission_unknown', 'still_running']);
/** What is safe where nothing is known. */
const MAY_HAVE =
  "It may have been carried out. Under the same `operation`, or with this error's `key`, the same again is safe: nothing is done twice.";
/** The same of a dry run. */
const DRY = 'Nothing is sent by a dry run.';

type Json = Record<string, unknown>;

interface Answer {
  status: number;
  json: Json | undefined;
  /** The pause that is asked for, in milliseconds. */
  after: number | undefined;
}

/** What came of one send. */
type Sent = { done: ExecResult } | Failure;

interface Failure {
  error: CounterfoilError;
  /** It may have been carried out, or be so still. */
  unclear: boolean;
  /** The pause after which it may be sent again; undefined: not by itself. */
  after: number | undefined;
}

export class Counterfoil {
  readonly #url: URL;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions = {}) {
    const env = environment();
    const base = options.url ?? env['COUNTERFOIL_URL'] ?? 'http://127.0.0.1:8600';
    this.#url = new URL('api/v1/exec', base.endsWith('/') ? base : `${base}/`);
    const apiKey = options.apiKey ?? env['COUNTERFOIL_API_KEY'];
    spanOf('timeout', options.timeout);
    spanOf('sendTimeout', options.sendTimeout);
    spanOf('retries', options.retries);
    this.#options = apiKey ? { ...options, apiKey } : options;
  }

  /**
   * Executes a method and gives its result. Sends again by itself, with the same key, after lost connections, torn or
   * late answers, and what says that it is safe.
   *
   * Throws {@link Refused} for a refusal of the provider, a {@link CounterfoilError} by kind for what the gateway says,
   * {@link NoAnswer} when time or tries are used up or an earlier send may have been carried out, and {@link Aborted} when
   * the signal is aborted. Each has the key that was sent.
   */
  async exec(id: string, args: Json = {}, options: ExecOptions = {}): Promise<ExecResult> {
    const { operation, step, signal } = options;
    // `null` is no name either, in plain JavaScript.
    const key = options.key ?? (operation == null ? crypto.randomUUID() : undefined);
    const body = bodyOf({ id, arguments: args, key, operation, step }, key);
    const timeout = spanOf('timeout', options.timeout, key) ?? this.#options.timeout ?? 120_000;
    const until = performance.now() + timeout;
    const retries = this.#options.retries ?? 10;
    let unclear = false;
    for (let tried = 0; ; tried += 1) {
      if (signal?.aborted) throw aborted(signal, key, tried > 0 ? MAY_HAVE : 'Nothing was sent.');
      const left = until - performance.now();
      const sent = await this.#send(body, Math.min(left, this.#options.sendTimeout ?? 60_000), signal, key);
      if ('done' in sent) return sent.done;
      unclear ||= sent.unclear;
      const pause = sent.after === undefined ? undefined : Math.max(sent.after, jittered(tried));
      if (pause === undefined || tried >= retries || performance.now() + pause >= until) {
        throw unclear ? ofTheExecution(sent.error) : sent.error;
      }
      await rest(pause, signal, key);
    }
  }

  /**
   * The request that would be sent, its credential masked. Nothing is sent to the provider, whatever it throws: a
   * {@link CounterfoilError} by kind, {@link NoAnswer} where the gateway gave none, {@link Aborted}.
   */
  async dryRun(id: string, args: Json = {}, options: { signal?: AbortSignal } = {}): Promise<Json> {
    const body = bodyOf({ id, arguments: args, dryRun: true }, undefined);
    const { signal } = options;
    let answer: Answer;
    try {
      answer = await this.#post(body, this.#options.sendTimeout ?? 60_000, signal);
    } catch (cause) {
      throw signal?.aborted ? aborted(signal, undefined, DRY) : silence(cause, undefined, DRY);
    }
    const { status, json } = answer;
    if (json?.['outcome'] === 'dry_run') return json;
    const told = json?.['outcome'] === 'error';
    const error = errorOf(detailOf(answer, undefined, DRY), told);
    // What a failure says is true of executions; a refusal ran nothing.
    throw told || status < 500 || isRefusal(error) || error instanceof NoAnswer
      ? error
      : new NoAnswer({ kind: 'no_answer', message: `The gateway failed (HTTP ${status}).`, advice: DRY, status }, { cause: error });
  }

  async #send(body: string, within: number, signal: AbortSignal | undefined, key: string | undefined): Promise<Sent> {
    let answer: Answer;
    try {
      answer = await this.#post(body, within, signal);
    } catch (cause) {
      if (signal?.aborted) throw aborted(signal, key, MAY_HAVE);
      // What was too large once is so again.
      return { error: silence(cause, key, MAY_HAVE), unclear: true, after: cause instanceof TooLarge ? undefined : 0 };
    }
    const { status, json } = answer;
    if (json?.['outcome'] === 'result') {
      const result = resultOf(json);
      return json['isError'] === true ? final(new Refused(result, status, key)) : { done: result };
    }
    const told = json?.['outcome'] === 'error';
    const error = errorOf(detailOf(answer, key, MAY_HAVE), told);
    if (error.kind === 'redirected') return final(error);
    const passing = PASSING.has(status) || (status < 300 && error.kind === 'no_answer');
    const again = told ? AGAIN.has(error.kind) : passing;
    const asked = error.retryAfterMs ?? 0;
    // What a proxy or a failure says leaves open whether it ran.
    const refused = isRefusal(error);
    return {
      error,
      unclear: told ? OPEN.has(error.kind) : !refused && (passing || status >= 500 || error.kind === 'no_answer'),
      // A pause of hours (a budget) is for the caller to decide about.
      after: again && asked <= LONGEST_ASKED ? Math.max(0, asked) : undefined,
    };
  }

  async #post(body: string, within: number, signal: AbortSignal | undefined): Promise<Answer> {
    // Whole milliseconds: timers take no others.
    const late = AbortSignal.timeout(Math.ceil(Math.min(Math.max(1, within), LONGEST_TIMER)));
    const response = await (this.#options.fetch ?? fetch)(this.#url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json',
        ...(this.#options.apiKey ? { authorization: `Bearer ${this.#options.apiKey}` } : {}),
      },
      body,
      // The key of an API must not follow wherever somebody points. Not 'error': that looks like a lost connection.
      redirect: 'manual',
      signal: signal ? AbortSignal.any([signal, late]) : late,
    });
    const text = await bounded(response);
    const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
    return {
      status: response.status,
      json: parsed(text),
      after: Number.isFinite(seconds) ? Math.max(0, seconds * 1000) : undefined,
    };
  }
}

function environment(): Record<string, string | undefined> {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env ?? {};
}

/** More than is read of an answer. */
class TooLarge extends Error {}

/** Times and counts that are none (`NaN`, negative, a text) are said at once. */
function spanOf(name: string, value: number | undefined, key?: string): number | undefined {
  if (value == null || (typeof value === 'number' && value >= 0)) return value ?? undefined;
  const message = `\`${name}\` is not a number of at least 0. Nothing was sent.`;
  throw new UsageError({ kind: 'usage', message, key });
}

/** The request as JSON. What JSON has no number for would go as `null`: it is refused instead. */
function bodyOf(asked: Json, key: string | undefined): string {
  return JSON.stringify(asked, (name, value: unknown) => {
    if ((typeof value === 'number' || value instanceof Number) && !Number.isFinite(Number(value))) {
      const message = `The argument "${name}" is ${Number(value)}, which JSON has no number for. Nothing was sent.`;
      throw new BadArguments({ kind: 'bad_arguments', message, key });
    }
    return value;
  });
}

async function bounded(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  if (!reader) return '';
  const decoder = new TextDecoder();
  let text = '';
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > MAX_ANSWER) {
      await reader.cancel();
      throw new TooLarge(`the answer is larger than ${MAX_ANSWER >> 20} MiB`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

function parsed(text: string): Json | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Json) : undefined;
  } catch {
    return undefined;
  }
}

/** The gateway refuses for now, before anything runs. */
function isRefusal(error: CounterfoilError): boolean {
  return error.status === 503 && error.kind === 'unavailable';
}

/** `unknown`: what is safe where the answer is not the gateway's. */
function detailOf({ json, status, after }: Answer, key: string | undefined, unknown: string): ErrorDetail {
  // 0: a browser does not show what a redirect is.
  if (status === 0 || (status >= 300 && status < 400)) {
    const message = `The answer is a redirect (HTTP ${status}), which is not followed.`;
    return { kind: 'redirected', message, advice: 'Check the url of the gateway.', status, key };
  }
  const error = json?.['error'];
  if (typeof error !== 'object' || error === null) {
    const message = `The answer is not the gateway's (HTTP ${status}).`;
    return { kind: 'no_answer', message, advice: unknown, retryAfterMs: after, status, key };
  }
  const of = error as Json;
  const text = (name: string) => (typeof of[name] === 'string' ? (of[name] as string) : undefined);
  return {
    kind: text('kind') ?? text('code') ?? 'unknown',
    message: text('message') ?? `HTTP ${status}`,
    advice: text('advice'),
    operationId: text('operationId'),
    retryKey: text('retryKey'),
    newKey: text('newKey'),
    retryAfterMs: typeof of['retryAfterMs'] === 'number' ? of['retryAfterMs'] : after,
    status,
    key,
  };
}

function resultOf(json: Json): ExecResult {
  const result = (json['result'] ?? {}) as Json;
  const operation = json['operation'] as Json | undefined;
  const parts = Array.isArray(result['content']) ? (result['content'] as Json[]) : [];
  return {
    result,
    structured: result['structuredContent'],
    text: parts.flatMap((part) => (typeof part?.['text'] === 'string' ? [part['text']] : [])).join('\n'),
    operationId: typeof operation?.['id'] === 'string' ? operation['id'] : undefined,
    replayed: operation?.['replayed'] === true,
  };
}

function final(error: CounterfoilError): Failure {
  return { error, unclear: false, after: undefined };
}

/** What is to be said where a send may have been carried out: "nothing ran" of the last one is not true of them all. */
function ofTheExecution(last: CounterfoilError): CounterfoilError {
  if (OF_IT.has(last.kind) || last.operationId !== undefined) return last;
  const { status, retryAfterMs, key } = last;
  const message = `An earlier send got no clear answer; the last one got "${last.message}".`;
  return new NoAnswer({ kind: 'no_answer', message, advice: MAY_HAVE, status, retryAfterMs, key }, { cause: last });
}

/** No answer at all. */
function silence(cause: unknown, key: string | undefined, advice: string): NoAnswer {
  const message = `The gateway gave no answer (${cause instanceof Error ? cause.message : String(cause)}).`;
  return new NoAnswer({ kind: 'no_answer', message, advice, key }, { cause });
}

function aborted(signal: AbortSignal, key: string | undefined, advice: string): Aborted {
  return new Aborted({ kind: 'aborted', message: 'It was aborted.', advice, key }, { cause: signal.reason });
}

function jittered(tried: number): number {
  return Math.random() * Math.min(FIRST_PAUSE * 2 ** Math.min(tried, 10), LONGEST_PAUSE);
}

function rest(ms: number, signal: AbortSignal | undefined, key: string | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      if (signal) reject(aborted(signal, key, MAY_HAVE));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    // An event that was before this comes no more.
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
