// The official TypeScript client as a worker. Its argument says how it opens: `auto` asks the server which revisions it
// speaks, `pin` speaks 2026-07-28 or nothing, `legacy` is what the client does unless it is told otherwise.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { serve } from './host.mjs';

const modes = { auto: { mode: 'auto' }, pin: { mode: { pin: '2026-07-28' } }, legacy: undefined };
const opening = process.argv[2] ?? 'auto';
if (!(opening in modes)) throw new Error(`an unknown way to open: ${opening}`);

serve({
  make(capabilities) {
    const versionNegotiation = modes[opening];
    const info = { name: `counterfoil-tests-ts-${opening}`, version: '1.0.0' };
    const client = new Client(info, { capabilities, ...(versionNegotiation ? { versionNegotiation } : {}) });
    const connect = (url, headers, options) =>
      client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }), options);
    return { client, connect };
  },
  hear: (client, method, then) => client.setNotificationHandler(method, then),
  asked: (client, method, then) => client.setRequestHandler(method, then),
  async subscribe(client, options) {
    // In the legacy era the transport opened a GET stream by itself.
    if (opening === 'legacy') return 'GET';
    const subscription = await client.listen({ toolsListChanged: true }, options);
    if (!subscription.honoredFilter.toolsListChanged) throw new Error('changes of tools are not offered');
    return 'subscriptions/listen';
  },
});
