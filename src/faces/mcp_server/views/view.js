// What is shown comes from code that nobody trusts: it becomes text of elements, or goes into frames that have neither a
// network nor this page.

// Talking to the client

const client = { context: {}, capabilities: {}, waiting: new Map(), last: 0 };

function send(message) {
  window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
}

function ask(method, params) {
  const id = ++client.last;
  return new Promise((resolve, reject) => {
    client.waiting.set(id, { resolve, reject });
    send({ id, method, params });
  });
}

const NOTICES = {
  "ui/notifications/tool-result": (result) => showAll(result?._meta?.["ipybox/views"]),
  "ui/notifications/host-context-changed": (context) => adopt(context),
};

window.addEventListener("message", ({ source, data }) => {
  const frame = [...frames.keys()].find((frame) => frame.contentWindow === source);
  if (frame) {
    frames.get(frame)?.(data);
    return;
  }
  if (source !== window.parent || data?.jsonrpc !== "2.0") return;
  if (data.method === undefined) {
    const waiting = client.waiting.get(data.id);
    client.waiting.delete(data.id);
    if (data.error) waiting?.reject(new Error(data.error.message ?? "the client refused"));
    else waiting?.resolve(data.result);
  } else if (data.id !== undefined) {
    const isKnown = ["ping", "ui/resource-teardown"].includes(data.method);
    const error = { code: -32601, message: `there is no method ${data.method}` };
    send(isKnown ? { id: data.id, result: {} } : { id: data.id, error });
  } else {
    NOTICES[data.method]?.(data.params);
  }
});

async function begin() {
  const { hostContext, hostCapabilities } = await ask("ui/initialize", {
    appInfo: { name: "ipybox", version: "1" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    protocolVersion: "2026-01-26",
  });
  client.capabilities = hostCapabilities ?? {};
  adopt(hostContext);
  send({ method: "ui/notifications/initialized", params: {} });
  new ResizeObserver(reportHeight).observe(document.documentElement);
}

// The client's colours and fonts, and how it shows the page.
function adopt(context) {
  const wasDark = isDark();
  Object.assign(client.context, context);
  const root = document.documentElement;
  if (["light", "dark"].includes(context?.theme)) root.style.colorScheme = context.theme;
  for (const [name, value] of Object.entries(context?.styles?.variables ?? {})) {
    if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
  }
  document.querySelectorAll(".wide").forEach(nameWideButton);
  // Plots lose what the user has zoomed to when they are drawn anew.
  if (isDark() !== wasDark) drawnPlots.forEach((draw) => draw());
}

const darkness = window.matchMedia("(prefers-color-scheme: dark)");
darkness.onchange = () => {
  if (!document.documentElement.style.colorScheme) drawnPlots.forEach((draw) => draw());
};

function isDark() {
  const set = document.documentElement.style.colorScheme;
  return set ? set === "dark" : darkness.matches;
}

function reportHeight() {
  const height = Math.ceil(document.getElementById("views").getBoundingClientRect().height);
  if (height !== client.height) send({ method: "ui/notifications/size-changed", params: { height } });
  client.height = height;
}

// Reading

async function read(what) {
  if (!client.capabilities.serverTools) throw new Error("This client does not let views read their data.");
  const result = await ask("tools/call", { name: "read_view", arguments: what });
  if (result.isError) throw new Error(result.content?.[0]?.text ?? "It could not be read.");
  return result.structuredContent;
}

async function readBytes(what) {
  const parts = [];
  let from = 0;
  while (from !== null) {
    const part = await read({ ...what, from });
    parts.push(Uint8Array.from(atob(part.data), (byte) => byte.codePointAt(0)));
    from = part.next ?? null;
  }
  return new Blob(parts);
}

const readLibrary = (() => {
  const libraries = {};
  const unpack = async (library) => {
    const packed = await readBytes({ library });
    return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  return (library) => (libraries[library] ??= unpack(library));
})();

// Elements

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// A frame, and who listens to it.
const frames = new Map();

function makeFrame(title, sandbox, html, listener) {
  const frame = make("iframe", { title, height: 150 });
  frame.setAttribute("sandbox", sandbox);
  frame.srcdoc = html;
  frames.set(frame, listener);
  return frame;
}

// Views

const SHOW = {
  "table.jsonl": showTable,
  "plotly.json": (view, section) => showPlot(view, section, "plotly"),
  "vega.json": (view, section) => showPlot(view, section, "vega"),
  "vegalite.json": (view, section) => showPlot(view, section, "vega-lite"),
  "html.html": showHtml,
};

function showAll(views) {
  const place = document.getElementById("views");
  place.replaceChildren();
  drawnPlots.clear();
  frames.clear();
  for (const view of Array.isArray(views) ? views : []) {
    const kind = String(view).slice(String(view).indexOf("-") + 1);
    const show = SHOW[kind] ?? showImage;
    const section = make("section", { className: "view", ariaBusy: "true" });
    place.append(section);
    Promise.resolve(show(view, section))
      .catch((error) => section.append(make("p", { className: "trouble", role: "alert" }, error.message)))
      .finally(() => section.removeAttribute("aria-busy"));
  }
}

const IMAGES = { gif: "gif", jpg: "jpeg", png: "png", svg: "svg+xml", webp: "webp" };

async function showImage(view, section) {
  section.ariaLabel = "Image";
  section.classList.add("picture");
  const type = IMAGES[view.split(".").pop()];
  if (!type) {
    section.append(make("p", { className: "bar note" }, `${view}: open the file to see it`));
    return;
  }
  const bytes = await readBytes({ view });
  const reader = new FileReader();
  const read = new Promise((resolve, reject) => {
    reader.onload = resolve;
    reader.onerror = () => reject(reader.error);
  });
  reader.readAsDataURL(new Blob([bytes], { type: `image/${type}` }));
  await read;
  const image = make("img", { className: "image", alt: "Image of the cell" });
  const loaded = new Promise((resolve, reject) => {
    image.onload = resolve;
    image.onerror = () => reject(new Error("The image cannot be shown."));
  });
  image.src = reader.result;
  await loaded;
  section.append(image);
}

// What runs, opens other pages, or connects to a machine by being there or being pointed at. What a template has comes to
// life when it is parsed again, and an animation sets attributes.
const UNWANTED = "script, link, meta, base, iframe, frame, object, embed, portal, template, fencedframe, set, animate";
const HTML_POLICY = "default-src 'none'; img-src data:; media-src data:; font-src data:; style-src 'unsafe-inline'";
const HTML_FRAME = `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${HTML_POLICY}">`;

// HTML of an object: without scripts, and without what could show another machine that it is read.
async function showHtml(view, section) {
  section.ariaLabel = "HTML";
  section.classList.add("html");
  const page = new DOMParser().parseFromString(await (await readBytes({ view })).text(), "text/html");
  const hasScripts = page.querySelector("script") !== null;
  page.querySelectorAll(UNWANTED).forEach((element) => element.remove());
  page.querySelectorAll("a, area, math, math *").forEach(unlink);
  if (!page.body.textContent.trim() && !page.body.querySelector("img, svg, table, progress, meter, video, audio, hr")) {
    const why = hasScripts ? "This HTML shows something by scripts, which do not run here." : "This HTML is empty.";
    section.append(make("p", { className: "bar note" }, why));
    return;
  }
  page.head.prepend(make("style", {}, "body { margin: 8px; font: 14px sans-serif; }"));
  const frame = makeFrame("HTML of the cell", "allow-same-origin", HTML_FRAME, null);
  const filled = new Promise((resolve) => {
    frame.onload = () => {
      // The elements themselves: their text could be parsed to others.
      const inside = frame.contentDocument;
      inside.documentElement.replaceWith(inside.adoptNode(page.documentElement));
      // Nothing runs in it: its height is read from here.
      new ResizeObserver(() => {
        frame.height = Math.min(Math.max(inside.documentElement?.offsetHeight ?? 150, 20), 600);
      }).observe(inside.documentElement);
      resolve();
    };
  });
  section.append(frame);
  await filled;
}

// Makes a link a text: browsers connect to the machine of a link as soon as somebody presses on it. In some browsers, every
// element of MathML can be one.
function unlink(link) {
  for (const { name, localName } of [...link.attributes]) {
    if (["href", "ping", "target"].includes(localName) && !link.getAttribute(name).startsWith("#")) {
      if (localName === "href" && !link.title) link.title = link.getAttribute(name);
      link.removeAttribute(name);
    }
  }
}

// Plots

const drawnPlots = new Set();

async function showPlot(view, section, kind) {
  section.ariaLabel = "Plot";
  const status = make("p", { className: "bar note", role: "status" }, "Drawing the plot …");
  const missing = make("p", { className: "bar note", hidden: true }, "Data or images that this plot loads from the network are not shown: views have no network.");
  section.append(status, missing);
  const bytes = await readBytes({ view });
  const spec = await bytes.text();
  const library = await readLibrary(kind === "plotly" ? "plotly" : "vega");
  let frame = null;
  const drawn = new Promise((resolve, reject) => {
    let isLoaded = false;
    const draw = () => frame.contentWindow?.postMessage({ draw: { kind, spec, isDark: isDark() } }, "*");
    frame = makeFrame("Plot", "allow-scripts", PLOTS, (message) => {
      if (message?.ready && !isLoaded) {
        isLoaded = true;
        frame.contentWindow.postMessage({ library }, "*");
        draw();
        drawnPlots.add(draw);
      }
      if (Number.isFinite(message?.height)) {
        frame.height = Math.min(Math.max(Math.ceil(message.height), 50), 1200);
        resolve();
      }
      if (message?.isBlocked) missing.hidden = false;
      if (typeof message?.error === "string") reject(new Error(`The plot cannot be drawn: ${message.error.slice(0, 1000)}`));
    });
    section.append(frame);
  });
  try {
    await drawn;
  } catch (error) {
    frame.remove();
    throw error;
  } finally {
    status.remove();
  }
}

// Tables

const TESTS = [
  ["containing", "contains"],
  ["=", "="],
  ["!=", "≠"],
  ["<", "<"],
  ["<=", "≤"],
  [">", ">"],
  [">=", "≥"],
  ["empty", "is missing"],
  ["filled", "is there"],
];
const ROWS = 50;

function count(number) {
  try {
    return number.toLocaleString(client.context.locale ?? "en");
  } catch {
    // Clients also send what is no language tag, such as `en_US`.
    return number.toLocaleString("en");
  }
}

async function showTable(view, section) {
  const asked = { from: 0, sort: null, filters: [] };
  const title = make("h2", { className: "title" });
  const note = make("span", { className: "note", role: "status" });
  const filters = make("div", { className: "bar filters" });
  const head = make("thead");
  const body = make("tbody");
  const caption = make("caption", { className: "away" });
  const table = make("table", {}, caption, head, body);
  const scroll = make("div", { className: "scroll", tabIndex: 0, role: "region" }, table);
  const trouble = make("p", { className: "trouble", role: "alert", hidden: true });
  const pages = [
    ["First", () => 0],
    ["Previous", () => Math.max(0, shown.from - ROWS)],
    // A page of long rows has fewer of them.
    ["Next", () => shown.from + shown.page.length],
    ["Last", (matching) => Math.floor((matching - 1) / ROWS) * ROWS],
  ].map(([name, to]) => ({ to, button: make("button", { type: "button", hidden: true }, name) }));
  const more = make("button", { type: "button", className: "push", hidden: true }, "Add a filter");
  const wide = wideButton();
  section.append(
    make("div", { className: "bar" }, title, note, ...wide),
    filters,
    make("div", { className: "bar" }, ...pages.map(({ button }) => button), more),
    trouble,
    scroll,
  );
  let shown = null;
  let newest = 0;

  async function load() {
    const number = ++newest;
    section.classList.add("busy");
    try {
      const what = { view, from: asked.from, rows: ROWS, filters: asked.filters };
      const page = await read(asked.sort ? { ...what, sort: asked.sort } : what);
      if (number !== newest) return;
      shown = page;
      trouble.hidden = true;
      draw();
    } catch (error) {
      if (number !== newest) return;
      trouble.textContent = error.message;
      trouble.hidden = false;
    } finally {
      if (number === newest) section.classList.remove("busy");
    }
  }

  function draw() {
    section.ariaLabel = shown.title;
    title.textContent = shown.title;
    caption.textContent = shown.title;
    scroll.ariaLabel = `Rows of ${shown.title}`;
    note.textContent = describe(shown);
    const columns = shown.columns.map((column, number) => headOf(column, number));
    const focused = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    head.replaceChildren(make("tr", {}, make("th", { scope: "col", className: "row" }, make("span", { className: "away" }, "Row")), ...columns));
    head.querySelectorAll("button")[focused]?.focus();
    body.replaceChildren(...shown.page.map((row) => rowOf(row)));
    scroll.scrollTop = 0;
    const { matching } = shown;
    for (const { to, button } of pages) {
      const from = to(matching);
      button.disabled = from < 0 || from >= matching || from === shown.from;
    }
    pages[0].button.disabled = shown.from === 0;
    if (!filters.childElementCount && shown.held > 1) addFilter();
    more.hidden = !filters.childElementCount;
    const isWhole = shown.from === 0 && shown.page.length === matching;
    pages.forEach(({ button }) => (button.hidden = shown.held <= ROWS && isWhole));
  }

  function headOf(column, number) {
    const isSorted = asked.sort?.column === number;
    const way = !isSorted ? "" : asked.sort.descending ? " ↓" : " ↑";
    const button = make("button", { type: "button" }, `${column.name}${way}`, make("small", {}, column.type));
    button.onclick = () => {
      if (!isSorted) asked.sort = { column: number, descending: false };
      else asked.sort = asked.sort.descending ? null : { column: number, descending: true };
      asked.from = 0;
      load();
    };
    const cell = make("th", { scope: "col" }, button);
    cell.ariaSort = !isSorted ? "none" : asked.sort.descending ? "descending" : "ascending";
    return cell;
  }

  function rowOf({ number, values }) {
    const cells = shown.columns.map(({ index }, at) => {
      const value = values[at] ?? null;
      const isNumber = typeof value === "number" || value?.number !== undefined;
      const kind = value === null ? "missing" : isNumber ? "number" : value.length > 40 ? "long" : "";
      const cell = make(index ? "th" : "td", { className: index ? `index ${kind}` : kind });
      if (index) cell.scope = "row";
      // A number that JavaScript does not have comes as a text.
      const text = value === null ? "" : String(value.number ?? value);
      cell.append(kind === "long" ? make("div", {}, text) : text);
      return cell;
    });
    return make("tr", {}, make("td", { className: "row" }, count(number)), ...cells);
  }

  function addFilter() {
    const options = [["", "any column"], ...shown.columns.map(({ name }, number) => [number, name])];
    const choice = (label, pairs) =>
      make("select", { ariaLabel: label }, ...pairs.map(([value, text]) => make("option", { value }, text)));
    const column = choice("Column", options);
    const is = choice("Condition", TESTS);
    const value = make("input", { ariaLabel: "Value", type: "search", placeholder: "filter" });
    filters.append(make("div", { className: "filter" }, column, is, value));
    let timer = null;
    const change = () => {
      clearTimeout(timer);
      timer = setTimeout(applyFilters, 200);
      value.hidden = ["empty", "filled"].includes(is.value);
    };
    [column, is].forEach((select) => (select.onchange = change));
    value.oninput = change;
  }

  function applyFilters() {
    asked.filters = [...filters.children].flatMap(({ children: [column, is, value] }) => {
      const isAlone = ["empty", "filled"].includes(is.value);
      if (!isAlone && value.value === "") return [];
      const filter = { is: is.value, value: isAlone ? "" : value.value };
      return [column.value === "" ? filter : { ...filter, column: Number(column.value) }];
    });
    asked.from = 0;
    load();
  }

  for (const { to, button } of pages) {
    button.onclick = () => {
      asked.from = to(shown.matching);
      load();
    };
  }
  more.onclick = addFilter;
  await load();
}

// Which rows are shown, and what of the table is not there.
function describe({ rows, held, matching, from, page, left_out: leftOut }) {
  const parts = [];
  const last = from + page.length;
  if (page.length === 0) parts.push(held === 0 ? "no rows" : "no row fits");
  else if (page.length < matching) parts.push(`${count(from + 1)}–${count(last)} of ${count(matching)}`);
  if (matching < held && page.length > 0) parts.push(`${count(matching)} of ${count(held)} rows fit`);
  if (held < rows) parts.push(`only the first ${count(held)} rows are here`);
  if (leftOut > 0) parts.push(`${count(leftOut)} further columns are not here`);
  return parts.join("; ");
}

// Shows the page on the whole screen, where the client can.
function wideButton() {
  if (!client.context.availableDisplayModes?.includes("fullscreen")) return [];
  const button = make("button", { type: "button", className: "push wide" });
  nameWideButton(button);
  button.onclick = async () => {
    const mode = client.context.displayMode === "fullscreen" ? "inline" : "fullscreen";
    try {
      const answer = await ask("ui/request-display-mode", { mode });
      adopt({ displayMode: answer.mode });
    } catch {
      // The client leaves the page as it is.
    }
  };
  return [button];
}

function nameWideButton(button) {
  button.textContent = client.context.displayMode === "fullscreen" ? "Back" : "Full screen";
}

// A view reads its data from the client: after a refusal there is nothing else to show.
begin().catch((error) => {
  const text = `This output cannot be shown: ${error.message}`;
  document.getElementById("views").append(make("p", { className: "view trouble", role: "alert" }, text));
});
