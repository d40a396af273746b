// The shown content comes from code that nobody trusts: it becomes text of elements, or goes into frames that have neither a
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

// Elements that run, open other pages, or connect to a machine by being there or being pointed at. What a template has comes to
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

// Shows the page on the whole screen, where the client can.
function wideButton() {
  if (!client.context.availableDisplayModes?.includes("fullscreen")) return [];
  const button = make("button", { type: "button", className: "wide" });
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
  const name = client.context.displayMode === "fullscreen" ? "Back" : "Full screen";
  button.textContent = client.context.displayMode === "fullscreen" ? "⤡" : "⤢";
  button.title = name;
  button.ariaLabel = name;
}

// A view reads its data from the client: after a refusal there is nothing else to show.
begin().catch((error) => {
  const text = `This output cannot be shown: ${error.message}`;
  document.getElementById("views").append(make("p", { className: "view trouble", role: "alert" }, text));
});
