// The connection, cells and decisions; what waits is in waiting.js. Everything that comes from code or servers is set as text, never as HTML.
"use strict";

// How long another tab may take to share the key.
const SHARE_MS = 250;
// How long the page waits before it connects again. Each time twice as long, up to the second one: ipybox may never come back.
const RETRY_MS = 1000;
const MOST_RETRY_MS = 30000;
// How much time there is between two looks at all calls that wait.
const REFRESH_MS = 50;
// How much of a cell's output is shown: its end.
const OUTPUT_CHARS = 200000;
// How many decisions and calls that are over are shown.
const MOST = 500;

const find = (id) => document.getElementById(id);
// In memory alone: no other port of this machine, and no file of the browser, has it.
let key = null;
// Ends the connection that events come by.
let hearing = null;
// Ends the time in which this tab is hidden.
let hiding = null;
const cells = new Map();
let browsers = 1;
let isConnected = false;
let isOver = false;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Not `disabled`: that would take the focus away.
function setDisabled(button, isDisabled) {
  const value = String(isDisabled);
  if (button.getAttribute("aria-disabled") !== value) button.setAttribute("aria-disabled", value);
}

function state(text) {
  if (find("state").textContent !== text) find("state").textContent = text;
}

// What the user wanted and did not get. It stays until the next try, whatever the connection does meanwhile.
function fail(text) {
  find("failure").textContent = text;
}

// The connection

async function post(path, body, signal) {
  return fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-ipybox-key": key || "" },
    body: JSON.stringify(body),
    signal,
  });
}

function enter(found) {
  key = found;
  find("enter").hidden = true;
  find("inside").hidden = false;
  disconnect();
  connect();
}

function lock() {
  key = null;
  if (hiding) hiding.abort();
  disconnect();
  find("inside").hidden = true;
  find("enter").hidden = false;
  state("Locked");
  find("code").focus();
}

find("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  const code = find("code").value;
  find("wrong").textContent = "";
  try {
    const answer = await post("/enter", { code });
    if (answer.ok) {
      find("code").value = "";
      enter((await answer.json()).key);
      find("waiting-title").focus();
      return;
    }
    find("wrong").textContent = await answer.text();
  } catch {
    find("wrong").textContent = "ipybox does not answer.";
  }
  find("code").select();
});

// Browsers connect to a host six times at most, for all tabs together. So one of the hidden tabs is connected, and shows by
// its title that calls wait; each of the others waits to be shown, or to be that one.
async function connect() {
  if (hiding) hiding.abort();
  if (!key || isOver) return;
  if (!document.hidden || !navigator.locks) {
    if (!hearing) listen();
    return;
  }
  const { signal } = (hiding = new AbortController());
  const stay = async (turn) => {
    if (!turn || signal.aborted) return false;
    if (!hearing) listen();
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    return true;
  };
  if ((await navigator.locks.request("hidden tab", { ifAvailable: true }, stay)) || signal.aborted) return;
  disconnect();
  // It is aborted once the tab is shown.
  navigator.locks.request("hidden tab", { signal }, stay).catch(() => {});
}

function disconnect() {
  if (hearing) hearing.abort();
  hearing = null;
  refreshSoon();
}

document.addEventListener("visibilitychange", connect);

async function listen() {
  if (hearing) hearing.abort();
  const { signal } = (hearing = new AbortController());
  let pause = RETRY_MS;
  while (!signal.aborted && !isOver) {
    isConnected = false;
    try {
      await hear(signal);
    } catch {
      // It is tried again.
    }
    if (signal.aborted || isOver) return;
    if (isConnected) pause = RETRY_MS;
    isConnected = false;
    state("The connection is lost. Trying again");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, MOST_RETRY_MS);
  }
}

// Takes events until the connection ends. It ends in any case: ipybox counts connections as tabs.
async function hear(signal) {
  const answer = await post("/events", {}, signal);
  if (answer.status === 401) return lock();
  if (!answer.ok) throw new Error(answer.statusText);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (text + value).split("\n");
      text = lines.pop();
      for (const line of lines) take(JSON.parse(line));
    }
  } finally {
    // If it has failed, there is nothing to cancel.
    reader.cancel().catch(() => {});
  }
}

const TAKERS = {
  all(event) {
    isConnected = true;
    isOver = event.over;
    browsers = event.browsers;
    showAll(event);
  },
  question: (event) => showQuestion(event.question),
  decided(event) {
    decide(event.id, event.decision.how);
    showDecision(event.decision);
  },
  history: (event) => showDecisions(event.decisions),
  grants: (event) => showGrants(event.grants),
  began: (event) => showCell(event.cell),
  text: (event) => addOutput(event.cell, event.text),
  left_out: (event) => leaveOut(event.cell, event.bytes),
  ended: (event) => endCell(event.cell, event.end),
  browsers(event) {
    browsers = event.count;
  },
  over() {
    isOver = true;
    for (const row of waiting) decide(row.id, "the session has ended");
    showGrants([]);
    cells.forEach(cutOff);
  },
};

function take(event) {
  const taker = TAKERS[event.event];
  if (taker) taker(event);
  refreshSoon();
}

// Brings up to date what is said of all calls: at once, unless that has just been done.
let refreshing = null;
let isStale = false;
function refreshSoon() {
  isStale = true;
  if (refreshing === null) refreshIfStale();
}

function refreshIfStale() {
  refreshing = null;
  if (!isStale) return;
  isStale = false;
  refresh();
  refreshing = setTimeout(refreshIfStale, REFRESH_MS);
}

function showAll(event) {
  const open = new Set(event.questions.map((question) => question.row.id));
  for (const row of waiting) if (!open.has(row.id)) decide(row.id, "decided meanwhile");
  for (const question of event.questions) if (!rows.has(question.row.id)) showQuestion(question);
  showDecisions(event.decisions);
  showGrants(event.grants);
  find("cells").textContent = "";
  cells.clear();
  for (const cell of event.cells) showCell(cell);
  if (isOver) cells.forEach(cutOff);
}

// Cells

function showCell(shown) {
  if (cells.has(shown.cell)) return;
  find("no-cells").hidden = true;
  const element = make("article", "card cell");
  const title = make("h3", "", `${{ agent: "Agent", you: "You", another: "A user at a prompt" }[shown.by]} [${shown.number}]`);
  const how = make("span", "", "runs");
  title.append(how);
  const code = make("pre", "", shown.code);
  code.tabIndex = 0;
  code.setAttribute("aria-label", "Code");
  const note = make("p", "quiet");
  note.hidden = true;
  const output = make("pre", "output");
  output.tabIndex = 0;
  output.setAttribute("aria-label", "Output");
  output.hidden = true;
  element.append(title, code, note, output);
  find("cells").prepend(element);
  const cell = { id: shown.cell, element, how, note, output, text: "", leftOut: 0, isDrawing: false };
  cells.set(cell.id, cell);
  if (shown.left_out) leaveOut(cell.id, shown.left_out);
  if (shown.output) addOutput(cell.id, shown.output);
  if (shown.end) endCell(cell.id, shown.end);
  while (cells.size > 8) {
    const oldest = [...cells.values()].find((each) => each.isOver) || [...cells.values()][0];
    oldest.element.remove();
    cells.delete(oldest.id);
  }
}

function addOutput(id, text) {
  const cell = cells.get(id);
  if (!cell) return;
  // A line that begins anew replaces what it was.
  const begun = cell.text.lastIndexOf("\n") + 1;
  const lines = (cell.text.slice(begun) + text).replace(/\r\n/g, "\n").split("\n");
  const joined = cell.text.slice(0, begun) + lines.map(overwritten).join("\n");
  cell.text = joined.slice(-OUTPUT_CHARS);
  const cut = joined.slice(0, joined.length - cell.text.length);
  if (cut) leaveOut(id, new TextEncoder().encode(cut).length);
  if (cell.isDrawing) return;
  cell.isDrawing = true;
  setTimeout(() => {
    cell.isDrawing = false;
    const { output } = cell;
    output.hidden = !cell.text;
    const isAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    output.textContent = cell.text;
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }, 50);
}

// A line as it is after its last `\r`; one at its end may belong to a line break that is still to come.
function overwritten(line) {
  const end = line.endsWith("\r") ? line.length - 1 : line.length;
  return line.slice(line.lastIndexOf("\r", end - 1) + 1);
}

function leaveOut(id, count) {
  const cell = cells.get(id);
  if (!cell) return;
  cell.leftOut += count;
  cell.note.hidden = false;
  cell.note.textContent = `The beginning is left out: ${cell.leftOut} bytes.`;
}

function endCell(id, end) {
  const cell = cells.get(id);
  if (!cell || cell.isOver) return;
  cell.isOver = true;
  cell.how.textContent = end.error ? "ended with an exception" : "ended";
  end.images.forEach((path, index) => showImage(cell, path, index));
  end.files.forEach((path) => cell.element.append(make("p", "quiet", `A shown file is in ${path}`)));
  for (const text of [end.error, end.words]) {
    if (text) cell.element.append(Object.assign(make("pre", "error", text), { tabIndex: 0 }));
  }
  if (end.file) cell.element.append(make("p", "quiet", `All output is in ${end.file}`));
}

// The session has ended: nothing runs.
function cutOff(cell) {
  if (!cell.isOver) cell.how.textContent = "the session has ended";
}

async function showImage(cell, path, index) {
  const place = make("p", "quiet", path);
  cell.element.append(place);
  try {
    const reply = await post("/image", { cell: cell.id, image: index });
    if (!reply.ok) return;
    const image = make("img");
    image.alt = path;
    image.onload = () => URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(await reply.blob());
    place.before(image);
  } catch {
    // Its path is shown.
  }
}

// Decisions

function showDecisions(decisions) {
  find("decisions").textContent = "";
  for (const decision of decisions) showDecision(decision);
}

function showDecision(decision) {
  find("no-decisions").hidden = true;
  const item = make("li");
  const at = new Date(decision.at);
  const time = make("time", "", Number.isNaN(at.getTime()) ? decision.at : at.toLocaleTimeString());
  time.title = decision.at;
  item.append(time, make("span", "what", decision.call), make("span", "", decision.how));
  find("decisions").prepend(item);
  while (find("decisions").children.length > MOST) find("decisions").lastChild.remove();
}

// Grants

function showGrants(grants) {
  const focused = document.activeElement && document.activeElement.dataset.grant;
  find("granted").hidden = !grants.length;
  const items = grants.map((grant) => {
    const item = make("li");
    const revoke = make("button", "deny", "Revoke");
    revoke.type = "button";
    revoke.dataset.grant = String(grant.id);
    revoke.setAttribute("aria-label", `Revoke grant ${grant.id}: ${grant.covers}`);
    revoke.addEventListener("click", () => revokeGrant(grant.id));
    const left = `${grant.left} left, ${grant.of_cell ? "in this cell" : "in this session"}`;
    item.append(make("span", "left", left), make("span", "what", grant.covers), revoke);
    return item;
  });
  find("grants").replaceChildren(...items);
  const again = focused && find("grants").querySelector(`[data-grant="${focused}"]`);
  if (again) again.focus();
  else if (focused) find("waiting-title").focus();
}

async function revokeGrant(grant) {
  fail("");
  try {
    const reply = await post("/revoke", { grant });
    if (reply.status === 401) return lock();
    if (!reply.ok) throw new Error(await reply.text());
  } catch (error) {
    fail(`The grant was not revoked: ${error.message}`);
  }
}

// The beginning: once both scripts are there, since the key of another tab brings events at once.

document.addEventListener("DOMContentLoaded", () => {
  state("Locked");
  const tabs = "BroadcastChannel" in window ? new BroadcastChannel("ipybox") : null;
  if (tabs) {
    tabs.onmessage = ({ data }) => {
      if (data && data.ask === true && key) tabs.postMessage({ key });
      if (data && typeof data.key === "string" && !key) enter(data.key);
    };
    tabs.postMessage({ ask: true });
  }
  setTimeout(() => {
    if (!key) lock();
  }, tabs ? SHARE_MS : 0);
});
