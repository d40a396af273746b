// A host of MCP Apps for a test: the SDK's client, the bridge of ext-apps, and a real browser in which views are shown as the
// specification wants it, in a frame within a frame of another origin.
//
// `node host.mjs DIR COMMAND ARGUMENT…`, where DIR has the packages of npm. Each line of stdin is JSON,
// `{"do": "the body of an async function of host"}`; each line of stdout is its result, `{"ok": …}` or `{"error": "…"}`.
// `$CHROMIUM` names the browser (default: /usr/bin/chromium).

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [directory, command, ...args] = process.argv.slice(2);
const require = createRequire(resolve(directory, "x.js"));
// `require` does not find packages that are modules only.
const load = (name) => import(pathToFileURL(resolve(directory, "node_modules", name)));
const puppeteer = (await import(pathToFileURL(require.resolve("puppeteer-core")))).default;
const { Client } = await load("@modelcontextprotocol/client/dist/index.mjs");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/dist/stdio.mjs");
const { AppBridge, getToolUiResourceUri } = await load("@modelcontextprotocol/ext-apps/dist/src/app-bridge.js");

const TYPE = "text/html;profile=mcp-app";
// The policy that the specification has hosts set where a page asks for nothing.
const POLICY =
  "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; base-uri 'self'";

const HOST = `<!doctype html><title>host</title><link rel="icon" href="data:,"><style>body { margin: 8px; color-scheme: light dark; background: Canvas }
  iframe { border: 0; width: 100%; height: 20px }</style><script>
  addEventListener("message", ({ source, data }) => {
    if (source === document.querySelector("iframe")?.contentWindow) said(JSON.stringify(data));
  });</script>`;

// The frame in between: it shows the page, and passes messages on.
const PROXY = `<!doctype html><style>body, iframe { margin: 0; border: 0; width: 100%; height: 100vh; display: block }</style><script>
  let inner;
  addEventListener("message", ({ source, data }) => {
    if (source === parent && data.method === "ui/notifications/sandbox-resource-ready") {
      inner = document.createElement("iframe");
      inner.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
      inner.srcdoc = data.params.html;
      document.body.append(inner);
    } else if (source === parent) inner.contentWindow.postMessage(data, "*");
    else if (source === inner?.contentWindow) parent.postMessage(data, "*");
  });
  addEventListener("DOMContentLoaded", () =>
    parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "*"));</script>`;

// Everything that a page fetches from anywhere.
const fetched = [];
function serve(html) {
  const server = createServer((request, response) => {
    if (request.url !== "/") fetched.push(request.url);
    response.setHeader("content-security-policy", html === PROXY ? POLICY : "");
    response.setHeader("content-type", "text/html").end(request.url === "/" ? html : "");
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(`http://127.0.0.1:${server.address().port}/`)));
}

const browser = await puppeteer.launch({
  // A browser takes long to start on a busy machine.
  timeout: 240_000,
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--force-prefers-reduced-motion"],
  headless: "shell",
  pipe: true,
  protocolTimeout: 240_000,
});

const client = new Client(
  { name: "host", version: "1" },
  { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [TYPE] } } } },
);
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

const host = {
  client,
  fetched,
  troubles: [],
  calls: [],
  // With this message the host refuses `ui/initialize`.
  refusal: null,
  context: { theme: "light", displayMode: "inline", availableDisplayModes: ["inline", "fullscreen"], locale: "en" },

  // Shows the view of a result, in a page of its own. Returns the frame.
  async show(name, args, result, size = { width: 800, height: 700 }) {
    await this.page?.close();
    await this.bridge?.close().catch(() => {});
    const tool = (await client.listTools()).tools.find((tool) => tool.name === name);
    const uri = getToolUiResourceUri(tool);
    const { contents } = await client.readResource({ uri });
    if (contents[0].mimeType !== TYPE) throw new Error(contents[0].mimeType);
    const [outside, between] = await Promise.all([serve(HOST), serve(PROXY)]);
    const page = (this.page = await browser.newPage());
    page.setDefaultTimeout(120_000);
    await page.setViewport(size);
    page.on("pageerror", (error) => this.troubles.push(`an error: ${error.message}`));
    page.on("console", (message) => {
      if (/Content Security Policy|Refused|error/i.test(message.text())) this.troubles.push(message.text());
    });
    const bridge = (this.bridge = new AppBridge(null, { name: "host", version: "1" }, { serverTools: {}, openLinks: {} }, { hostContext: this.context }));
    const transport = {
      start: async () => {},
      close: async () => {},
      send: (message) =>
        page.evaluate((message) => document.querySelector("iframe").contentWindow.postMessage(message, "*"), message),
    };
    let refused = null;
    const refusing = new Promise((done) => (refused = done));
    await page.exposeFunction("said", async (text) => {
      const message = JSON.parse(text);
      if (this.refusal === null || message.method !== "ui/initialize") return transport.onmessage?.(message);
      await transport.send({ jsonrpc: "2.0", id: message.id, error: { code: -32602, message: this.refusal } });
      refused();
    });
    const visible = async (name) => {
      const tool = (await client.listTools()).tools.find((tool) => tool.name === name);
      return (tool?._meta?.ui?.visibility ?? ["model", "app"]).includes("app");
    };
    bridge.oncalltool = async (params) => {
      this.calls.push(params);
      if (!(await visible(params.name))) throw new Error(`${params.name} is not for apps`);
      return client.callTool(params);
    };
    bridge.onrequestdisplaymode = async ({ mode }) => ({ mode });
    bridge.onsizechange = ({ height }) => {
      this.height = height;
      page.$eval("iframe", (frame, height) => (frame.style.height = `${height}px`), height).catch(() => {});
    };
    // Further requests of a page to its host.
    for (const request of ["onopenlink", "onmessage", "onupdatemodelcontext", "ondownloadfile"]) {
      bridge[request] = async () => {
        this.troubles.push(request);
        return {};
      };
    }
    const ready = new Promise((done) => (bridge.oninitialized = done));
    const proxied = new Promise((done) => (bridge.onsandboxready = done));
    await page.goto(outside);
    await bridge.connect(transport);
    await page.evaluate((address) => {
      const frame = Object.assign(document.createElement("iframe"), { src: address });
      frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
      document.body.append(frame);
    }, between);
    await proxied;
    await bridge.sendSandboxResourceReady({ html: contents[0].text });
    await Promise.race([ready, refusing]);
    if (this.refusal === null) {
      await bridge.sendToolInput({ arguments: args });
      await bridge.sendToolResult(result);
    }
    this.frame = await (await (await (await page.$("iframe")).contentFrame()).waitForSelector("iframe")).contentFrame();
    return this.frame;
  },

  // Runs a cell and shows its view.
  async cell(code, size) {
    const args = { code };
    const result = await client.callTool({ name: "execute_ipython_cell", arguments: args });
    if (result.isError) throw new Error(result.content[0].text);
    this.result = result;
    return this.show("execute_ipython_cell", args, result, size);
  },

  // Waits until a condition on the frame's document holds.
  wait(condition) {
    return this.frame.waitForFunction(condition, { polling: 50 });
  },

  // The frame within the view that has such an element.
  async within(selector) {
    for (const frame of this.frame.childFrames()) if (await frame.$(selector)) return frame;
    throw new Error(`no frame has ${selector}`);
  },

  async screenshot(options) {
    await this.page.screenshot(options);
  },
};

const AsyncFunction = (async () => {}).constructor;
try {
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = { ok: (await new AsyncFunction("host", JSON.parse(line).do)(host)) ?? null };
    } catch (error) {
      answer = { error: String(error.stack ?? error) };
    }
    console.log(JSON.stringify(answer));
  }
} finally {
  await browser.close();
  await client.close();
  process.exit();
}
