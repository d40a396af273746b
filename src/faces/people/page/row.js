// A call as a row: its values, its buttons and menu, what it would change, and all of it. Everything that comes from code or
// servers is set as text, never as HTML.
"use strict";

// A row has columns for so many arguments; more of them share one.
const COLUMNS = 4;
// While so few calls wait, what they would change is shown in their rows.
const FEW = 3;

// Values

// The nodes of a value. What cannot be seen, and what is left out, is a sign that no text can imitate.
function valueNodes({ parts, is_text: isText }) {
  const [only] = parts;
  // A text that could be read as something else is in quotes; so is what begins or ends with a blank.
  const isOdd =
    isText && parts.length < 2 && /^$|^[\s"'“[{]|\s$|^(true|false|null|none|nan|[-+]?[\d.][\d.,_e+-]*)$/i.test(only ?? "");
  const nodes = parts.map((part) => (typeof part === "string" ? document.createTextNode(part) : make("i", "sign", part.mark)));
  return isOdd ? [make("i", "sign", "“"), ...nodes, make("i", "sign", "”")] : nodes;
}

// A value for those who hear it: texts in quotes, so that none can go on as something else.
function spoken({ parts, is_text: isText }) {
  const text = parts.map((part) => (typeof part === "string" ? part : part.mark)).join("");
  return isText ? JSON.stringify(text) : text;
}

// Arguments with their names, one after the other.
function pairs(values) {
  return values.map((cell) => {
    const pair = make("span", "pair");
    pair.append(make("span", "name", cell.name), " ", ...valueNodes(cell));
    return pair;
  });
}

const toolOf = (call) => `${call.server}.${call.tool}`;

function label({ call }) {
  return [toolOf(call), ...call.arguments.map((cell) => `${cell.name}: ${spoken(cell)}`)].join(", ");
}

// The cells of a row, for the arguments that have columns. Its buttons stay, which may have the focus.
function fill(row, names) {
  if (!row.pick) begin(row);
  for (const cell of row.element.querySelectorAll("td.value")) cell.remove();
  const cells = names.length > COLUMNS ? [together(row, names)] : names.map((name) => columnOf(row, name));
  if (!cells.length) cells.push(make("td", "value"));
  for (const cell of cells) row.left.before(cell);
  if (row.preview) row.left.before(row.preview);
  for (const below of [row.diff, row.full]) if (below) below.firstChild.colSpan = row.element.children.length;
}

const valueOf = (call, name) => call.arguments.find((cell) => cell.name === name);

function columnOf({ call }, name) {
  const value = valueOf(call, name);
  const cell = make("td", "value");
  cell.dataset.name = name;
  if (!value) return cell;
  if (!value.is_text && !/^[[{]/.test(value.parts[0])) cell.classList.add("number");
  cell.append(...valueNodes(value), ...marks(call, name));
  return cell;
}

function together({ call }, names) {
  const cell = make("td", "value");
  for (const pair of pairs(call.arguments.filter(({ name }) => names.includes(name)))) {
    cell.append(pair, ...marks(call, pair.firstChild.textContent));
  }
  return cell;
}

// The source of an argument's data, beside it. The sentence above the table says the same of all rows.
function marks(call, name) {
  return call.origins
    .filter(({ argument }) => argument === name)
    .map(({ source, label: itsLabel, amount }) => {
      const words = make("span", "mark", `from ${source.split(".")[0]}`);
      words.title = `As far as can be seen, ${amount} came from ${source}${itsLabel ? ` (${itsLabel})` : ""}`;
      return words;
    });
}

function begin(row) {
  const { element, call } = row;
  row.pick = make("td", "pick");
  row.box = make("input");
  row.box.type = "checkbox";
  row.box.tabIndex = -1;
  row.box.setAttribute("aria-label", `Choose ${label(row)}`);
  row.box.hidden = !row.canAnswer;
  row.box.addEventListener("click", (event) => choose(event.shiftKey ? rowsUpTo(row) : [row], row.box.checked));
  row.pick.append(row.box);
  row.left = make("td", "left");
  row.act = make("td", "act");
  row.act.append(buttons(row));
  element.append(row.pick, row.left, row.act);
  element.tabIndex = -1;
  element.setAttribute("aria-label", label(row));
  element.addEventListener("dblclick", (event) => {
    if (!event.target.closest("button, input")) toggle(row);
  });
  if (call.compared.length) row.preview = make("td", "preview");
}

// Buttons

function button(className, text, work) {
  const made = make("button", className, text);
  made.type = "button";
  made.addEventListener("click", work);
  return made;
}

function buttons(row) {
  const all = make("span", "answers");
  const add = (className, text, words, work) => {
    const made = button(className, text, work);
    made.tabIndex = -1;
    made.setAttribute("aria-label", `${words}: ${label(row)}`);
    all.append(made);
    return made;
  };
  if (!row.canAnswer) {
    all.append(make("span", "quiet", "asked in the client"));
    row.more = add("plain details", "Details", "Show all", () => toggle(row));
    row.more.setAttribute("aria-expanded", "false");
    return all;
  }
  for (const [answer, text, className, words] of [
    ["once", "Allow", "allow", "Allow once"],
    ["no", "Deny", "deny", "Deny"],
  ]) {
    const made = add(className, text, words, (event) => press(event, row, answer));
    made.dataset.answer = answer;
    made.title = answer === "once" ? "Allow this call, once" : "Deny this call";
    row.buttons.push(made);
  }
  row.more = add("plain more", "⋯", "More answers and details", () => (menu.row === row ? closeMenu() : openMenu(row)));
  row.more.title = "More answers, and all of the call";
  row.more.setAttribute("aria-haspopup", "menu");
  row.more.setAttribute("aria-expanded", "false");
  return all;
}

// The menu of a row; one is open at a time.

const menu = { row: null, element: null };

function openMenu(row) {
  closeMenu();
  const { call } = row;
  const element = make("div", "menu");
  element.setAttribute("role", "menu");
  const add = (text, about, work) => {
    const item = button("", text, work);
    item.setAttribute("role", "menuitem");
    item.tabIndex = -1;
    if (about) item.append(make("small", "", about));
    element.append(item);
  };
  const answer = (answer) => (event) => {
    closeMenu();
    row.element.focus();
    press(event, row, answer);
  };
  add(row.full && !row.full.hidden ? "Hide the details" : "Details", "All arguments, and what they would change", () => {
    closeMenu();
    row.element.focus();
    toggle(row);
  });
  if (call.grant) add(grantWords(call), call.grant.covers, answer("grant"));
  if (!call.asker) add(`Allow ${call.like} in this session`, "This one too; until the session ends", answer("session"));
  if (!call.asker) add(`Always allow ${call.like}`, "In this workspace, in later sessions too", answer("always"));
  element.addEventListener("keydown", onMenuKey);
  row.more.after(element);
  Object.assign(menu, { row, element });
  row.more.setAttribute("aria-expanded", "true");
  element.firstChild.focus();
  element.scrollIntoView({ block: "nearest" });
}

function closeMenu() {
  if (!menu.row) return;
  const { row, element } = menu;
  Object.assign(menu, { row: null, element: null });
  row.more.setAttribute("aria-expanded", "false");
  element.remove();
}

function onMenuKey(event) {
  const items = [...menu.element.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1, j: at + 1, k: at - 1 }[event.key];
  event.stopPropagation();
  if (to !== undefined) items.at(to % items.length).focus();
  else if (event.key === "Escape" || event.key === "Tab") {
    const { row } = menu;
    closeMenu();
    row.more.focus();
  } else return;
  event.preventDefault();
}

document.addEventListener("pointerdown", (event) => {
  if (menu.row && !menu.element.contains(event.target) && event.target !== menu.row.more) closeMenu();
});

// `allow up to 50 like this in this cell` as a button says it.
const grantWords = ({ grant }) => grant.answer[0].toUpperCase() + grant.answer.slice(1);

// The changes that a call would make

// Reads what a row would change, once it is seen: of one row at a time.
const unread = new Set();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    const row = [...waiting].find(({ element }) => element === target);
    if (row) readLater(row);
  }
});
let reading = null;

function readLater(row) {
  unread.add(row);
  reading ??= setTimeout(readChanges, 100);
}

async function readChanges() {
  for (const row of unread) {
    unread.delete(row);
    if (!row.isOpen) continue;
    try {
      const reply = await post("call", { question: row.id, only_changes: true });
      if (reply.ok) preview(row, (await reply.json()).changes);
    } catch {
      // The details say it.
    }
  }
  reading = unread.size ? setTimeout(readChanges, 100) : null;
}

// The changes of a call, in a line of its row; below it, if few calls wait.
function preview(row, changes) {
  const shown = changes.filter(({ lines }) => lines.length);
  const words = make("span", "count");
  if (!shown.length) {
    // There is nothing to compare with: the values are shown as any others.
    words.textContent = changes.map(({ what }) => what).join(" ");
    row.preview.replaceChildren(words, ...pairs(row.call.arguments.filter(({ name }) => row.call.compared.includes(name))));
    return;
  }
  const count = (sign) => shown.reduce((sum, change) => sum + change[sign], 0);
  if (shown.every(({ kind }) => kind === "new")) words.append("new file ");
  if (count("added")) words.append(make("span", "plus", `+${count("added")}`), " ");
  if (count("removed")) words.append(make("span", "minus", `−${count("removed")}`));
  const first = (sign) => {
    const line = shown[0].lines.find((each) => each.sign === sign);
    return line ? [make("span", sign === "+" ? "added" : "removed", line.text.trim() || " ")] : [];
  };
  const isBelow = waiting.size <= FEW || row.diff;
  row.preview.replaceChildren(words, ...(isBelow ? [] : [...first("-"), ...first("+")]));
  if (!isBelow) return;
  row.diff?.remove();
  row.diff = make("tr", "below");
  const cell = make("td");
  cell.colSpan = row.element.children.length;
  for (const change of shown) cell.append(...diffOf(change));
  row.diff.append(cell);
  row.element.after(row.diff);
  moveBelow(row);
}

// The rows below a row have moved.
function moveBelow(row) {
  for (const group of tablesFrom(row.group)) for (const each of group.rows) if (each !== row && each.isOpen) guard(each);
}

// The lines of a change.
function diffOf({ what, lines, left_out: leftOut }) {
  const text = make("pre", "diff");
  for (const { sign, text: line } of lines) {
    const kind = { "+": "added", "-": "removed", "@": "apart" }[sign] || "";
    text.append(make("span", kind, sign === "@" ? "⋯" : `${sign === "-" ? "−" : sign} ${line}`));
  }
  text.tabIndex = 0;
  text.setAttribute("aria-label", `Changes: ${what}`);
  const parts = lines.length ? [text] : [];
  if (leftOut) parts.push(make("p", "wrong", `${leftOut} more lines are not shown here.`));
  return parts;
}

// All of a call

async function toggle(row) {
  const isShown = row.full && !row.full.hidden;
  if (!row.canAnswer || !row.isOpen) row.more.setAttribute("aria-expanded", String(!isShown));
  if (row.full && !row.isOpen) {
    // The details of a call that is over cannot be read again.
    row.full.hidden = isShown;
    return;
  }
  if (row.full) {
    row.full.remove();
    row.full = null;
    if (row.diff) row.diff.hidden = false;
    return moveBelow(row);
  }
  // It has all changes too.
  if (row.diff) row.diff.hidden = true;
  row.full = make("tr", "full");
  const cell = make("td");
  cell.colSpan = row.element.children.length;
  cell.append(make("p", "quiet", "Reading"));
  row.full.append(cell);
  row.element.after(row.full);
  const parts = [];
  try {
    const reply = await post("call", { question: row.id });
    if (!reply.ok) throw new Error(await reply.text());
    const { changes, arguments: all } = await reply.json();
    for (const change of changes) parts.push(make("h4", "", change.what), ...diffOf(change));
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
  const { origins, outside, grant, scope } = row.call;
  for (const origin of origins) parts.push(make("p", "from", `As far as can be seen, ${originWords(origin)}.`));
  if (outside) parts.push(make("p", "", outside));
  if (grant) parts.push(make("p", "", `${grantWords(row.call)}:`), Object.assign(make("pre", "", grant.covers), { tabIndex: 0 }));
  if (scope) parts.push(make("p", "quiet", scope));
  cell.replaceChildren(...parts);
  moveBelow(row);
}

function originWords({ argument, source, label: itsLabel, amount }) {
  const place = argument ? `${argument} has ${amount} that came` : `the name of the tool has ${amount} that came`;
  return `${place} from ${source}${itsLabel ? ` (${itsLabel})` : ""}`;
}
