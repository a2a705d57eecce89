// What is in the package as it is published.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { promisify } from 'node:util';

const folder = new URL('..', import.meta.url);

test('the package has its code, its types and its license, and nothing else', async () => {
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--ignore-scripts', '--json'], { cwd: folder });
  const [{ files }] = JSON.parse(stdout);
  const built = ['errors', 'index'].flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  assert.deepEqual(files.map((file) => file.path).sort(), ['LICENSE', 'README.md', ...built, 'package.json'].sort());
});

test('what its texts point at is there once it is published', async () => {
  for (const name of ['README.md', 'package.json']) {
    const text = await readFile(new URL(name, folder), 'utf8');
    assert.doesNotMatch(text, /\]\((?!https:\/\/)/, name);
    assert.match(text, /https:\/\/github\.com\/counterfoil\/counterfoil/, name);
  }
  assert.match(await readFile(new URL('LICENSE', folder), 'utf8'), /Apache License\s+Version 2\.0/);
});
