// The page on which calls are decided. Everything that comes from code or servers is set as text, never as HTML.
"use strict";

// How long a call that has just appeared cannot be answered: a click that was meant for something else finds nothing.
const GUARD_MS = 700;
// How long another tab may take to share the key.
const SHARE_MS = 250;
// How much of a cell's output is shown: its end.
const OUTPUT_CHARS = 200000;
// How many decisions and calls that are over are shown.
const MOST = 500;

const ANSWERS = [
  ["once", "Once", "allow", "Allow once"],
  ["session", "Session", "", "Allow for this session"],
  ["always", "Always", "", "Always allow"],
  ["no", "Deny", "deny", "Deny"],
];
const KEYS = { a: "once", s: "session", d: "no" };

const find = (id) => document.getElementById(id);
// In memory alone: no other port of this machine, and no file of the browser, has it.
let key = null;
const rows = new Map();
const groups = new Map();
const cells = new Map();
let current = null;
let browsers = 1;
let isOver = false;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function state(text) {
  if (find("state").textContent !== text) find("state").textContent = text;
}

// The connection

async function post(path, body) {
  return fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-ipybox-key": key || "" },
    body: JSON.stringify(body),
  });
}

const tabs = "BroadcastChannel" in window ? new BroadcastChannel("ipybox") : null;
if (tabs) {
  tabs.onmessage = ({ data }) => {
    if (data && data.ask === true && key) tabs.postMessage({ key });
    if (data && typeof data.key === "string" && !key) enter(data.key);
  };
}

function enter(found) {
  key = found;
  find("enter").hidden = true;
  find("inside").hidden = false;
  listen();
}

function lock() {
  key = null;
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

async function listen() {
  while (key && !isOver) {
    try {
      const answer = await post("/events", {});
      if (answer.status === 401) return lock();
      if (!answer.ok) throw new Error(answer.statusText);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const line of lines) take(JSON.parse(line));
      }
    } catch {
      // It is tried again.
    }
    if (isOver) return;
    state("The connection is lost. Trying again");
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

const TAKERS = {
  all(event) {
    isOver = event.over;
    showAll(event);
  },
  question: (event) => showQuestion(event.question),
  decided(event) {
    decide(event.id, event.decision.how);
    showDecision(event.decision);
  },
  history: (event) => showDecisions(event.decisions),
  began: (event) => showCell(event.cell),
  text: (event) => addOutput(event.cell, event.text),
  left_out: (event) => leaveOut(event.cell, event.bytes),
  ended: (event) => endCell(event.cell, event.end),
  browsers(event) {
    browsers = event.count;
  },
  over() {
    isOver = true;
    for (const row of rows.values()) if (row.isOpen) decide(row.id, "the session has ended");
  },
};

function take(event) {
  const taker = TAKERS[event.event];
  if (taker) taker(event);
  refresh();
}

function showAll(event) {
  const open = new Set(event.questions.map((question) => question.row.id));
  for (const row of rows.values()) if (row.isOpen && !open.has(row.id)) decide(row.id, "decided meanwhile");
  for (const question of event.questions) if (!rows.has(question.row.id)) showQuestion(question);
  showDecisions(event.decisions);
  find("cells").textContent = "";
  cells.clear();
  for (const cell of event.cells) showCell(cell);
}

// What waits

function showQuestion({ row: call, left_ms: left }) {
  if (rows.has(call.id)) return;
  // Calls that are over stay where they are while others wait, so that nothing moves.
  if (![...rows.values()].some((row) => row.isOpen)) clear();
  const group = groupOf(call);
  const row = {
    id: call.id,
    call,
    group,
    isOpen: true,
    canAnswer: call.scope !== null,
    isChosen: false,
    readyAt: performance.now() + GUARD_MS,
    until: left === null ? null : performance.now() + left,
    element: make("tr", "row"),
  };
  rows.set(row.id, row);
  group.rows.push(row);
  group.body.append(row.element);
  row.element.addEventListener("focusin", () => setCurrent(row));
  row.element.addEventListener("keydown", (event) => onKey(event, row));
  layOut(group, row);
  if (!current || !current.isOpen) setCurrent(row);
  setTimeout(refresh, GUARD_MS);
  announce();
}

function clear() {
  const hadFocus = find("groups").contains(document.activeElement);
  rows.clear();
  groups.clear();
  current = null;
  find("groups").textContent = "";
  if (hadFocus) find("waiting-title").focus();
}

// Calls of one tool make a table. What differs among them has columns.
function groupOf(call) {
  const name = JSON.stringify([call.server, call.tool, call.behind, call.changes, call.kind, call.hints]);
  const known = groups.get(name);
  if (known) return known;
  const element = make("section", "card group");
  const about = make("div", "about");
  const title = make("h3", "", `${call.server}.${call.tool}`);
  title.id = `group-${call.id}`;
  element.setAttribute("aria-labelledby", title.id);
  const behind = make("p", "behind", `By ${call.behind}`);
  if (call.behind.length > 200) behind.tabIndex = 0;
  about.append(title, make("p", "", call.kind), behind);
  if (call.hints.length) {
    about.append(make("p", "hints", `The server says that it ${call.hints.join(", ")}. Nothing enforces that.`));
  }
  if (call.changes) {
    const changes = make("div", "changes");
    changes.append(make("p", "", "Since you allowed this tool, its server has changed it:"));
    const text = make("pre", "", call.changes);
    text.tabIndex = 0;
    changes.append(text);
    about.append(changes);
  }
  const same = make("p", "same");
  about.append(same);
  const table = make("table");
  const head = make("thead");
  const body = make("tbody");
  table.append(head, body);
  table.setAttribute("aria-labelledby", title.id);
  element.append(about, table);
  find("groups").append(element);
  const group = { name, element, same, head, body, rows: [], columns: null };
  groups.set(name, group);
  return group;
}

const valueOf = (call, name) => call.arguments.find((argument) => argument.name === name);
const shownValue = (argument) =>
  argument === undefined ? "" : argument.value + (argument.chars === null ? "" : ` … ${argument.chars} characters`);

// The arguments that are not the same in all calls of a group; those that are. What is cut may differ further on.
function columnsOf(group) {
  const names = [...new Set(group.rows.flatMap((row) => row.call.arguments.map((argument) => argument.name)))];
  const isSame = (name) => {
    const first = valueOf(group.rows[0].call, name);
    return group.rows.every((row) => {
      const argument = valueOf(row.call, name);
      return argument && first && argument.value === first.value && argument.chars === null && first.chars === null;
    });
  };
  const same = group.rows.length > 1 ? names.filter(isSame) : [];
  return { same, differing: names.filter((name) => !same.includes(name)) };
}

function layOut(group, added) {
  const { same, differing } = columnsOf(group);
  const columns = JSON.stringify([same, differing]);
  if (columns === group.columns) return fill(added, differing);
  group.columns = columns;
  const line = make("tr");
  line.append(make("th", "narrow"));
  for (const name of differing) line.append(make("th", "", name));
  if (!differing.length) line.append(make("th", "", group.rows.length > 1 ? "" : "no arguments"));
  const act = make("th", "act");
  act.append(make("span", "unseen", "Answer"));
  line.append(make("th", "left", "Time left"), act);
  group.head.replaceChildren(line);
  const call = group.rows[0].call;
  group.same.textContent = same.length
    ? `In all of them: ${same.map((name) => `${name}=${shownValue(valueOf(call, name))}`).join(", ")}`
    : "";
  for (const row of group.rows) fill(row, differing);
}

// Sets the cells of a row, and keeps its buttons, which may have the focus.
function fill(row, differing) {
  const { element, call } = row;
  if (!row.pick) {
    row.pick = make("td", "pick");
    row.box = make("input");
    row.box.type = "checkbox";
    row.box.tabIndex = -1;
    row.box.setAttribute("aria-label", `Choose ${label(row)}`);
    row.box.hidden = !row.canAnswer;
    row.box.addEventListener("change", () => choose(row, row.box.checked));
    row.pick.append(row.box);
    row.left = make("td", "left");
    row.act = make("td", "act");
    row.act.append(buttons(row));
    element.append(row.pick, row.left, row.act);
    element.tabIndex = -1;
    element.setAttribute("aria-label", label(row));
  }
  for (const cell of element.querySelectorAll("td.value")) cell.remove();
  const names = differing.length ? differing : [null];
  for (const name of names) {
    const argument = name === null ? undefined : valueOf(call, name);
    const cell = make("td", "value", shownValue(argument));
    if (name !== null) cell.dataset.name = name;
    if (argument) cell.title = "Enter shows all of it";
    row.left.before(cell);
  }
  if (row.full) row.full.firstChild.colSpan = names.length + 3;
}

function label(row) {
  const shown = row.call.arguments.map((argument) => `${argument.name}=${shownValue(argument)}`);
  return `${row.call.server}.${row.call.tool}(${shown.join(", ")})`;
}

function buttons(row) {
  const all = make("span", "answers");
  const more = make("button", "", "Details");
  more.type = "button";
  more.tabIndex = -1;
  more.setAttribute("aria-label", `All arguments of ${label(row)}`);
  more.setAttribute("aria-expanded", "false");
  more.addEventListener("click", () => toggle(row));
  row.more = more;
  if (!row.canAnswer) {
    all.append(make("span", "quiet", "asked in the client"), more);
    return all;
  }
  all.append(more);
  for (const [answer, text, kind, words] of ANSWERS) {
    const button = make("button", kind, text);
    button.type = "button";
    button.tabIndex = -1;
    button.dataset.answer = answer;
    button.setAttribute("aria-label", `${words}: ${label(row)}`);
    button.addEventListener("click", () => give([row], answer));
    all.append(button);
  }
  return all;
}

const isReady = (row) => row.isOpen && row.canAnswer && !row.isSent && performance.now() >= row.readyAt;

async function give(given, answer) {
  const answered = given.filter(isReady);
  if (!answered.length) return;
  for (const row of answered) row.isSent = true;
  refresh();
  let failure = null;
  try {
    const reply = await post("/answer", { questions: answered.map((row) => row.id), answer });
    if (reply.status === 401) return lock();
    if (!reply.ok) throw new Error(await reply.text());
    for (const id of (await reply.json()).over) decide(id, "was over before the answer came");
  } catch (error) {
    failure = error;
    for (const row of answered) row.isSent = false;
  }
  refresh();
  if (failure) state(`The answer did not reach ipybox: ${failure.message}`);
}

function decide(id, how) {
  const row = rows.get(id);
  if (!row || !row.isOpen) return;
  row.isOpen = false;
  row.isChosen = false;
  row.box.checked = false;
  row.left.textContent = "";
  const hadFocus = row.element.contains(document.activeElement);
  row.element.classList.add("over");
  row.element.classList.remove("chosen");
  if (hadFocus) row.element.focus();
  row.act.replaceChildren(make("span", "", how));
  if (rows.size > MOST) forget();
}

// Drops the oldest calls that are over.
function forget() {
  for (const row of rows.values()) {
    if (row.isOpen || row === current) continue;
    rows.delete(row.id);
    row.element.remove();
    if (row.full) row.full.remove();
    row.group.rows = row.group.rows.filter((other) => other !== row);
    if (!row.group.rows.length) {
      row.group.element.remove();
      groups.delete(row.group.name);
    }
    return;
  }
}

function choose(row, isChosen) {
  if (!row.isOpen || !row.canAnswer) return;
  row.isChosen = isChosen;
  row.box.checked = isChosen;
  row.element.classList.toggle("chosen", isChosen);
  refresh();
}

// What the buttons for several calls are about: the chosen ones, or all that can be answered.
function targets() {
  const ready = [...rows.values()].filter(isReady);
  const chosen = ready.filter((row) => row.isChosen);
  return chosen.length ? chosen : ready;
}

async function toggle(row) {
  if (row.full) {
    row.full.remove();
    row.full = null;
    row.more.setAttribute("aria-expanded", "false");
    return;
  }
  const columns = row.element.children.length;
  row.full = make("tr", "full");
  const cell = make("td");
  cell.colSpan = columns;
  cell.append(make("p", "quiet", "Reading"));
  row.full.append(cell);
  row.element.after(row.full);
  row.more.setAttribute("aria-expanded", "true");
  const parts = [];
  try {
    const reply = await post("/call", { question: row.id });
    if (!reply.ok) throw new Error(await reply.text());
    const { arguments: all } = await reply.json();
    if (!all.length) parts.push(make("p", "quiet", "It has no arguments."));
    for (const argument of all) {
      const text = make("pre", "", argument.value);
      text.tabIndex = 0;
      text.setAttribute("aria-label", argument.name);
      parts.push(make("h4", "", argument.name), text);
      if (argument.left_out) parts.push(make("p", "wrong", `${argument.left_out} more characters are not shown here.`));
    }
  } catch (error) {
    parts.push(make("p", "wrong", error.message));
  }
  if (row.call.provenance) parts.push(make("p", "", row.call.provenance));
  if (row.call.scope) parts.push(make("p", "quiet", row.call.scope));
  cell.replaceChildren(...parts);
}

// The keyboard

function setCurrent(row) {
  if (current === row) return;
  for (const [each, index] of [[current, -1], [row, 0]]) {
    if (!each) continue;
    each.element.tabIndex = index;
    for (const part of each.element.querySelectorAll("button, input")) part.tabIndex = index;
  }
  current = row;
}

function onKey(event, row) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat && event.key in KEYS) return;
  const isOnRow = event.target === row.element;
  if (event.key === "j" || event.key === "ArrowDown") move(row, 1);
  else if (event.key === "k" || event.key === "ArrowUp") move(row, -1);
  else if (event.key === "x" || (event.key === " " && isOnRow)) choose(row, !row.isChosen);
  else if (event.key === "Enter" && isOnRow) toggle(row);
  else if (event.key in KEYS) give([row], KEYS[event.key]);
  else return;
  event.preventDefault();
}

function move(row, by) {
  const all = [...document.querySelectorAll("tr.row")];
  const next = all[all.indexOf(row.element) + by];
  if (next) next.focus();
}

document.addEventListener("keydown", (event) => {
  const isFree = document.activeElement === document.body || document.activeElement === find("waiting-title");
  if (isFree && current && (event.key === "j" || event.key === "ArrowDown")) {
    current.element.focus();
    event.preventDefault();
  }
});

for (const button of document.querySelectorAll("#bulk button")) {
  button.addEventListener("click", () => give(targets(), button.dataset.answer));
}

find("choose-all").addEventListener("change", (event) => {
  for (const row of rows.values()) choose(row, event.target.checked);
});

// What is said of all of them

function refresh() {
  const open = [...rows.values()].filter((row) => row.isOpen);
  const here = open.filter((row) => row.canAnswer);
  const title = open.length === 0 ? "Nothing waits" : open.length === 1 ? "A call waits" : `${open.length} calls wait`;
  if (find("waiting-title").textContent !== title) find("waiting-title").textContent = title;
  document.title = open.length ? `(${open.length}) ipybox` : "ipybox";
  find("bulk").hidden = here.length < 2 && !rows.size;
  find("keys").hidden = !rows.size;
  const about = targets();
  const isChosen = about.some((row) => row.isChosen);
  find("target").textContent = isChosen ? `${about.length} chosen` : `All ${about.length} that wait`;
  for (const button of document.querySelectorAll("#bulk button")) setDisabled(button, !about.length);
  find("choose-all").checked = here.length > 0 && here.every((row) => row.isChosen);
  for (const row of open) {
    const isDisabled = !isReady(row);
    for (const button of row.act.querySelectorAll("button[data-answer]")) setDisabled(button, isDisabled);
  }
  if (isOver) state("The session has ended");
  else if (key) state(browsers > 1 ? `Connected, in ${browsers} browser tabs` : "Connected");
}

// Not `disabled`: that would take the focus away.
function setDisabled(button, isDisabled) {
  const value = String(isDisabled);
  if (button.getAttribute("aria-disabled") !== value) button.setAttribute("aria-disabled", value);
}

function tick() {
  for (const row of rows.values()) {
    if (!row.isOpen) continue;
    let text = "";
    if (row.until !== null) {
      const seconds = Math.max(0, Math.ceil((row.until - performance.now()) / 1000));
      text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    }
    if (row.left.textContent !== text) row.left.textContent = text;
  }
}
setInterval(tick, 500);

let announcing = null;
function announce() {
  if (announcing !== null) return;
  announcing = setTimeout(() => {
    announcing = null;
    const open = [...rows.values()].filter((row) => row.isOpen);
    if (open.length) find("live").textContent = open.length === 1 ? `A call waits: ${label(open[0])}` : `${open.length} calls wait`;
    tick();
  }, 300);
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
  const joined = (cell.text + text).replace(/\r\n/g, "\n").replace(/[^\n\r]*\r(?!$|\n)/g, "");
  cell.text = joined.slice(-OUTPUT_CHARS);
  if (cell.text.length < joined.length) leaveOut(id, joined.length - cell.text.length);
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
  for (const text of [end.error, end.words]) {
    if (text) cell.element.append(Object.assign(make("pre", "error", text), { tabIndex: 0 }));
  }
  if (end.file) cell.element.append(make("p", "quiet", `All output is in ${end.file}`));
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

// The beginning

state("Locked");
if (tabs) tabs.postMessage({ ask: true });
setTimeout(() => {
  if (!key) lock();
}, tabs ? SHARE_MS : 0);
