// What users write, checked by the compiler alone.
import { Aborted, Counterfoil, CounterfoilError, InDoubt, KeyConflict, NoAnswer, Refused, type ExecResult } from '../src/index.js';

export async function refund(order: string): Promise<string | undefined> {
  const counterfoil = new Counterfoil({ url: 'http://127.0.0.1:8600', apiKey: 'cfk_…', timeout: 60_000 });
  try {
    const done: ExecResult = await counterfoil.exec(
      'payments.refunds.create',
      { payment: 'pay_1', amount: 200 },
      { operation: order, step: 'refund', signal: AbortSignal.timeout(1_000) },
    );
    return done.operationId;
  } catch (error) {
    if (error instanceof InDoubt) return error.retryKey;
    if (error instanceof KeyConflict) return error.newKey;
    if (error instanceof Refused) return error.result.text;
    if (error instanceof NoAnswer || error instanceof Aborted) return error.key;
    if (error instanceof CounterfoilError) return error.key;
    throw error;
  }
}

// @ts-expect-error arguments are an object
void new Counterfoil().exec('a.b', 'c');
// @ts-expect-error there is no such option
void new Counterfoil().exec('a.b', {}, { principal: 'somebody' });
