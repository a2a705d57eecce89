// The official TypeScript client as a worker: one JSON request a line on stdin, one JSON answer a line on stdout.
//
// {"n", "op": "call", "client", "url", "tool", "arguments", "meta", "timeoutMs", "auth", "abortAfterMs"}
// {"n", "op": "list", "client", "url", "auth"}
// {"n", "op": "forget", "client"}
//
// `client` names a client object that is kept from one request to the next, as a host would keep it.
// A failed `connect` makes a new one at the next request; nothing is ever sent twice from here.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const clients = new Map();

async function connected({ client: name, url, auth, timeoutMs }) {
  const key = JSON.stringify([name, url, auth ?? null]);
  const known = clients.get(key);
  if (known) return known;
  const client = new Client({ name: 'counterfoil-tests-ts', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
  const options = auth ? { requestInit: { headers: { Authorization: auth } } } : {};
  await client.connect(new StreamableHTTPClientTransport(new URL(url), options), { timeout: timeoutMs ?? 5000 });
  client.onclose = () => clients.delete(key);
  clients.set(key, client);
  return client;
}

async function forget(name) {
  for (const [key, client] of [...clients]) {
    if (JSON.parse(key)[0] === name) {
      clients.delete(key);
      await client.close().catch(() => {});
    }
  }
}

async function carryOut(request) {
  if (request.op === 'forget') {
    await forget(request.client);
    return {};
  }
  const client = await connected(request);
  if (request.op === 'list') {
    const tools = [];
    let cursor;
    do {
      const page = await client.listTools(cursor ? { cursor } : {}, { timeout: request.timeoutMs ?? 5000 });
      tools.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor);
    return { tools, protocolVersion: client.getNegotiatedProtocolVersion?.() ?? null };
  }
  const params = { name: request.tool, arguments: request.arguments ?? {} };
  if (request.meta) params._meta = request.meta;
  const options = { timeout: request.timeoutMs ?? 5000 };
  if (request.abortAfterMs !== undefined && request.abortAfterMs !== null) {
    const abort = new AbortController();
    setTimeout(() => abort.abort(new Error('aborted by the test')), request.abortAfterMs);
    options.signal = abort.signal;
  }
  return client.callTool(params, options);
}

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line);
  carryOut(request).then(
    (result) => say({ n: request.n, result }),
    (error) => {
      const { name, code, message, data } = error ?? {};
      say({ n: request.n, error: { name: String(name), code: code ?? null, message: String(message), data: data ?? null } });
    },
  );
}).on('close', () => process.exit(0));
say({ ready: true, node: process.version });
