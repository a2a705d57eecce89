// The same tool with the official TypeScript SDK, on node:http, answering JSON.
// Prints {"url": …} when it listens; ends when its standard input does.

import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

const inputSchema = z.object({ text: z.string() });

const handler = createMcpHandler(
  () => {
    const server = new McpServer({ name: 'echo', version: '1.0.0' });
    server.registerTool(
      'echo',
      { description: 'Gives back what it was given', inputSchema },
      async ({ text }) => ({ content: [{ type: 'text', text }] }),
    );
    return server;
  },
  { responseMode: 'json' },
);

const listener = createServer(toNodeHandler(handler));
listener.listen(0, '127.0.0.1', 1024, () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${listener.address().port}/mcp` }));
});
process.stdin.on('end', () => process.exit(0)).resume();
