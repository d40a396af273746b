// A real browser for a test, which says what to do: `node browser.mjs DIR`, where DIR has the npm package puppeteer-core.
//
// Each line of stdin is JSON: `{"do": "the body of an async function of page, browser and open"}`; each line of stdout is its
// result, `{"ok": …}` or `{"error": "…"}`. `$CHROMIUM` names the browser (default: /usr/bin/chromium).

import { createRequire } from "node:module";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(resolve(process.argv[2], "x.js"));
const puppeteer = (await import(pathToFileURL(require.resolve("puppeteer-core")))).default;
const browser = await puppeteer.launch({
  // A browser takes long to start on a busy machine.
  timeout: 240_000,
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--force-prefers-reduced-motion"],
  headless: "shell",
  // By a pipe, so that the browser ends with this process however that ends: it would go on asking for its page, on a port
  // that is somebody else's by then.
  pipe: true,
  protocolTimeout: 240_000,
});

// A tab, which notes what a page must not have.
async function open() {
  const page = await browser.newPage();
  page.troubles = [];
  page.setDefaultTimeout(120_000);
  // Tabs in the background draw nothing.
  const wait = page.waitForFunction.bind(page);
  page.waitForFunction = (condition) => wait(condition, { polling: 50 });
  await page.setViewport({ width: 1280, height: 900 });
  page.on("dialog", (dialog) => {
    page.troubles.push(`a dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  page.on("pageerror", (error) => page.troubles.push(`an error: ${error.message}`));
  page.on("console", (message) => {
    if (/Content Security Policy/i.test(message.text())) page.troubles.push(message.text());
  });
  return page;
}

const AsyncFunction = (async () => {}).constructor;
const page = await open();
try {
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      const body = new AsyncFunction("page", "browser", "open", JSON.parse(line).do);
      answer = { ok: (await body(page, browser, open)) ?? null };
    } catch (error) {
      answer = { error: String(error.stack ?? error) };
    }
    console.log(JSON.stringify(answer));
  }
} finally {
  await browser.close();
}
