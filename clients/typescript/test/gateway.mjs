// A real gateway in a folder of its own, with the sandbox provider, which counts effects apart from its answers.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const binary = process.env.COUNTERFOIL_BIN;
if (!binary) throw new Error('COUNTERFOIL_BIN is not set: run `cargo xtask test`, which builds the program and sets it');

/** A port that was free a moment ago. */
async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export class Gateway {
  /** Starts one; it keeps its addresses when it is started again. */
  static async start(args = []) {
    const gateway = new Gateway();
    gateway.folder = await mkdtemp(join(tmpdir(), 'counterfoil-client-'));
    const [listen, sandbox] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
    gateway.url = `http://${listen}`;
    gateway.provider = `http://${sandbox}`;
    gateway.args = ['serve', '--json', '--listen', listen, '--sandbox-listen', sandbox, ...args];
    await gateway.begin();
    return gateway;
  }

  async begin() {
    this.process = spawn(binary, this.args, { cwd: this.folder, stdio: ['ignore', 'pipe', 'ignore'] });
    this.ended = new Promise((done) => this.process.once('exit', done));
    for await (const line of createInterface({ input: this.process.stdout })) {
      this.ready = JSON.parse(line);
      return;
    }
    throw new Error('the gateway did not start');
  }

  /** kill -9, by its own process id. */
  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  async stop() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Arms a fault at the provider. */
  async arm(rule) {
    const response = await fetch(`${this.provider}/_sandbox/rules`, { method: 'POST', body: JSON.stringify(rule) });
    if (!response.ok) throw new Error(await response.text());
  }

  /** What really happened to an order. */
  async effects(order) {
    const response = await fetch(`${this.provider}/_sandbox/effects?object=${order}`);
    return (await response.json()).total;
  }
}

/** The arguments of a refund of an order. */
export function refund(order, amount = 200) {
  return { payment: `pay_demo_${order}`, amount, order_id: order };
}

export const REFUND = 'payments.refunds.create';
