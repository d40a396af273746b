// The connection and its events. What waits is in waiting.js, row.js and changes.js; cells, decisions and grants are in activity.js.
"use strict";

// The longest wait for another tab to share the key.
const SHARE_MS = 250;
// The time that the page waits before it connects again. Each time twice as long, up to the second one: ipybox may never come back.
const RETRY_MS = 1000;
const MOST_RETRY_MS = 30000;
// The time between two looks at all calls that wait.
const REFRESH_MS = 50;

const find = (id) => document.getElementById(id);
// In memory alone: no other port of this machine, and no file of the browser, has it.
let key = null;
// Where people have logged in elsewhere, a cookie is enough.
const hosted = "login" in document.body.dataset;
// Ends the connection that events come by.
let hearing = null;
// Ends the time in which this tab is hidden.
let hiding = null;
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

// An action of the user that failed. The text stays until the next try, whatever the connection does meanwhile.
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
  find("leave").hidden = !hosted;
  disconnect();
  connect();
}

function lock() {
  key = null;
  if (hiding) hiding.abort();
  disconnect();
  find("inside").hidden = true;
  find("leave").hidden = true;
  find("enter").hidden = false;
  state("Locked");
  find("code").focus();
}

find("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  const code = find("code").value;
  find("wrong").textContent = "";
  try {
    const answer = await post("enter", { code });
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
  const answer = await post("events", {}, signal);
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
    showAbout(event.about);
    showAll(event);
  },
  question: (event) => showQuestion(event.question),
  decided(event) {
    decide(event.id, event.decision.how);
    showDecision(event.decision);
  },
  history: (event) => showDecisions(event.decisions),
  ruled: (event) => showDecision(event.decision),
  about: (event) => showAbout(event.about),
  grants: (event) => showGrants(event.grants),
  began: (event) => showCell(event.cell),
  text: (event) => addOutput(event.cell, event.text),
  left_out: (event) => leaveOut(event.cell, event.bytes),
  changes: (event) => showChanges(event.changes),
  ended(event) {
    endCell(event.cell, event.end);
    askForChanges();
  },
  browsers(event) {
    browsers = event.count;
  },
  over() {
    isOver = true;
    for (const row of waiting) decide(row.id, "the session has ended");
    showGrants([]);
    showChanges({ revision: null, note: null, copies: [] });
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
  showChanges(event.changes);
  askForChanges();
  showCells(event.cells);
  if (isOver) cells.forEach(cutOff);
}

// The session that these calls are of: in the header, and its directory in the title of the tab.
let project = "";
function showAbout({ workspace, client, session }) {
  project = workspace.split("/").filter(Boolean).pop() ?? "";
  const place = make("span");
  if (workspace) place.append(make("b", "", project), ` ${workspace}`);
  const parts = [place];
  if (client) parts.push(make("span", "", client));
  if (session) parts.push(make("span", "", `session ${session}`));
  find("about").replaceChildren(...parts.filter((part) => part.textContent));
}

// The beginning: once all scripts are there, since the key of another tab brings events at once.

// On a page of many people each enters with a token.
function askForToken() {
  find("enter-title").textContent = "Log in";
  find("enter-about").textContent = "Calls that wait for your decision are shown here.";
  find("code-label").textContent = "Token";
  find("code").removeAttribute("maxlength");
  find("code").type = "password";
  find("run").hidden = true;
  if (document.body.dataset.login !== "provider") return;
  const link = make("a", "", "Log in at the identity provider");
  link.href = "login";
  const line = make("p");
  line.append(link);
  find("wrong").before(line);
}

find("leave").addEventListener("click", async () => {
  try {
    await post("leave", {});
  } catch {
    fail("ipybox does not answer, so the login goes on.");
    return;
  }
  location.reload();
});

document.addEventListener("DOMContentLoaded", () => {
  state("Locked");
  if (hosted) {
    askForToken();
    // Without a login, the first answer says so.
    return enter("hosted");
  }
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
