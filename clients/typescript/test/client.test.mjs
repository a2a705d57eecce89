import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createServer as createTcpServer, connect } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import * as errors from '../dist/errors.js';
import { Aborted, Counterfoil, KeyConflict, NoAnswer, Refused, UsageError, BadArguments, Unauthorized } from '../dist/index.js';
import { Gateway, REFUND, refund } from './gateway.mjs';

let gateway;
let client;
before(async () => {
  gateway = await Gateway.start();
  client = new Counterfoil({ url: gateway.url });
});
after(() => gateway.stop());
/** What was started, closed at the end whatever failed. */
const started = [];
after(() => Promise.all(started.map((server) => server.close())));

/** An HTTP server that answers with what it is given, in this order, and keeps what it was sent. */
async function scripted(answers) {
  const bodies = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    bodies.push({ ...JSON.parse(body), authorization: request.headers.authorization });
    const answer = answers[Math.min(bodies.length, answers.length) - 1];
    if (answer === 'cut') return void request.socket.destroy();
    if (answer === 'hang') return;
    const [status, json, headers = {}] = answer;
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(typeof json === 'string' ? json : JSON.stringify(json));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${server.address().port}`;
  const close = () => new Promise((done) => (server.closeAllConnections(), server.close(done)));
  started.push({ close });
  return { url, bodies, close };
}

const DONE = [200, { outcome: 'result', isError: false, result: { content: [{ type: 'text', text: 'ok' }] } }];

test('a step of a run is executed once, however often the run is', async () => {
  const first = await client.exec(REFUND, refund('run'), { operation: 'order-run' });
  const again = await client.exec(REFUND, refund('run'), { operation: 'order-run' });
  assert.equal(first.replayed, false);
  assert.equal(again.replayed, true);
  assert.equal(again.operationId, first.operationId);
  assert.deepEqual(again.structured, first.structured);
  // Wanted twice: two names.
  await client.exec(REFUND, refund('run'), { operation: 'order-run', step: 'one' });
  await client.exec(REFUND, refund('run'), { operation: 'order-run', step: 'two' });
  assert.equal(await gateway.effects('run'), 3);
  // A named step does not change its arguments.
  await assert.rejects(client.exec(REFUND, refund('run', 300), { operation: 'order-run', step: 'one' }), KeyConflict);
  assert.equal(await gateway.effects('run'), 3);
});

test('a reply of the provider that is lost is one effect', async () => {
  await gateway.arm({ on: 'POST /v1/refunds', do: 'apply_then_cut', times: 1 });
  const done = await client.exec(REFUND, refund('cut'), { operation: 'order-cut' });
  assert.equal(done.replayed, false);
  assert.equal(await gateway.effects('cut'), 1);
});

test('a reply of the gateway that is lost is one effect', async () => {
  // A proxy that passes the first request on and cuts before its answer comes back.
  let connections = 0;
  const { port } = new URL(gateway.url);
  const proxy = createTcpServer((near) => {
    connections += 1;
    const far = connect(Number(port), '127.0.0.1');
    const cuts = connections === 1;
    near.on('error', () => far.destroy());
    far.on('error', () => near.destroy());
    near.pipe(far);
    if (cuts) far.once('data', () => near.destroy());
    else far.pipe(near);
  });
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  try {
    // The gateway looks at `Host`, which has to name it and not the proxy.
    const viaProxy = new Counterfoil({
      url: `http://127.0.0.1:${proxy.address().port}`,
      fetch: (url, init) => hosted(url, init, `127.0.0.1:${port}`),
    });
    const done = await viaProxy.exec(REFUND, refund('lost'), {});
    assert.equal(done.replayed, true);
    assert.ok(connections >= 2);
    assert.equal(await gateway.effects('lost'), 1);
  } finally {
    proxy.close();
  }
});

/** `fetch` with another `Host`, which the platform's does not allow. */
async function hosted(url, init, host) {
  const { request } = await import('node:http');
  return new Promise((resolve, reject) => {
    const headers = { ...init.headers, host, connection: 'close' };
    const sent = request(url, { method: init.method, headers, signal: init.signal }, async (response) => {
      const pieces = [];
      try {
        for await (const piece of response) pieces.push(piece);
      } catch (error) {
        return reject(error);
      }
      resolve(new Response(Buffer.concat(pieces), { status: response.statusCode, headers: response.headers }));
    });
    sent.on('error', reject);
    sent.end(init.body);
  });
}

test('a gateway that is killed in the middle is one effect', async () => {
  await gateway.arm({ on: 'POST /v1/refunds', do: 'apply_then_hang', times: 1 });
  const pending = client.exec(REFUND, refund('kill'), { operation: 'order-kill' });
  // The effect is there and nobody knows of it yet.
  for (let n = 0; (await gateway.effects('kill')) === 0; n += 1) {
    assert.ok(n < 200, 'the request never arrived');
    await sleep(25);
  }
  await gateway.kill();
  await gateway.begin();
  const done = await pending;
  assert.equal(done.structured.payment ?? done.result.structuredContent.payment, 'pay_demo_kill');
  assert.equal(await gateway.effects('kill'), 1);
});

test('what the provider refuses is a result, and kept', async () => {
  const much = refund('much', 1_000_001);
  const refused = await client.exec(REFUND, much, { operation: 'order-much' }).catch((error) => error);
  assert.ok(refused instanceof Refused);
  assert.match(refused.message, /amount_too_large/);
  assert.equal(refused.result.replayed, false);
  const again = await client.exec(REFUND, much, { operation: 'order-much' }).catch((error) => error);
  assert.equal(again.result.replayed, true);
});

test('errors are told apart', async () => {
  await assert.rejects(client.exec('no.such'), (e) => e instanceof UsageError && e.kind === 'unknown_method');
  await assert.rejects(client.exec(REFUND, { payment: 1 }), BadArguments);
  await assert.rejects(client.exec(REFUND, refund('x'), { key: 'a b' }), UsageError);
  await assert.rejects(client.exec(REFUND, refund('x'), { key: 'k', operation: 'o' }), UsageError);
  await assert.rejects(client.exec(REFUND, refund('x'), { step: 's' }), UsageError);
  assert.equal(await gateway.effects('x'), 0);
});

test('every kind of the gateway has an error of its own', async () => {
  const document = await (await fetch(`${gateway.url}/api/openapi.json`)).json();
  const kinds = document.components.schemas.Error.properties.error.properties.kind.enum;
  assert.ok(kinds.length >= 15);
  for (const kind of kinds) {
    assert.ok(errors.knowsKind(kind), kind);
    const error = errors.errorOf({ kind, message: 'm', status: 409 });
    assert.notEqual(error.constructor, errors.CounterfoilError, kind);
    assert.equal(error.name, error.constructor.name);
  }
});

test('a dry run shows the request and sends nothing', async () => {
  const shown = await client.dryRun(REFUND, refund('dry'));
  assert.equal(shown.outcome, 'dry_run');
  assert.match(shown.wouldSend.summary, /^POST /);
  assert.equal(await gateway.effects('dry'), 0);
});

test('the same key goes with every send, and only what is safe is sent again', async () => {
  const busy = (kind, more = {}) => [503, { outcome: 'error', error: { kind, message: 'm', advice: 'a', ...more } }];
  const lists = [
    ['cut', [502, '<html>bad gateway</html>'], [200, '{"outcome": "res'], DONE],
    [[503, { error: { code: 'unavailable', message: 'draining' } }, { 'retry-after': '0' }], busy('unavailable'), DONE],
    [
      busy('admission_unknown', { retryAfterMs: 1 }),
      [409, { outcome: 'error', error: { kind: 'still_running', message: 'm', advice: 'a', retryAfterMs: 1 } }],
      DONE,
    ],
  ];
  for (const answers of lists) {
    const server = await scripted(answers);
    const done = await new Counterfoil({ url: server.url, apiKey: 'cfk_x' }).exec('a.b', { n: 1 });
    assert.equal(done.text, 'ok');
    assert.equal(server.bodies.length, answers.length);
    const keys = new Set(server.bodies.map((body) => body.key));
    assert.equal(keys.size, 1);
    assert.match([...keys][0], /^[0-9a-f-]{36}$/);
    assert.ok(server.bodies.every((body) => body.authorization === 'Bearer cfk_x'));
    await server.close();
  }
  for (const [status, kind] of [[409, 'in_doubt'], [409, 'twin'], [422, 'key_conflict'], [403, 'denied']]) {
    const once = await scripted([[status, { outcome: 'error', error: { kind, message: 'm', advice: 'a', retryKey: 'op_1' } }]]);
    const error = await new Counterfoil({ url: once.url }).exec('a.b').catch((e) => e);
    assert.equal(error.kind, kind);
    assert.equal(error.retryKey, 'op_1');
    assert.equal(once.bodies.length, 1);
    await once.close();
  }
});

test('a pause of hours is the caller\'s to decide about', async () => {
  const error = { kind: 'limited', message: 'm', advice: 'a', retryAfterMs: 3_600_000 };
  const server = await scripted([[429, { outcome: 'error', error }]]);
  await assert.rejects(new Counterfoil({ url: server.url }).exec('a.b'), errors.Limited);
  assert.equal(server.bodies.length, 1);
  await server.close();
});

test('time, tries and aborts end it, and say what is safe', async () => {
  const hangs = await scripted(['hang']);
  const late = await new Counterfoil({ url: hangs.url, timeout: 600, sendTimeout: 100 }).exec('a.b').catch((e) => e);
  assert.ok(late instanceof NoAnswer);
  assert.match(late.message, /with this error's `key`, the same again is safe: nothing is done twice/);
  assert.equal(late.key, hangs.bodies[0].key);
  assert.ok(hangs.bodies.length >= 2);
  const reason = new Error('enough');
  const abort = new AbortController();
  setTimeout(() => abort.abort(reason), 50);
  const left = await new Counterfoil({ url: hangs.url }).exec('a.b', {}, { signal: abort.signal }).catch((e) => e);
  assert.ok(left instanceof Aborted);
  assert.equal(left.cause, reason);
  assert.equal(left.key, hangs.bodies.at(-1).key);
  assert.match(left.message, /may have been carried out/);
  // Aborted already: nothing is sent.
  const sends = hangs.bodies.length;
  const never = await new Counterfoil({ url: hangs.url }).exec('a.b', {}, { signal: abort.signal }).catch((e) => e);
  assert.ok(never instanceof Aborted);
  assert.match(never.message, /Nothing was sent/);
  assert.equal(hangs.bodies.length, sends);
  await hangs.close();
  const cut = await scripted(['cut']);
  await assert.rejects(new Counterfoil({ url: cut.url, retries: 2 }).exec('a.b'), NoAnswer);
  assert.equal(cut.bodies.length, 3);
  await cut.close();
});

test('nothing follows a redirect, and it is asked once', async () => {
  const elsewhere = await scripted([DONE]);
  for (const status of [301, 302, 303, 307, 308]) {
    const server = await scripted([[status, '', { location: `${elsewhere.url}/api/v1/exec` }]]);
    const error = await new Counterfoil({ url: server.url, apiKey: 'cfk_x' }).exec('a.b').catch((e) => e);
    assert.equal(error.kind, 'redirected');
    assert.equal(error.status, status);
    assert.equal(error.key, server.bodies[0].key);
    assert.equal(server.bodies.length, 1);
  }
  assert.equal(elsewhere.bodies.length, 0);
});

test('every error has the key that was sent, also a made one', async () => {
  const told = (status, kind, more = {}) => [status, { outcome: 'error', error: { kind, message: 'm', advice: 'a', ...more } }];
  const cases = [
    [['cut', told(503, 'admission_unknown')], errors.AdmissionUnknown],
    [['cut', told(503, 'unavailable')], NoAnswer],
    [['cut', told(503, 'unavailable', { operationId: 'op_1' })], errors.Unavailable],
    [[told(503, 'unavailable'), told(503, 'unavailable')], errors.Unavailable],
    [[[503, { error: { code: 'unavailable', message: 'm' } }]], errors.Unavailable],
    [['cut', [500, { error: { code: 'internal', message: 'm' } }]], NoAnswer],
    [['cut', [504, { error: { code: 'upstream_timeout', message: 'm' } }]], NoAnswer],
    [['cut', [503, { error: { code: 'unavailable', message: 'm' } }, { 'retry-after': '3600' }]], NoAnswer],
    [[told(409, 'in_doubt')], errors.InDoubt],
    [[told(422, 'key_conflict')], KeyConflict],
    [[told(409, 'of_a_newer_version')], errors.CounterfoilError],
    [[[401, { error: { code: 'unauthorized', message: 'm' } }]], Unauthorized],
    [[[404, '<html>']], NoAnswer],
    [[[200, { ...DONE[1], isError: true }]], Refused],
  ];
  for (const [answers, of] of cases) {
    const server = await scripted(answers);
    const error = await new Counterfoil({ url: server.url, retries: answers.length - 1 }).exec('a.b').catch((e) => e);
    assert.equal(error.constructor, of, `${JSON.stringify(answers)}: ${error}`);
    assert.match(error.key, /^[0-9a-f-]{36}$/);
    assert.equal(new Set([error.key, ...server.bodies.map((body) => body.key)]).size, 1);
    assert.equal(server.bodies.length, answers.length);
  }
  const named = await scripted([told(409, 'in_doubt')]);
  const error = await new Counterfoil({ url: named.url }).exec('a.b', {}, { operation: 'o' }).catch((e) => e);
  assert.equal(error.key, undefined);
});

test('"nothing ran" is not said where an earlier send may have', async () => {
  const told = (status, kind, more = {}) => [status, { outcome: 'error', error: { kind, message: 'm', advice: 'a', ...more } }];
  const coded = (status, code) => [status, { error: { code, message: 'm' } }];
  const firsts = ['cut', [502, '<html>'], coded(500, 'internal'), told(503, 'admission_unknown'), told(409, 'still_running', { retryAfterMs: 1 })];
  const lasts = [
    [coded(401, 'unauthorized'), Unauthorized],
    [coded(404, 'unknown_method'), UsageError],
    [told(400, 'bad_arguments'), BadArguments],
    [told(429, 'limited', { retryAfterMs: 3_600_000 }), errors.Limited],
    [told(503, 'unavailable', { retryAfterMs: 3_600_000 }), errors.Unavailable],
    [[...coded(503, 'unavailable'), { 'retry-after': '3600' }], errors.Unavailable],
    [[307, '', { location: '/' }], errors.CounterfoilError],
  ];
  for (const first of firsts) {
    for (const [last, of] of lasts) {
      const server = await scripted([first, last]);
      const error = await new Counterfoil({ url: server.url }).exec('a.b').catch((e) => e);
      assert.ok(error instanceof NoAnswer, `${first}, ${last}: ${error}`);
      assert.equal(error.kind, 'no_answer');
      assert.equal(error.cause.constructor, of);
      assert.match(error.message, /^An earlier send got no clear answer; .* It may have been carried out\./);
      assert.equal(error.key, server.bodies[0].key);
      assert.equal(server.bodies.length, 2);
    }
  }
  // What says that nothing ran leaves the next one as it is.
  for (const first of [told(429, 'limited', { retryAfterMs: 1 }), told(503, 'unavailable', { retryAfterMs: 1 }), coded(503, 'unavailable')]) {
    const clear = await scripted([first, coded(401, 'unauthorized')]);
    await assert.rejects(new Counterfoil({ url: clear.url }).exec('a.b'), Unauthorized);
  }
});

test('whatever becomes of a dry run is an error of this client, and says that nothing is sent', async () => {
  const told = (kind) => [503, { outcome: 'error', error: { kind, message: 'm', advice: 'a' } }];
  const coded = (status, code) => [status, { error: { code, message: status < 500 || status === 503 ? 'm' : 'It may have taken effect.' } }];
  const cases = [
    ['cut', NoAnswer],
    ['hang', NoAnswer],
    [[404, '<html>'], NoAnswer],
    [[502, '<html>'], NoAnswer],
    [[200, '{"outcome": "dry'], NoAnswer],
    [coded(500, 'internal'), NoAnswer],
    [coded(504, 'upstream_timeout'), NoAnswer],
    [coded(401, 'unauthorized'), Unauthorized],
    [told('unavailable'), errors.Unavailable],
    [[...coded(503, 'unavailable'), { 'retry-after': '7' }], errors.Unavailable, 7_000],
    [[502, '<html>', { 'retry-after': '3' }], NoAnswer, 3_000],
    [[403, { outcome: 'error', error: { kind: 'of_a_newer_version', message: 'm' } }], errors.CounterfoilError],
  ];
  for (const [answer, of, after] of cases) {
    const server = await scripted([answer]);
    const error = await new Counterfoil({ url: server.url, sendTimeout: 500 }).dryRun('a.b').catch((e) => e);
    assert.equal(error.constructor, of, `${answer}: ${error}`);
    assert.equal(error.retryAfterMs, after);
    assert.doesNotMatch(error.message, /may have/);
    if (of === NoAnswer) assert.match(error.message, /Nothing is sent by a dry run\.$/);
    assert.equal(server.bodies.length, 1);
  }
  const nobody = await new Counterfoil({ url: 'http://127.0.0.1:1' }).dryRun('a.b').catch((e) => e);
  assert.equal(nobody.constructor, NoAnswer);
  assert.ok(nobody.cause instanceof Error);
  const hangs = await scripted(['hang']);
  const reason = new Error('enough');
  const abort = new AbortController();
  setTimeout(() => abort.abort(reason), 50);
  const left = await new Counterfoil({ url: hangs.url }).dryRun('a.b', {}, { signal: abort.signal }).catch((e) => e);
  assert.equal(left.constructor, Aborted);
  assert.equal(left.cause, reason);
  assert.match(left.message, /Nothing is sent by a dry run\.$/);
});

test('no operation is no operation, however it is written', async () => {
  const server = await scripted(['cut', DONE]);
  await new Counterfoil({ url: server.url }).exec('a.b', {}, { operation: null, key: null, step: null });
  assert.match(server.bodies[0].key, /^[0-9a-f-]{36}$/);
  assert.equal(server.bodies[1].key, server.bodies[0].key);
});

test('large results are read; larger ones are not asked for again', async () => {
  const text = 'x'.repeat(20 << 20);
  const large = await scripted([[200, { ...DONE[1], result: { content: [{ type: 'text', text }] } }]]);
  assert.equal((await new Counterfoil({ url: large.url }).exec('a.b')).text.length, text.length);
  const larger = await scripted([[200, 'x'.repeat((64 << 20) + 1)]]);
  const error = await new Counterfoil({ url: larger.url }).exec('a.b').catch((e) => e);
  assert.ok(error instanceof NoAnswer);
  assert.match(error.message, /larger than 64 MiB/);
  assert.equal(error.key, larger.bodies[0].key);
  assert.equal(larger.bodies.length, 1);
});

test('times are any numbers, and what is none is refused before it is sent', async () => {
  const server = await scripted([DONE]);
  for (const timeout of [1234.5, 1e12, Infinity]) {
    await new Counterfoil({ url: server.url, timeout, sendTimeout: timeout }).exec('a.b');
  }
  assert.equal(server.bodies.length, 3);
  for (const wrong of [Number.NaN, -1, '5']) {
    assert.throws(() => new Counterfoil({ url: server.url, sendTimeout: wrong }), UsageError);
    assert.throws(() => new Counterfoil({ url: server.url, retries: wrong }), UsageError);
    await assert.rejects(new Counterfoil({ url: server.url }).exec('a.b', {}, { timeout: wrong }), UsageError);
  }
  for (const n of [Number.NaN, Infinity, -Infinity]) {
    const error = await new Counterfoil({ url: server.url }).exec('a.b', { list: [{ n }] }).catch((e) => e);
    assert.ok(error instanceof BadArguments);
    assert.match(error.message, /"n" is -?(NaN|Infinity).*Nothing was sent/);
    assert.equal(typeof error.key, 'string');
  }
  assert.equal(server.bodies.length, 3);
});

test('an abort ends a pause at once, also one that came just before it', async () => {
  const pause = [503, { outcome: 'error', error: { kind: 'unavailable', message: 'm', advice: 'a', retryAfterMs: 30_000 } }];
  const server = await scripted([pause]);
  const abort = new AbortController();
  // Aborted once the answer is read, before the pause begins.
  const late = async (url, init) => {
    const { status, headers } = await fetch(url, init);
    const body = new ReadableStream({
      start(stream) {
        stream.enqueue(new TextEncoder().encode(JSON.stringify(pause[1])));
        stream.close();
        abort.abort();
      },
    });
    return new Response(body, { status, headers });
  };
  const begun = performance.now();
  const error = await new Counterfoil({ url: server.url, fetch: late }).exec('a.b', {}, { signal: abort.signal }).catch((e) => e);
  assert.ok(error instanceof Aborted);
  assert.equal(error.key, server.bodies[0].key);
  assert.ok(performance.now() - begun < 5_000);
});

test('a wrong key is said', async () => {
  const server = await scripted([[401, { error: { code: 'unauthorized', message: 'no' } }]]);
  await assert.rejects(new Counterfoil({ url: server.url }).exec('a.b'), Unauthorized);
  await server.close();
});
