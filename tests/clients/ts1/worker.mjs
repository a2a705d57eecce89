// The official TypeScript client of the legacy era, before it was divided into packages.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { serve } from './host.mjs';

const requests = {
  'elicitation/create': ElicitRequestSchema,
  'sampling/createMessage': CreateMessageRequestSchema,
  'roots/list': ListRootsRequestSchema,
};

serve({
  make(capabilities) {
    const client = new Client({ name: 'counterfoil-tests-ts1', version: '1.0.0' }, { capabilities });
    const connect = (url, headers, options) =>
      client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }), options);
    // Here the second argument is the schema of the result.
    const { callTool } = client;
    client.callTool = (params, options) => callTool.call(client, params, undefined, options);
    return { client, connect };
  },
  hear: (client, _method, then) => client.setNotificationHandler(ToolListChangedNotificationSchema, then),
  asked: (client, method, then) => client.setRequestHandler(requests[method], then),
  // The transport opened a GET stream by itself.
  subscribe: async () => 'GET',
});
