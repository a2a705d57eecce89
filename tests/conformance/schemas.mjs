// Takes the protocol's JSON Schemas out of the installed conformance suite: its bundle holds those of four revisions
// as object literals. Usage: node schemas.mjs BUNDLE FOLDER; writes FOLDER/<revision>.json.
//
// Whatever is not exactly as expected (a literal that does not end, a revision that is missing or there twice) ends
// it with an error, and then nothing is written.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

const [bundle, folder] = process.argv.slice(2);
if (!bundle || !folder) throw new Error("usage: node schemas.mjs BUNDLE FOLDER");

// What only one of the four revisions defines, or leaves out.
const MARKS = {
  "2025-03-26": { with: ["JSONRPCBatchRequest"], without: ["ElicitRequest", "DiscoverResult"] },
  "2025-06-18": { with: ["InitializeResult", "ElicitRequest"], without: ["JSONRPCBatchRequest", "CreateTaskResult"] },
  "2025-11-25": { with: ["InitializeResult", "CreateTaskResult"], without: ["DiscoverResult"] },
  "2026-07-28": { with: ["DiscoverResult", "SubscriptionsListenRequest"], without: ["InitializeResult"] },
};

// The index after the literal that begins with the brace at `start`. The literals are data: strings of any quotes,
// without comments, regular expressions or expressions inside of template strings.
function end(text, start) {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const c = text[at];
    if (c === '"' || c === "'" || c === "`") {
      for (at++; at < text.length && text[at] !== c; at++) {
        if (text[at] === "\\") at++;
        else if (c === "`" && text[at] === "$" && text[at + 1] === "{")
          throw new Error(`an expression inside of the literal at ${start}`);
      }
    } else if (c === "{") depth++;
    else if (c === "}" && --depth === 0) return at + 1;
  }
  throw new Error(`the literal at ${start} does not end`);
}

const text = readFileSync(bundle, "utf8");
const found = new Map();
// {$schema:"http…",$defs: or {$schema:"http…",definitions:
const opening =
  /\{\s*["']?\$schema["']?\s*:\s*([`"'])https?:\/\/json-schema\.org\/[^`"']+\1\s*,\s*["']?(definitions|\$defs)["']?\s*:/g;
for (const match of text.matchAll(opening)) {
  const literal = text.slice(match.index, end(text, match.index));
  // Evaluated without any global of ours; the result passes as text, so that it is data and nothing else.
  const json = runInNewContext(`JSON.stringify((${literal}))`, Object.create(null), { timeout: 5000 });
  const schema = JSON.parse(json);
  const names = schema[match[2]];
  const fits = Object.keys(MARKS).filter(
    (r) => MARKS[r].with.every((n) => n in names) && MARKS[r].without.every((n) => !(n in names)),
  );
  if (fits.length !== 1) throw new Error(`the schema at ${match.index} fits ${fits.length} revisions: ${fits}`);
  if (found.has(fits[0])) throw new Error(`${fits[0]} is there twice`);
  found.set(fits[0], schema);
}
const missing = Object.keys(MARKS).filter((r) => !found.has(r));
if (missing.length) throw new Error(`no schema of ${missing.join(", ")} in ${bundle}`);

mkdirSync(folder, { recursive: true });
for (const [revision, schema] of found) {
  writeFileSync(join(folder, `${revision}.json`), `${JSON.stringify(schema, null, 2)}\n`);
}
console.log(`schemas of ${[...found.keys()].sort().join(", ")}`);
