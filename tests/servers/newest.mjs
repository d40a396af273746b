// A server that speaks MCP 2026-07-28 alone: `node newest.mjs DIR stdio|http`, where DIR has the npm package
// @modelcontextprotocol/server. Over HTTP it prints its port.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const require = createRequire(resolve(process.argv[2], "x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { McpServer, acceptedContent, createMcpHandler, inputRequired, inputResponse } = await load(
  "@modelcontextprotocol/server",
);
const { z } = await load("zod");

const said = (text) => ({ content: [{ type: "text", text }] });

function make() {
  const server = new McpServer({ name: "newest", version: "1" }, { capabilities: { tools: { listChanged: true } } });
  server.registerTool("add", { inputSchema: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) =>
    said(`${a + b}`),
  );
  const booking = z.object({ day: z.string().default("Monday"), seats: z.number().default(2) });
  server.registerTool("book", { inputSchema: z.object({ place: z.string() }) }, ({ place }, { mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, "when");
    if (answer.kind === "missing") {
      return inputRequired({
        inputRequests: { when: inputRequired.elicit({ message: "Which day?", requestedSchema: booking }) },
        requestState: "asked",
      });
    }
    const content = acceptedContent(mcpReq.inputResponses, "when");
    return said(`${place}: ${content ? JSON.stringify(content) : answer.action} (${mcpReq.requestState()})`);
  });
  server.registerTool("wait", { inputSchema: z.object({ rounds: z.number() }) }, ({ rounds }, { mcpReq }) => {
    const round = Number(mcpReq.requestState() ?? 0);
    return round < rounds ? inputRequired({ requestState: `${round + 1}` }) : said(`after ${round}`);
  });
  server.registerTool("think", {}, () =>
    inputRequired({
      inputRequests: {
        thought: inputRequired.createMessage({
          messages: [{ role: "user", content: { type: "text", text: "?" } }],
          maxTokens: 1,
        }),
      },
    }),
  );
  server.registerTool("change", {}, () => {
    server.registerTool("added", { description: "New." }, () => said("x"));
    return said("changed");
  });
  server.registerResource("note", "note://1", {}, () => ({ contents: [{ uri: "note://1", text: "a note" }] }));
  return server;
}

if (process.argv[3] === "stdio") {
  const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
  serveStdio(make, { legacy: "reject" });
} else {
  const handler = createMcpHandler(make, { legacy: "reject" });
  const listener = createServer(async (request, response) => {
    const { method, headers } = request;
    const body = method === "POST" ? Readable.toWeb(request) : undefined;
    const asked = new Request(`http://${headers.host}${request.url}`, { method, headers, body, duplex: "half" });
    const answer = await handler.fetch(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
  });
  listener.listen(0, "127.0.0.1", () => console.log(listener.address().port));
}
