// Takes docs/images/page.webp and view.webp: the program's own pages, with calls and rows that are made up. With what
// `jupyter nbconvert --to html` makes of a session's notebook, takes notebook.webp too.
//
//   node packaging/pictures.mjs NPM_DIR [OUT_DIR [NOTEBOOK.html]]
//
// NPM_DIR has puppeteer-core (`target/test-tools/npm`); `$CHROMIUM` names the browser (default: /usr/bin/chromium).

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [npm, out = join(dirname(fileURLToPath(import.meta.url)), "../docs/images"), notebook] = process.argv.slice(2);
const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(resolve(npm, "x.js"));
const puppeteer = (await import(pathToFileURL(require.resolve("puppeteer-core")))).default;

// Answers requests until the picture is taken.
async function serving(answer, work) {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const [kind, text, isOpen] = answer(request.url, body && JSON.parse(body));
    response.setHeader("content-type", kind);
    if (isOpen) response.write(text);
    else response.end(text);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  await work(`http://127.0.0.1:${server.address().port}/`);
  server.closeAllConnections();
  server.close();
}

// The approval page

const text = (name, ...parts) => ({ name, parts, is_text: true, is_cut: false });
const number = (name, value) => ({ name, parts: [String(value)], is_text: false, is_cut: false });
let id = 0;
const call = (server, tool, values, more) => ({
  left_ms: 287_000,
  row: {
    id: (id += 1), server, tool, kind: null, arguments: values, compared: [], behind: "", hints: [], changes: null, batch: null,
    grant: null, outside: null, scope: "", like: `every call of ${server}.${tool}`, origins: [], read: null, labels: [], ...more,
  },
});
const files = { behind: "a program on this machine: uvx mcp-server-files --root /home/me/reports", hints: ["changes something"], compared: ["text"] };
const shop = { behind: "a server at https://mcp.shop.example/mcp", hints: ["changes something", "reaches the outside world"] };
const mail = { argument: "reason", source: "mail.read", label: "untrusted", amount: "about 60 bytes" };
const CHANGES = {
  "/home/me/reports/north.md": [["-", "Revenue: 120,400"], ["+", "Revenue: 131,500"]],
  "/home/me/reports/south.md": [["-", "Status: draft"], ["+", "Status: final"]],
  "/home/me/reports/summary.md": [["+", "# First quarter"], ["+", "Revenue rose in three of four regions."]],
};
const refund = (order, amount, reason, origins = []) =>
  call("shop", "refund", [text("order", order), number("amount", amount), text("reason", reason)], { ...shop, origins, read: "untrusted data from mail" });
const SCENE = {
  event: "all",
  about: { workspace: "/home/me/reports", client: "Claude Code 2.1", session: "31802cf4" },
  browsers: 1,
  over: false,
  questions: [
    ...Object.keys(CHANGES).map((path) => call("files", "write_file", [text("path", path), text("text", "")], files)),
    refund("A-1041", 19.9, "ordered twice"),
    refund("A-1057", 240, "damaged in transit, says the customer", [mail]),
    call("ipybox", "shell", [text("cmd", "git commit -am 'First quarter' && git push")], { kind: "Run this shell command in the kernel?", like: "this very command" }),
  ],
  grants: [{ id: 1, left: 47, covers: "files.read_file(path=<a path within '/home/me/reports'>)", of_cell: true }],
  cells: [],
  decisions: [
    { at: "2026-11-26T10:02:11Z", server: "files", tool: "read_file", arguments: [text("path", "/home/me/reports/north.md")], how: "allowed by grant 1" },
    { at: "2026-11-26T10:02:14Z", server: "mail", tool: "send", arguments: [text("to", "all@example.com")], how: "denied by the policy, rule 3" },
  ],
};

function answerPage(path, body) {
  if (path === "/enter") return ["application/json", '{"key": "x"}'];
  if (path === "/events") return ["application/x-ndjson", `${JSON.stringify(SCENE)}\n`, true];
  if (path === "/call") {
    const [{ parts: [file] }] = SCENE.questions.find(({ row }) => row.id === body.question).row.arguments;
    const lines = CHANGES[file].map(([sign, line]) => ({ sign, text: line }));
    const of = (sign) => lines.filter((line) => line.sign === sign).length;
    const kind = of("-") ? "text" : "new";
    return ["application/json", JSON.stringify({ changes: [{ what: file, kind, added: of("+"), removed: of("-"), lines, left_out: 0 }], arguments: [] })];
  }
  const file = path === "/" ? "page.html" : path.slice(1);
  const kind = { html: "text/html", css: "text/css", js: "text/javascript" }[file.split(".").pop()];
  return kind ? [kind, readFileSync(join(root, "src/faces/people/page", file))] : ["text/plain", ""];
}

// A view, in a client that is only as much of one as the view needs

const VIEWS = join(root, "src/faces/mcp_server/views");
const part = (name) => readFileSync(join(VIEWS, name), "utf8");
const VIEW = part("view.html")
  .replace("/* style */", () => part("view.css"))
  .replace("/* plots */", '""')
  .replace("/* script */", () => part("table.js") + part("view.js"));
const REGIONS = ["north", "south", "east", "west"];
const ROWS = Array.from({ length: 9 }, (_, at) => [`2026-0${1 + (at % 3)}-${10 + at}T00:00:00`, REGIONS[at % 4], 40 + ((at * 37) % 90), at === 4 ? null : 1204.5 + at * 317.123456, at % 3 > 0]);
const TABLE = {
  title: "DataFrame of 1,204 rows and 5 columns", rows: 1204, held: 1204, matching: 1204, from: 0, left_out: 0,
  columns: [["day", "datetime64[ns]"], ["region", "str"], ["orders", "int64"], ["revenue", "float64"], ["final", "bool"]].map(([name, type]) => ({ name, type, index: false })),
  page: ROWS.map((values, at) => ({ number: at + 1, values })),
};
const column = (missing, distinct, least, greatest) => ({ missing, distinct, least, greatest });
const SUMMARY = [column(0, 90, "2026-01-01T00:00:00", "2026-03-31T00:00:00"), column(0, 4, "east", "west"), column(0, 91, 3, 131), column(12, 1188, 88.25, 9120.75), column(0, 2, false, true)];
const CLIENT = `<!doctype html><style>body { margin: 0 } iframe { border: 0; width: 900px; height: 420px }</style><iframe src="/view"></iframe><script>
const [table, summary] = ${JSON.stringify([TABLE, SUMMARY])};
addEventListener("message", ({ data, source }) => {
  const say = (message) => source.postMessage({ jsonrpc: "2.0", ...message }, "*");
  if (data.method === "ui/initialize") say({ id: data.id, result: { hostContext: { theme: "light", availableDisplayModes: ["fullscreen"] }, hostCapabilities: { serverTools: {} } } });
  if (data.method === "ui/notifications/initialized") say({ method: "ui/notifications/tool-result", params: { _meta: { "ipybox/views": ["0a1b2c3d-table.jsonl"] } } });
  if (data.method === "tools/call") say({ id: data.id, result: { structuredContent: data.params.arguments.summary ? { summary } : table } });
});
</script>`;

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"], headless: "shell", pipe: true });
try {
  const page = await browser.newPage();
  await serving(answerPage, async (url) => {
    await page.setViewport({ width: 1280, height: 800 });
    await page.goto(url);
    await page.waitForSelector("#enter:not([hidden])");
    await page.type("#code", "AAAA-BBBB");
    await page.keyboard.press("Enter");
    await page.waitForFunction((count) => document.querySelectorAll("td.preview .plus").length === count, {}, Object.keys(CHANGES).length);
    await page.waitForFunction(() => [...document.querySelectorAll("button.allow")].every((button) => button.ariaDisabled === "false"));
    await page.screenshot({ path: join(out, "page.webp"), quality: 90, clip: { x: 0, y: 0, width: 1280, height: 710 } });
  });
  await serving((path) => ["text/html", path === "/view" ? VIEW : CLIENT], async (url) => {
    await page.setViewport({ width: 900, height: 420 });
    await page.goto(url);
    const frame = page.frames()[1];
    await frame.waitForSelector("thead .summary");
    await page.screenshot({ path: join(out, "view.webp"), quality: 90, clip: { x: 0, y: 0, width: 900, height: 340 } });
  });
  if (notebook) {
    await page.setViewport({ width: 900, height: 760 });
    await page.goto(pathToFileURL(resolve(notebook)).href, { waitUntil: "domcontentloaded" });
    await page.waitForFunction(() => [...document.images].every((image) => image.complete));
    await page.screenshot({ path: join(out, "notebook.webp"), quality: 90 });
  }
} finally {
  await browser.close();
}
