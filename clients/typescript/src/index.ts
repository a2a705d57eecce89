/**
 * Executes methods through a Counterfoil gateway (`POST /api/v1/exec`). Every send of one execution has the same key, so
 * it is sent again after a lost answer, and has its effect once.
 */
import { CounterfoilError, NoAnswer, errorOf, type ErrorDetail } from './errors.js';

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
  /** A key of one's own, instead of `operation`. */
  key?: string;
  /** Overrides the client's. */
  timeout?: number;
  /** Gives up when it is aborted. What was sent may still be carried out; the same again is safe. */
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
  constructor(result: ExecResult, status: number) {
    const message = result.text || 'the provider or tool refused';
    super({ kind: 'refused', message, operationId: result.operationId, status });
    this.result = result;
  }
}

/** The largest answer that is read, in bytes. */
const MAX_ANSWER = 16 << 20;
/** Pauses double from the first to the longest, with full jitter. */
const FIRST_PAUSE = 200;
const LONGEST_PAUSE = 5_000;
/** The longest pause that a gateway may ask for. */
const LONGEST_ASKED = 60_000;
/** Kinds after which the very same is sent again. */
const AGAIN = new Set(['unavailable', 'admission_unknown', 'still_running', 'limited']);
/** Statuses of proxies and gateways after which it is. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

type Json = Record<string, unknown>;

/** What came of one send. */
type Sent = { done: ExecResult } | { failed: CounterfoilError } | { again: CounterfoilError; after: number | undefined };

export class Counterfoil {
  readonly #url: URL;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions = {}) {
    const env = environment();
    const base = options.url ?? env['COUNTERFOIL_URL'] ?? 'http://127.0.0.1:8600';
    this.#url = new URL('api/v1/exec', base.endsWith('/') ? base : `${base}/`);
    const apiKey = options.apiKey ?? env['COUNTERFOIL_API_KEY'];
    this.#options = apiKey ? { ...options, apiKey } : options;
  }

  /**
   * Executes a method and gives its result. Sends again by itself, with the same key, after lost connections, torn or
   * late answers, and what says that it is safe.
   *
   * Throws {@link Refused} for a refusal of the provider, a {@link CounterfoilError} by kind for what the gateway says,
   * {@link NoAnswer} when time or tries are used up, and the signal's reason when it is aborted.
   */
  async exec(id: string, args: Json = {}, options: ExecOptions = {}): Promise<ExecResult> {
    const { operation, step, signal } = options;
    const key = options.key ?? (operation === undefined ? crypto.randomUUID() : undefined);
    const body = JSON.stringify({ id, arguments: args, key, operation, step });
    const until = Date.now() + (options.timeout ?? this.#options.timeout ?? 120_000);
    const retries = this.#options.retries ?? 10;
    for (let tried = 0; ; tried += 1) {
      signal?.throwIfAborted();
      const left = until - Date.now();
      const sent = await this.#send(body, Math.min(left, this.#options.sendTimeout ?? 60_000), signal);
      if ('done' in sent) return sent.done;
      if ('failed' in sent) throw sent.failed;
      const pause = Math.max(sent.after ?? 0, jittered(tried));
      if (tried >= retries || Date.now() + pause >= until) throw unanswered(sent.again, key);
      await rest(pause, signal);
    }
  }

  /** The request that would be sent, its credential masked. Nothing is sent to the provider. */
  async dryRun(id: string, args: Json = {}, options: { signal?: AbortSignal } = {}): Promise<Json> {
    const body = JSON.stringify({ id, arguments: args, dryRun: true });
    const { status, json } = await this.#post(body, this.#options.sendTimeout ?? 60_000, options.signal);
    if (json?.['outcome'] === 'dry_run') return json;
    throw errorOf(detailOf(json, status));
  }

  async #send(body: string, within: number, signal: AbortSignal | undefined): Promise<Sent> {
    let answer: { status: number; json: Json | undefined; after: number | undefined };
    try {
      answer = await this.#post(body, within, signal);
    } catch (cause) {
      signal?.throwIfAborted();
      const why = cause instanceof Error ? cause.message : String(cause);
      const detail = { kind: 'no_answer', message: `The gateway gave no answer (${why}).` };
      return { again: new CounterfoilError(detail, { cause }), after: undefined };
    }
    const { status, json, after } = answer;
    if (json?.['outcome'] === 'result') {
      const result = resultOf(json);
      return json['isError'] === true ? { failed: new Refused(result, status) } : { done: result };
    }
    const error = errorOf(detailOf(json, status));
    const asked = error.retryAfterMs ?? after;
    const passing = json?.['outcome'] !== 'error' && (PASSING.has(status) || (status < 300 && error.kind === 'no_answer'));
    const again = AGAIN.has(error.kind) || passing;
    // A pause of hours (a budget) is for the caller to decide about.
    if (!again || (asked ?? 0) > LONGEST_ASKED) return { failed: error };
    return { again: error, after: asked };
  }

  async #post(body: string, within: number, signal: AbortSignal | undefined) {
    const late = AbortSignal.timeout(Math.max(1, within));
    const response = await (this.#options.fetch ?? fetch)(this.#url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json',
        ...(this.#options.apiKey ? { authorization: `Bearer ${this.#options.apiKey}` } : {}),
      },
      body,
      // The key of an API must not follow wherever somebody points.
      redirect: 'error',
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
      throw new Error('the answer is larger than 16 MiB');
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

function detailOf(json: Json | undefined, status: number): ErrorDetail {
  const error = json?.['error'];
  if (typeof error !== 'object' || error === null) {
    return { kind: 'no_answer', message: `The answer is not the gateway's (HTTP ${status}).`, status };
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
    retryAfterMs: typeof of['retryAfterMs'] === 'number' ? of['retryAfterMs'] : undefined,
    status,
  };
}

function resultOf(json: Json): ExecResult {
  const result = (json['result'] ?? {}) as Json;
  const operation = json['operation'] as Json | undefined;
  const parts = Array.isArray(result['content']) ? (result['content'] as Json[]) : [];
  return {
    result,
    structured: result['structuredContent'],
    text: parts.flatMap((part) => (typeof part['text'] === 'string' ? [part['text']] : [])).join('\n'),
    operationId: typeof operation?.['id'] === 'string' ? operation['id'] : undefined,
    replayed: operation?.['replayed'] === true,
  };
}

function unanswered(last: CounterfoilError, key: string | undefined): CounterfoilError {
  // What the gateway said last is said; only silence has no words of its own.
  if (last.kind !== 'no_answer') return last;
  const advice = 'It may have been carried out. The very same again is safe: nothing is done twice.';
  const detail = { kind: 'no_answer', message: last.message, advice, status: last.status };
  return new NoAnswer(detail, key, { cause: last });
}

function jittered(tried: number): number {
  return Math.random() * Math.min(FIRST_PAUSE * 2 ** Math.min(tried, 10), LONGEST_PAUSE);
}

function rest(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}
