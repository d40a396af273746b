// Long cells and lasting sessions by the TypeScript SDK, with a time limit that is shorter than the cells.
//
//     node long_cells.mjs MODULES PACKAGE -- COMMAND [ARG …]
//
// PACKAGE is `sdk` (1.x) or `client` (2.x) in the directory MODULES of npm; `{workspace}` in an ARG is a fresh
// directory. The server needs `--keep-session` and `--long-cells`. Exit code: 0 all steps passed, 1 some failed.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Of the client, for each call; its own default is 60 s. */
const LIMIT = { timeout: 10_000 };
/** Of calls that are to be answered: only what hangs takes longer, on the slowest machine. */
const PATIENCE = { timeout: 300_000 };
const FILES = {
  sdk: ["dist/esm/client/index.js", "dist/esm/client/stdio.js"],
  client: ["dist/index.mjs", "dist/stdio.mjs"],
};

const [modules, name, , ...template] = process.argv.slice(2);
const scratch = realpathSync(mkdtempSync(join(tmpdir(), "ipybox-")));
const workspace = join(scratch, "workspace");
mkdirSync(workspace);
const command = template.map((word) => word.replaceAll("{workspace}", workspace));

const [{ Client }, { StdioClientTransport }] = await Promise.all(
  FILES[name].map((file) => import(pathToFileURL(join(modules, "@modelcontextprotocol", name, file)))),
);

async function connect() {
  const client = new Client({ name: "test", version: "1" });
  const [program, ...args] = command;
  await client.connect(new StdioClientTransport({ command: program, args, env: process.env, stderr: "ignore" }));
  return client;
}

async function call(client, tool, args, options = PATIENCE) {
  const { content } = await callTool(client, { name: tool, arguments: args }, options);
  return content.map((part) => part.text ?? "").join("\n");
}

/** The 1.x line has a schema between the parameters and the options. */
function callTool(client, params, options) {
  return name === "sdk" ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

const cell = (client, args, options) => call(client, "execute_ipython_cell", args, options);
const go = (file) => writeFileSync(join(workspace, file), "");
const waiting = (file) =>
  `import pathlib, time
print('begun ${file}', flush=True)
while not pathlib.Path(${JSON.stringify(file)}).exists(): time.sleep(0.01)
print('at the end of ${file}')`;

async function inParts(client) {
  await cell(client, { code: "x = 6 * 7" });
  const begun = Date.now();
  const answers = [];
  let text = await cell(client, { code: waiting("long"), timeout: 600, wait: 1 }, LIMIT);
  while (text.includes("still runs")) {
    answers.push(text);
    if (Date.now() - begun > 2 * LIMIT.timeout) go("long");
    const [, id] = /`(cell-\d+)`/.exec(text);
    text = await call(client, "wait_for_cell", { cell: id, timeout: 1 }, LIMIT);
  }
  answers.push(text);
  assert.ok(existsSync(join(workspace, "long")), `the cell was not long enough: ${text}`);
  for (const words of ["begun long", "at the end of long"]) {
    assert.equal(answers.join("\n").split(words).length, 2, `${words} does not come once: ${answers}`);
  }
}

async function givenUp(client) {
  await assert.rejects(cell(client, { code: waiting("lost"), timeout: 600 }, LIMIT), /timed out/);
  const text = await cell(client, { code: "print('x is', x)" });
  assert.match(text, /^\[Answer of an earlier call, cancelled after .*\]\nbegun lost\n[^]*KeyboardInterrupt/);
  assert.match(text, /x is 42$/);
}

async function progress(client) {
  // Each notification begins the limit anew.
  const code = `import time
begun = time.monotonic()
while time.monotonic() - begun < ${(2 * LIMIT.timeout) / 1000}:
    print('.', end='', flush=True)
    time.sleep(0.2)
print(' done')`;
  let heard = 0;
  const options = { ...LIMIT, onprogress: () => (heard += 1), resetTimeoutOnProgress: true };
  assert.match(await cell(client, { code }, options), /\. done$/);
  assert.ok(heard > 1, `${heard} notifications`);
}

async function takeover(client) {
  const second = await connect();
  await cell(second, { code: "y = 6 * 8" });
  const text = await cell(second, { code: waiting("left"), timeout: 600, wait: 0.5 });
  const [, id] = /`(cell-\d+)`/.exec(text);
  await second.close();
  const third = await connect();
  const rest = call(third, "wait_for_cell", { cell: id, timeout: 300 });
  await third.listTools();
  go("left");
  assert.match(await rest, /^\[This session was taken over[^]*at the end of left/);
  assert.match(await cell(third, { code: "y" }), /48$/);
  await third.close();
  assert.match(await cell(client, { code: "x" }), /42$/);
}

const STEPS = [
  ["with `wait`, a cell takes several times as long as the client waits", inParts],
  ["without `wait`, the client gives up, and the next answer reports it", givenUp],
  ["a cell that prints is waited for by a client that counts from the last progress", progress],
  ["another client has a session of its own, and its successor finds its variables", takeover],
];

let failures = 0;
try {
  const client = await connect();
  for (const [sentence, step] of STEPS) {
    try {
      await step(client);
      console.log(`ok    ${sentence}`);
    } catch (error) {
      failures += 1;
      console.log(`FAIL  ${sentence}\n${error.stack}`);
    }
  }
  await client.close();
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
process.exit(failures ? 1 : 0);
