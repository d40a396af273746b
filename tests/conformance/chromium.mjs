// A real browser for `$BROWSER`: opens a URL in Chromium and clicks the button `allow` as long as there is one.
//
//     node chromium.mjs [--packages DIR] [--click ID] [--screenshot FILE] URL
//
// Prints a line of JSON: the last page's URL, title, text, and whether it showed a dialog, as `alert(1)` would. In DIR
// is the npm package puppeteer-core; `$CHROMIUM` names the browser (default: /usr/bin/chromium).

import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const CLICKS = 5;
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    packages: { type: "string" },
    click: { type: "string", default: "allow" },
    screenshot: { type: "string" },
  },
});
const place = options.packages ? resolve(options.packages, "x.js") : fileURLToPath(import.meta.url);
const require = createRequire(place);
const load = async (name) => (await import(pathToFileURL(require.resolve(name)))).default;
const puppeteer = await load("puppeteer-core");

const browser = await puppeteer.launch({
  // A browser takes long to start on a busy machine.
  timeout: 240_000,
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
  headless: "shell",
});
try {
  const page = await browser.newPage();
  let dialogs = 0;
  page.on("dialog", (dialog) => {
    dialogs += 1;
    return dialog.dismiss();
  });
  const moved = { waitUntil: "load", timeout: 300_000 };
  await page.goto(positionals[0], moved);
  for (let click = 0; click < CLICKS && (await page.$(`#${options.click}`)); click += 1) {
    await Promise.all([page.waitForNavigation(moved), page.click(`#${options.click}`)]);
  }
  // Scripts that are not to run have time to.
  await new Promise((resolve) => setTimeout(resolve, 300));
  if (options.screenshot) await page.screenshot({ path: options.screenshot });
  const text = await page.evaluate(() => document.body?.innerText ?? "");
  console.log(JSON.stringify({ url: page.url(), title: await page.title(), text: text.slice(0, 20_000), dialogs }));
} finally {
  await browser.close();
}
