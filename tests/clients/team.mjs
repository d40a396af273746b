// A client of a team server: begins, lists, runs cells, answers a question and ends, over the TypeScript SDK.
//
//     URL=… TOKEN=… node team.mjs MODULES PACKAGE legacy|auto
//
// PACKAGE is `sdk` (1.x) or `client` (2.x) in the directory MODULES of npm.

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PATIENCE = { timeout: 300_000 };
const FILES = {
  sdk: ["dist/esm/client/index.js", "dist/esm/client/streamableHttp.js", "dist/esm/types.js"],
  client: ["dist/index.mjs"],
};

const [modules, name, mode] = process.argv.slice(2);
const parts = await Promise.all(
  FILES[name].map((file) => import(pathToFileURL(join(modules, "@modelcontextprotocol", name, file)))),
);
const { Client, StreamableHTTPClientTransport, ElicitRequestSchema } = Object.assign({}, ...parts);

const options = { capabilities: { elicitation: {} } };
if (name === "client") options.versionNegotiation = { mode };
const client = new Client({ name: "test", version: "1" }, options);
const asked = [];
const decline = (request) => {
  asked.push(request.params.message);
  return { action: "decline" };
};
client.setRequestHandler(name === "sdk" ? ElicitRequestSchema : "elicitation/create", decline);

const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
const transport = new StreamableHTTPClientTransport(new URL(process.env.URL), { requestInit: { headers } });
await client.connect(transport, PATIENCE);

async function call(tool, args) {
  const params = { name: tool, arguments: args };
  // The 1.x line has a schema between the parameters and the options.
  const result = await (name === "sdk"
    ? client.callTool(params, undefined, PATIENCE)
    : client.callTool(params, PATIENCE));
  return result.content.map((part) => part.text ?? "").join("\n");
}

const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === "execute_ipython_cell"));
for (const [code, shown] of [["x = 6; x", "6"], ["x * 7", "42"]]) {
  const text = await call("execute_ipython_cell", { code });
  assert(text.endsWith(shown), text);
}
const said = await call("install_package", { package_name: "nothing-of-this-name" });
assert(asked.length > 0, `no question came: ${said}`);
assert(said.includes("rejected"), said);
assert.equal(transport.sessionId === undefined, mode === "auto");
if (mode === "legacy") await transport.terminateSession();
await client.close();
