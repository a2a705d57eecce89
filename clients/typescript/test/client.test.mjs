import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createServer as createTcpServer, connect } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import * as errors from '../dist/errors.js';
import { Counterfoil, KeyConflict, NoAnswer, Refused, UsageError, BadArguments, Unauthorized } from '../dist/index.js';
import { Gateway, REFUND, refund } from './gateway.mjs';

let gateway;
let client;
before(async () => {
  gateway = await Gateway.start();
  client = new Counterfoil({ url: gateway.url });
});
after(() => gateway.stop());

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
  return { url, bodies, close: () => new Promise((done) => (server.closeAllConnections(), server.close(done))) };
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
  assert.match(late.message, /safe: nothing is done twice/);
  assert.equal(late.key, hangs.bodies[0].key);
  assert.ok(hangs.bodies.length >= 2);
  const reason = new Error('enough');
  const abort = new AbortController();
  setTimeout(() => abort.abort(reason), 50);
  await assert.rejects(new Counterfoil({ url: hangs.url }).exec('a.b', {}, { signal: abort.signal }), reason);
  await hangs.close();
  const cut = await scripted(['cut']);
  await assert.rejects(new Counterfoil({ url: cut.url, retries: 2 }).exec('a.b'), NoAnswer);
  assert.equal(cut.bodies.length, 3);
  await cut.close();
});

test('nothing follows a redirect', async () => {
  const elsewhere = await scripted([DONE]);
  const server = await scripted([[307, '', { location: `${elsewhere.url}/api/v1/exec` }]]);
  await assert.rejects(new Counterfoil({ url: server.url, apiKey: 'cfk_x', retries: 0 }).exec('a.b'));
  assert.equal(elsewhere.bodies.length, 0);
  await server.close();
  await elsewhere.close();
});

test('a wrong key is said', async () => {
  const server = await scripted([[401, { error: { code: 'unauthorized', message: 'no' } }]]);
  await assert.rejects(new Counterfoil({ url: server.url }).exec('a.b'), Unauthorized);
  await server.close();
});
