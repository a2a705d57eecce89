// What a TypeScript worker has in common with the other: one JSON request a line on stdin, one JSON answer a line on
// stdout.
//
// {"n", "op": "call", "client", "url", "tool", "arguments", "meta", "timeoutMs", "auth", "abortAfterMs", "asked"}
// {"n", "op": "list" | "resources" | "prompts", …}       every page; resources are read, too
// {"n", "op": "subscribe", …}                            to changes of the list of tools
// {"n", "op": "seen", …}                                 the notifications that have come since
// {"n", "op": "forget", "client"}
//
// `client` names a client object that is kept from one request to the next, as a host would keep it.
// A failed `connect` makes a new one at the next request; nothing is ever sent twice from here.
//
// With `asked` the client says that its user can be asked, that it can sample and that it has roots. What a server asks
// is passed on, {"ask", "client", "method", "params"} on a line, and the answer to it comes back as {"answer", "result"}.
import { createInterface } from 'node:readline';

const CHANGED = 'notifications/tools/list_changed';
const ASKED = ['elicitation/create', 'sampling/createMessage', 'roots/list'];

/** What a client declares that can be asked all of it. */
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/**
 * Serves. `make(capabilities)` gives a client object that is not connected, with `connect(url, headers, limit)` on it;
 * `hear(client, method, then)` registers for a notification and `asked(client, method, then)` for a request of the server;
 * `subscribe(client, limit)` asks for changes of the list of tools where that takes asking, and says how.
 */
export function serve({ make, hear, asked, subscribe }) {
  const hosts = new Map();
  const questions = new Map();
  let number = 0;

  /** Passes a question on, and waits for its answer. */
  function passOn(client, { method, params }) {
    number += 1;
    const ask = number;
    say({ ask, client, method, params: params ?? {} });
    return new Promise((answered) => questions.set(ask, answered));
  }

  async function connected({ client: name, url, auth, timeoutMs, asked: isAsked }) {
    const key = JSON.stringify([name, url, auth ?? null, isAsked ?? false]);
    const known = hosts.get(key);
    if (known) return known;
    const { client, connect } = make(isAsked ? CAPABILITIES : {});
    const host = { client, seen: [] };
    // Registered before the connection is made: a server may speak first.
    hear(client, CHANGED, () => host.seen.push(CHANGED));
    if (isAsked) for (const method of ASKED) asked(client, method, (request) => passOn(name, request));
    await connect(new URL(url), auth ? { Authorization: auth } : {}, { timeout: timeoutMs ?? 5000 });
    client.onclose = () => hosts.delete(key);
    hosts.set(key, host);
    return host;
  }

  async function forget(name) {
    for (const [key, { client }] of [...hosts]) {
      if (JSON.parse(key)[0] === name) {
        hosts.delete(key);
        await client.close().catch(() => {});
      }
    }
  }

  async function pages(ask, member, options) {
    const all = [];
    let cursor;
    do {
      const page = await ask(cursor ? { cursor } : {}, options);
      all.push(...page[member]);
      cursor = page.nextCursor;
    } while (cursor);
    return all;
  }

  async function carryOut(request) {
    if (request.op === 'forget') {
      await forget(request.client);
      return {};
    }
    const host = await connected(request);
    const { client } = host;
    const options = { timeout: request.timeoutMs ?? 5000 };
    switch (request.op) {
      case 'list': {
        const tools = await pages((p, o) => client.listTools(p, o), 'tools', options);
        return { tools, protocolVersion: client.getNegotiatedProtocolVersion?.() ?? client.transport?.protocolVersion ?? null };
      }
      case 'resources': {
        if (!client.getServerCapabilities()?.resources) return { served: false };
        const resources = await pages((p, o) => client.listResources(p, o), 'resources', options);
        const contents = [];
        for (const { uri } of resources) contents.push(...(await client.readResource({ uri }, options)).contents);
        return { served: true, resources, contents };
      }
      case 'prompts': {
        if (!client.getServerCapabilities()?.prompts) return { served: false };
        return { served: true, prompts: await pages((p, o) => client.listPrompts(p, o), 'prompts', options) };
      }
      case 'subscribe':
        return { how: await subscribe(client, options) };
      case 'seen':
        return { seen: host.seen };
      case 'call': {
        const params = { name: request.tool, arguments: request.arguments ?? {} };
        if (request.meta) params._meta = request.meta;
        if (request.abortAfterMs !== undefined && request.abortAfterMs !== null) {
          const abort = new AbortController();
          setTimeout(() => abort.abort(new Error('aborted by the test')), request.abortAfterMs);
          options.signal = abort.signal;
        }
        return client.callTool(params, options);
      }
      default:
        throw new Error(`an unknown operation: ${request.op}`);
    }
  }

  const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
  createInterface({ input: process.stdin }).on('line', (line) => {
    const request = JSON.parse(line);
    if (request.answer !== undefined) {
      questions.get(request.answer)?.(request.result);
      questions.delete(request.answer);
      return;
    }
    carryOut(request).then(
      (result) => say({ n: request.n, result }),
      (error) => {
        const { name, code, message, data } = error ?? {};
        say({ n: request.n, error: { name: String(name), code: code ?? null, message: String(message), data: data ?? null } });
      },
    );
  }).on('close', () => process.exit(0));
  say({ ready: true, node: process.version });
}
