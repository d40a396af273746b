// The calls that wait: which there are, and their answers. How they look is in table.js and row.js.
"use strict";

// The time in which a call that has just appeared or moved cannot be answered: a click that was meant for something else finds nothing.
const GUARD_MS = 700;
const KEYS = { a: "once", g: "grant", s: "session", d: "no" };

// Thousands may come at once: a new one must not look at all others.
const rows = new Map();
const waiting = new Set();
const groups = new Map();
let current = null;
// The row that was chosen last, from which the next choice with Shift begins.
let chosenLast = null;
// The buttons for the chosen calls. Each says what it would do to how many of them.
const bulk = [...document.querySelectorAll("#bulk button")];
for (const each of bulk) each.dataset.words = each.textContent;

// Calls

function showQuestion({ row: call, left_ms: left }) {
  if (rows.has(call.id)) return;
  // Calls that are over stay while others wait, so that nothing moves.
  if (!waiting.size) clear();
  const group = groupOf(call);
  const row = {
    id: call.id,
    call,
    group,
    isOpen: true,
    canAnswer: call.scope !== null,
    isNew: true,
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
  const isAnew = layOut(group, row);
  if (!current || !current.isOpen) setCurrent(row);
  if (call.compared.length) seen.observe(row.element);
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
    for (const each of buttons) setDisabled(each, true);
  }
  clearTimeout(guarded.guard);
  guarded.guard = setTimeout(() => {
    guarded.guard = null;
    guarded.isNew = false;
    refreshSoon();
  }, GUARD_MS);
}

function clear() {
  const hadFocus = find("groups").contains(document.activeElement);
  closeMenu();
  rows.clear();
  groups.clear();
  current = null;
  chosenLast = null;
  find("groups").textContent = "";
  fail("");
  if (hadFocus) find("waiting-title").focus();
}

// Answers

// Counts how often rows have come or moved, and how often until the pointer moved last: a click without a move after that was meant
// for what was in their place before.
let shifts = 0;
let aimed = 0;
let pointed = "";
// The place of the mouse, and the times of the last touch and the last decision: decided calls fold when they are out of the way.
let isOverCalls = false;
let touched = -Infinity;
let decided = -Infinity;
document.addEventListener("pointermove", ({ screenX, screenY, target, pointerType }) => {
  if (pointerType !== "touch") isOverCalls = find("groups").contains(target);
  if (pointed !== (pointed = `${screenX} ${screenY}`)) aimed = shifts;
});
document.addEventListener("pointerdown", ({ pointerType }) => {
  if (pointerType !== "mouse") touched = performance.now();
});
document.documentElement.addEventListener("pointerleave", () => {
  isOverCalls = false;
});

// True if a click means the row that is there now. A key means the one that has the focus, which nothing takes from one row to another.
function isMeant(event, shift) {
  const isByMouse = event.detail > 0 && event.pointerType !== "touch";
  if (!isByMouse || shift <= aimed) return true;
  aimed = shifts;
  fail("The call under the pointer has just come there, so that click has answered nothing. Click again to answer it.");
  return false;
}

// Answers by a button of a row.
function press(event, row, answer) {
  if (isReady(row) && isMeant(event, Math.max(row.shift, row.group.shift))) give([row], answer);
}

const canTake = (row) => row.isOpen && row.canAnswer && !row.isSent && !row.isNew;
// The same for a click: a row that has moved may be under it by chance.
const isReady = (row) => canTake(row) && row.guard === null && row.group.guard === null;

const labelOf = ({ group }) => (group.label && group.label.list.value) || null;

async function give(given, answer) {
  const answered = given.filter((row) => canTake(row) && (answer !== "grant" || row.call.grant) && (!row.call.asker || answer === "once" || answer === "no"));
  if (!answered.length) return;
  for (const row of answered) row.isSent = true;
  fail("");
  refresh();
  try {
    for (const label of new Set(answered.map(labelOf))) {
      const some = answered.filter((row) => labelOf(row) === label);
      const reply = await post("answer", { questions: some.map((row) => row.id), answer, label });
      if (reply.status === 401) lock();
      if (!reply.ok) throw new Error(await reply.text());
      for (const id of (await reply.json()).over) decide(id, "was over before the answer came");
    }
    if (answered.length > 1) find("live").textContent = `${answered.length} calls are answered`;
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
  unread.delete(row);
  seen.unobserve(row.element);
  row.isChosen = false;
  row.box.checked = false;
  row.left.textContent = "";
  const hadFocus = row.element.contains(document.activeElement);
  if (menu.row === row) closeMenu();
  row.element.classList.add("over");
  row.element.classList.remove("chosen");
  if (hadFocus) {
    row.element.focus();
    find("live").textContent = how;
  }
  const ending = make("span", "answers");
  ending.append(outcome(how));
  if (row.full) {
    row.more.removeAttribute("aria-haspopup");
    row.more = button("plain", "Details", () => toggle(row));
    row.more.setAttribute("aria-expanded", String(!row.full.hidden));
    ending.append(row.more);
  }
  row.act.replaceChildren(ending);
  row.group.folded.hows.set(how, (row.group.folded.hows.get(how) ?? 0) + 1);
  decided = performance.now();
  // A file that was written may be one that the next call would change.
  if (/^allowed/.test(how)) for (const each of waiting) if (each.call.compared.length && each.preview.firstChild) readLater(each);
  if (rows.size > MOST) forget();
}

// Drops the oldest call that is over. The rows below it move up.
function forget() {
  for (const row of rows.values()) {
    if (row.isOpen || row === current) continue;
    if (!row.element.hidden) tablesFrom(row.group).forEach(guard);
    rows.delete(row.id);
    for (const part of [row.element, row.diff, row.full]) part?.remove();
    row.group.rows.delete(row);
    if (!row.group.rows.size) {
      row.group.element.remove();
      groups.delete(row.group.name);
    }
    return;
  }
}

// Choices

function choose(chosen, isChosen) {
  for (const row of chosen) {
    if (!row.isOpen || !row.canAnswer) continue;
    row.isChosen = isChosen;
    row.box.checked = isChosen;
    row.element.classList.toggle("chosen", isChosen);
    chosenLast = row;
  }
  refreshSoon();
}

// The calls from the one that was chosen last to this one, as they stand.
function rowsUpTo(row) {
  const all = [...groups.values()].flatMap((group) => [...group.rows]);
  const [from, to] = [all.indexOf(chosenLast), all.indexOf(row)].sort((one, other) => one - other);
  return from < 0 ? [row] : all.slice(from, to + 1);
}

// The calls that the buttons of the bar decide: the chosen ones, and never others.
const targets = () => [...waiting].filter((row) => row.isChosen && canTake(row));

// An answer to the chosen calls is one alone: none is chosen after it, and the focus goes on to the next call.
for (const each of bulk) {
  each.addEventListener("click", () => {
    const given = targets();
    if (!given.length) return;
    choose(given, false);
    give(given, each.dataset.answer);
    const next = [...waiting].find((row) => row.canAnswer && !row.isSent);
    if (next) setCurrent(next);
    (next ? next.element : find("waiting-title")).focus();
  });
}

find("choose-all").addEventListener("change", (event) => choose(waiting, event.target.checked));

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
  if (event.repeat && (event.key in KEYS || ["x", "m", " ", "Enter"].includes(event.key))) return event.preventDefault();
  if (event.key === "j" || event.key === "ArrowDown") move(row, 1);
  else if (event.key === "k" || event.key === "ArrowUp") move(row, -1);
  else if (event.key === "x" || (event.key === " " && isOnRow)) choose([row], !row.isChosen);
  else if (event.key === "Enter" && isOnRow) toggle(row);
  else if (event.key === "m" && row.isOpen && row.canAnswer) openMenu(row);
  else if (event.key in KEYS && row.isNew) fail("This call has just come, so that key has answered nothing. Press it again.");
  else if (event.key in KEYS) give([row], KEYS[event.key]);
  else return;
  event.preventDefault();
}

function move(row, by) {
  const all = [...document.querySelectorAll("tr.row:not([hidden])")];
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
  if (current && isOutside && (event.key === "j" || event.key === "k" || (isFree && event.key === "ArrowDown"))) {
    const open = current.isOpen ? current : [...waiting][0] ?? current;
    open.element.focus();
    event.preventDefault();
  }
});

// The text about all of them

function refresh() {
  const open = [...waiting];
  const here = open.filter((row) => row.canAnswer && !row.isSent);
  const title = open.length === 0 ? "Nothing waits" : open.length === 1 ? "A call waits" : `${open.length} calls wait`;
  if (find("waiting-title").textContent !== title) find("waiting-title").textContent = title;
  const place = project ? `${project} · ipybox` : "ipybox";
  document.title = open.length && hearing ? `(${open.length}) ${place}` : place;
  if (find("bulk").hidden === rows.size > 1) {
    find("bulk").hidden = rows.size < 2;
    // It has made room for itself.
    groups.forEach(guard);
  }
  find("keys").hidden = !rows.size;
  refreshBar(here);
  const read = open.map((row) => !row.call.asker && row.call.read).filter(Boolean).pop();
  if (find("read").hidden === Boolean(read)) groups.forEach(guard);
  find("read").hidden = !read;
  find("read").textContent = read ? `This session has had access to ${read}.` : "";
  for (const row of open) {
    const isDisabled = !isReady(row);
    for (const each of row.buttons) setDisabled(each, isDisabled);
  }
  for (const group of groups.values()) refreshGrant(group);
  if (isOver) state("The session has ended");
  else if (key && isConnected) state(browsers > 1 ? `Connected, in ${browsers} browser tabs` : "Connected");
}

function refreshBar(here) {
  const about = targets();
  const isAll = here.length > 0 && here.every((row) => row.isChosen);
  const chosen = isAll && about.length === here.length ? `all ${about.length}` : `${about.length} chosen`;
  const words = (each) => each.dataset.words.replace(/(allow|deny)/i, (verb) => (about.length ? `${verb} ${chosen}` : verb));
  for (const each of bulk) if (each.textContent !== words(each)) each.textContent = words(each);
  find("bulk").classList.toggle("armed", about.length > 0);
  document.querySelector("#bulk .answers").classList.toggle("idle", !about.length);
  find("target").hidden = about.length > 0 || !here.length;
  find("choose-label").textContent = here.length ? `Choose all ${here.length}` : "Choose all";
  find("choose-all").disabled = !here.length;
  find("choose-all").checked = isAll;
  find("choose-all").indeterminate = !isAll && about.length > 0;
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
  if (isCalm()) fold();
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
