// The calls that wait, and their answers. Everything that comes from code or servers is set as text, never as HTML.
"use strict";

// How long a call that has just appeared or moved cannot be answered: a click that was meant for something else finds nothing.
const GUARD_MS = 700;

const ANSWERS = [
  ["once", "Once", "allow", "Allow once"],
  ["grant", "Grant", "", "Give the grant that is proposed"],
  ["session", "Session", "", "Allow for this session"],
  ["always", "Always", "", "Always allow"],
  ["no", "Deny", "deny", "Deny"],
];
const KEYS = { a: "once", g: "grant", s: "session", d: "no" };

// Thousands may come at once: a new one must not look at all others.
const rows = new Map();
const waiting = new Set();
const groups = new Map();
let current = null;
// The buttons for the chosen calls. Each says what it would do to how many of them.
const bulk = [...document.querySelectorAll("#bulk button")];
for (const button of bulk) button.dataset.words = button.textContent;

function showQuestion({ row: call, left_ms: left }) {
  if (rows.has(call.id)) return;
  // Calls that are over stay where they are while others wait, so that nothing moves.
  if (!waiting.size) clear();
  const group = groupOf(call);
  const row = {
    id: call.id,
    call,
    group,
    isOpen: true,
    canAnswer: call.scope !== null,
    isChosen: false,
    guard: null,
    shift: 0,
    buttons: [],
    until: left === null ? null : performance.now() + left,
    element: make("tr", "row"),
  };
  rows.set(row.id, row);
  waiting.add(row);
  group.rows.add(row);
  group.body.append(row.element);
  row.element.addEventListener("focusin", () => setCurrent(row));
  row.element.addEventListener("keydown", (event) => onKey(event, row));
  if (call.grant) group.head.parentElement.classList.add("grants");
  const isAnew = layOut(group, row);
  if (!current || !current.isOpen) setCurrent(row);
  guard(row);
  // Those below move down; a table that is laid out anew moves its own.
  tablesFrom(group).slice(isAnew ? 0 : 1).forEach(guard);
  announce();
}

function tablesFrom(group) {
  const tables = [...groups.values()];
  return tables.slice(tables.indexOf(group));
}

// Of a row or a table. Not by comparing times: some browsers round the time for pages.
function guard(guarded) {
  guarded.shift = shifts += 1;
  if (guarded.guard === null) {
    const buttons = guarded.buttons ?? [...guarded.rows].flatMap((row) => row.buttons);
    for (const button of buttons) setDisabled(button, true);
  }
  clearTimeout(guarded.guard);
  guarded.guard = setTimeout(() => {
    guarded.guard = null;
    refreshSoon();
  }, GUARD_MS);
}

function clear() {
  const hadFocus = find("groups").contains(document.activeElement);
  rows.clear();
  groups.clear();
  current = null;
  find("groups").textContent = "";
  fail("");
  if (hadFocus) find("waiting-title").focus();
}

// Calls of one tool make a table. What differs among them has columns.
function groupOf(call) {
  const name = JSON.stringify([call.server, call.tool, call.behind, call.changes, call.kind, call.hints, call.batch]);
  const known = groups.get(name);
  if (known) return known;
  const element = make("section", "card group");
  const about = make("div", "about");
  const title = make("h3", "", `${call.server}.${call.tool}`);
  title.id = `group-${call.id}`;
  element.setAttribute("aria-labelledby", title.id);
  const behind = make("p", "behind", `By ${call.behind}`);
  if (call.behind.length > 200) behind.tabIndex = 0;
  about.append(title, make("p", "", call.kind));
  if (call.batch) about.append(make("p", "", `The code says what it is for: ${call.batch}`));
  about.append(behind);
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
  const label = call.labels.length ? labelField(call.labels) : null;
  if (label) about.append(label.element);
  const same = make("p", "same");
  const from = make("p", "from");
  about.append(same, from);
  const table = make("table");
  const head = make("thead");
  const body = make("tbody");
  table.append(head, body);
  table.setAttribute("aria-labelledby", title.id);
  element.append(about, table);
  find("groups").append(element);
  const parts = { element, same, head, body, label, from };
  const group = { ...parts, name, first: call, names: new Map(), isSameFrom: true, rows: new Set(), columns: null, guard: null, shift: 0 };
  groups.set(name, group);
  return group;
}

// What the data of servers is that are registered: part of the next answer.
function labelField(labels) {
  const element = make("p");
  const name = make("label", "", "The server's data is ");
  const list = make("select");
  list.append(new Option("not labelled", ""));
  for (const label of labels) list.append(new Option(label, label));
  name.append(list);
  element.append(name);
  return { element, list };
}

const valueOf = (call, name) => call.arguments.find((argument) => argument.name === name);
const shownValue = (argument) => (argument === undefined ? "" : argument.value);

// The arguments that are the same in all calls of a group, and the others, with one more call. What is cut may differ further on.
function columnsWith(group, call) {
  const { first, names } = group;
  for (const { name } of call.arguments) if (!names.has(name)) names.set(name, call === first);
  for (const [name, wasSame] of names) {
    const argument = valueOf(call, name);
    names.set(name, wasSame && argument?.chars === null && argument.value === valueOf(first, name).value);
  }
  // Where their data comes from is said once if it is the same for all of them.
  group.isSameFrom &&= call.provenance === first.provenance;
  const isShared = (name) => group.rows.size > 1 && names.get(name);
  const all = [...names.keys()];
  return { same: all.filter(isShared), differing: all.filter((name) => !isShared(name)), isSameFrom: group.isSameFrom };
}

// Returns whether it has laid out all rows anew.
function layOut(group, added) {
  const { same, differing, isSameFrom } = columnsWith(group, added.call);
  const columns = JSON.stringify([same, differing, isSameFrom]);
  if (columns === group.columns) {
    fill(added, differing, isSameFrom);
    return false;
  }
  group.columns = columns;
  const line = make("tr");
  line.append(make("th", "narrow"));
  for (const name of differing) line.append(make("th", "", name));
  if (!differing.length) line.append(make("th", "", group.rows.size > 1 ? "" : "no arguments"));
  const act = make("th", "act");
  act.append(make("span", "unseen", "Answer"));
  line.append(make("th", "left", "Time left"), act);
  group.head.replaceChildren(line);
  const call = group.first;
  group.same.textContent = same.length
    ? `In all of them: ${same.map((name) => `${name}=${shownValue(valueOf(call, name))}`).join(", ")}`
    : "";
  group.from.textContent = (isSameFrom && call.provenance) || "";
  for (const row of group.rows) fill(row, differing, isSameFrom);
  return true;
}

// Sets the cells of a row, and keeps its buttons, which may have the focus.
function fill(row, differing, isSameFrom) {
  const { element, call } = row;
  if (!row.pick) {
    row.pick = make("td", "pick");
    row.box = make("input");
    row.box.type = "checkbox";
    row.box.tabIndex = -1;
    row.box.setAttribute("aria-label", `Choose ${label(row)}`);
    row.box.hidden = !row.canAnswer;
    row.box.addEventListener("change", () => choose([row], row.box.checked));
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
  if (call.provenance && !isSameFrom) row.left.previousSibling.append(make("p", "from", call.provenance));
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
    if (answer === "grant" && !row.call.grant) continue;
    const button = make("button", kind, text);
    button.type = "button";
    button.tabIndex = -1;
    button.dataset.answer = answer;
    button.setAttribute("aria-label", `${words}: ${label(row)}`);
    if (answer === "grant") button.title = `${row.call.grant.choice}: ${row.call.grant.covers}`;
    button.addEventListener("click", (event) => press(event, row, answer));
    row.buttons.push(button);
    all.append(button);
  }
  return all;
}

// How often rows have come or moved, and how often until the pointer moved last: a click without a move after that was meant
// for what was in their place before.
let shifts = 0;
let aimed = 0;
let pointed = "";
document.addEventListener("pointermove", ({ screenX, screenY }) => {
  if (pointed !== (pointed = `${screenX} ${screenY}`)) aimed = shifts;
});

// Answers by a button of a row. If a key presses it, it has the focus, which nothing takes from one row to another.
function press(event, row, answer) {
  const isByMouse = event.detail > 0 && event.pointerType !== "touch";
  if (isByMouse && Math.max(row.shift, row.group.shift) > aimed) {
    aimed = shifts;
    fail("The call under the pointer has just come there, so that click has answered nothing. Click again to answer it.");
    return;
  }
  give([row], answer);
}

const isReady = (row) => row.isOpen && row.canAnswer && !row.isSent && row.guard === null && row.group.guard === null;

const labelOf = ({ group }) => (group.label && group.label.list.value) || null;

async function give(given, answer) {
  const answered = given.filter((row) => isReady(row) && (answer !== "grant" || row.call.grant));
  if (!answered.length) return;
  for (const row of answered) row.isSent = true;
  fail("");
  refresh();
  try {
    for (const label of new Set(answered.map(labelOf))) {
      const some = answered.filter((row) => labelOf(row) === label);
      const reply = await post("/answer", { questions: some.map((row) => row.id), answer, label });
      if (reply.status === 401) lock();
      if (!reply.ok) throw new Error(await reply.text());
      for (const id of (await reply.json()).over) decide(id, "was over before the answer came");
    }
    // It was meant for these servers, not for the next one.
    for (const { group } of answered) if (group.label) group.label.list.value = "";
  } catch (error) {
    for (const row of answered) row.isSent = false;
    fail(`The answer did not reach ipybox: ${error.message}`);
  }
  refresh();
}

function decide(id, how) {
  const row = rows.get(id);
  if (!row || !row.isOpen) return;
  row.isOpen = false;
  waiting.delete(row);
  row.isChosen = false;
  row.box.checked = false;
  row.left.textContent = "";
  const hadFocus = row.element.contains(document.activeElement);
  row.element.classList.add("over");
  row.element.classList.remove("chosen");
  if (hadFocus) row.element.focus();
  const ending = make("span", "answers");
  ending.append(make("span", "", how));
  if (row.full) ending.append(row.more);
  row.act.replaceChildren(ending);
  if (rows.size > MOST) forget();
}

// Drops the oldest call that is over. The rows below it move up.
function forget() {
  for (const row of rows.values()) {
    if (row.isOpen || row === current) continue;
    tablesFrom(row.group).forEach(guard);
    rows.delete(row.id);
    row.element.remove();
    if (row.full) row.full.remove();
    row.group.rows.delete(row);
    if (!row.group.rows.size) {
      row.group.element.remove();
      groups.delete(row.group.name);
    }
    return;
  }
}

function choose(chosen, isChosen) {
  for (const row of chosen) {
    if (!row.isOpen || !row.canAnswer) continue;
    row.isChosen = isChosen;
    row.box.checked = isChosen;
    row.element.classList.toggle("chosen", isChosen);
  }
  refreshSoon();
}

// What the buttons for several calls are about: the chosen ones, and never others.
const targets = () => [...waiting].filter((row) => row.isChosen && isReady(row));

async function toggle(row) {
  if (row.full && !row.isOpen) {
    // The details of a call that is over cannot be read again.
    row.full.hidden = !row.full.hidden;
    row.more.setAttribute("aria-expanded", String(!row.full.hidden));
    return;
  }
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
    const { changes, arguments: all } = await reply.json();
    for (const change of changes) parts.push(...changeParts(change));
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
  if (row.call.outside) parts.push(make("p", "", row.call.outside));
  if (row.call.grant) {
    const { choice, covers } = row.call.grant;
    parts.push(make("p", "", `Grant: ${choice}`), Object.assign(make("pre", "", covers), { tabIndex: 0 }));
  }
  if (row.call.scope) parts.push(make("p", "quiet", row.call.scope));
  cell.replaceChildren(...parts);
}

// A text that the call would change, as a diff.
function changeParts({ what, lines, left_out: leftOut }) {
  if (!lines.length && !leftOut) return [make("p", "", what)];
  const text = make("pre", "diff");
  for (const { sign, text: line } of lines) {
    const kind = { "+": "added", "-": "removed", "@": "apart" }[sign] || "";
    text.append(make("span", kind, sign === "@" ? "⋯" : `${sign} ${line}`));
  }
  text.tabIndex = 0;
  text.setAttribute("aria-label", `Changes: ${what}`);
  const parts = [make("h4", "", what)];
  if (lines.length) parts.push(text);
  if (leftOut) parts.push(make("p", "wrong", `${leftOut} more lines are not shown here; all of the arguments follow.`));
  return parts;
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
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const isOnRow = event.target === row.element;
  // A key that is held moves on, and does nothing else.
  if (event.repeat && (event.key in KEYS || ["x", " ", "Enter"].includes(event.key))) return event.preventDefault();
  if (event.key === "j" || event.key === "ArrowDown") move(row, 1);
  else if (event.key === "k" || event.key === "ArrowUp") move(row, -1);
  else if (event.key === "x" || (event.key === " " && isOnRow)) choose([row], !row.isChosen);
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

// From everywhere but a field, the keys lead to the calls.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const at = document.activeElement;
  const isFree = at === document.body || at === find("waiting-title");
  const isOutside = !find("groups").contains(at) && !at.matches("input[name], select");
  if (event.repeat && event.key === "Enter" && at.matches("button")) event.preventDefault();
  if (current && isOutside && (event.key === "j" || event.key === "k" || isFree && event.key === "ArrowDown")) {
    current.element.focus();
    event.preventDefault();
  }
});

// An answer to the chosen calls is one alone: none is chosen after it, and the focus goes on to the next call.
for (const button of bulk) {
  button.addEventListener("click", () => {
    const given = targets();
    if (!given.length) return;
    choose(given, false);
    give(given, button.dataset.answer);
    const next = [...waiting].find((row) => row.canAnswer && !row.isSent);
    if (next) setCurrent(next);
    (next ? next.element : find("waiting-title")).focus();
  });
}

find("choose-all").addEventListener("change", (event) => choose(waiting, event.target.checked));

// What is said of all of them

function refresh() {
  const open = [...waiting];
  const here = open.filter((row) => row.canAnswer && !row.isSent);
  const title = open.length === 0 ? "Nothing waits" : open.length === 1 ? "A call waits" : `${open.length} calls wait`;
  if (find("waiting-title").textContent !== title) find("waiting-title").textContent = title;
  document.title = open.length && hearing ? `(${open.length}) ipybox` : "ipybox";
  find("bulk").hidden = !rows.size;
  find("keys").hidden = !rows.size;
  const about = targets();
  const isAll = here.length > 0 && here.every((row) => row.isChosen);
  const chosen = isAll && about.length === here.length ? `all ${about.length}` : `${about.length} chosen`;
  find("choose-label").textContent = here.length ? `Choose all ${here.length}` : "Choose all";
  find("target").textContent = about.length || !here.length ? "" : "Choose calls to answer several at once";
  for (const button of bulk) {
    setDisabled(button, !about.length);
    const words = button.dataset.words.replace(/(allow|deny)/i, (verb) => (about.length ? `${verb} ${chosen}` : verb));
    if (button.textContent !== words) button.textContent = words;
  }
  find("choose-all").checked = isAll;
  for (const row of open) {
    const isDisabled = !isReady(row);
    for (const button of row.buttons) setDisabled(button, isDisabled);
  }
  if (isOver) state("The session has ended");
  else if (key && isConnected) state(browsers > 1 ? `Connected, in ${browsers} browser tabs` : "Connected");
}

function tick() {
  for (const row of waiting) {
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
    const [first] = waiting;
    if (first) find("live").textContent = waiting.size === 1 ? `A call waits: ${label(first)}` : `${waiting.size} calls wait`;
    tick();
  }, 300);
}
