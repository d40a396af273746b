// Tables: the calls of one tool, what they have in common, and those of them that are decided.
"use strict";

// The time that decided calls stay where they are after the last decision, and after the last touch, whose place is not known.
const FOLD_MS = 2000;
const TOUCH_MS = 5000;
// So many origins of data are named above a table.
const NAMED = 3;

// Calls of one tool make a table. What differs among them has columns.
function groupOf(call) {
  const name = JSON.stringify([call.server, call.tool, call.behind, call.changes, call.kind, call.hints, call.batch, call.compared, call.asker, call.asker && call.read]);
  const known = groups.get(name);
  if (known) return known;
  const element = make("section", "card group");
  const about = make("div", "about");
  const title = make("h3");
  title.append(make("b", "", toolOf(call)));
  title.id = `group-${call.id}`;
  element.setAttribute("aria-labelledby", title.id);
  if (call.hints.length) {
    const hints = make("span", "", `its server says: ${call.hints.join(", ")}`);
    hints.title = "Nothing enforces what the server says";
    title.append(hints);
  }
  about.append(title);
  if (call.asker) about.append(make("p", "", call.asker));
  if (call.asker && call.read) about.append(make("p", "from", `The session has had access to ${call.read}.`));
  if (call.kind) about.append(make("p", "", call.kind));
  if (call.batch) about.append(make("p", "", `The code says what it is for: “${call.batch}”`));
  if (call.behind) {
    const behind = make("details", "behind");
    behind.append(make("summary", "", `Run by ${call.behind}`));
    about.append(behind);
  }
  if (call.changes) {
    const changes = make("div", "changes");
    changes.append(make("p", "", "Since you allowed this tool, its server has changed it:"));
    changes.append(Object.assign(make("pre", "", call.changes), { tabIndex: 0 }));
    about.append(changes);
  }
  const label = call.labels.length ? labelField(call.labels) : null;
  if (label) about.append(label.element);
  const same = make("p", "same");
  const from = make("p", "from");
  const grant = grantButton();
  about.append(same, from, grant.element);
  const table = make("table");
  const head = make("thead");
  const body = make("tbody");
  table.append(head, body);
  table.setAttribute("aria-labelledby", title.id);
  const folded = foldedLine();
  element.append(about, table, folded.element);
  find("groups").append(element);
  const parts = { element, table, same, head, body, label, from, grant, folded };
  const group = { ...parts, name, first: call, names: new Map(), origins: new Set(), rows: new Set(), columns: null, guard: null, shift: 0 };
  grant.element.addEventListener("click", (event) => {
    const { row } = grant;
    if (!row || grant.guard !== null || !isMeant(event, grant.shift)) return;
    row.element.focus();
    give([row], "grant");
  });
  folded.toggle.addEventListener("click", () => {
    folded.isShown = !folded.isShown;
    fold();
  });
  groups.set(name, group);
  return group;
}

// The field in which a user labels the data of a server: part of the next answer.
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

// The button for the grant that the calls of a table propose. It says what the grant covers, and takes no answer for a moment
// when that changes.
function grantButton() {
  const element = button("grant", "", () => {});
  element.hidden = true;
  return { element, buttons: [element], row: null, covers: "", guard: null, shift: 0 };
}

function refreshGrant(group) {
  const { grant } = group;
  const row = [...group.rows].find((each) => canTake(each) && each.call.grant) ?? null;
  const covers = row ? `${grantWords(row.call)}: ${row.call.grant.covers}` : "";
  grant.row = row;
  setDisabled(grant.element, !row || grant.guard !== null);
  if (grant.covers === covers) return;
  grant.covers = covers;
  if (document.activeElement === grant.element) (current?.element ?? find("waiting-title")).focus();
  // It makes room for itself.
  if (grant.element.hidden === Boolean(row)) tablesFrom(group).forEach(guard);
  grant.element.hidden = !row;
  if (!row) return;
  grant.element.replaceChildren(`${grantWords(row.call)}: `, make("code", "", row.call.grant.covers));
  guard(grant);
}

// The arguments that are the same in all calls of a group, and the others, with one more call. What is cut may differ further on.
function columnsWith(group, call) {
  const { first, names } = group;
  const text = (value) => value && JSON.stringify(value.parts);
  for (const { name } of call.arguments) if (!names.has(name)) names.set(name, call === first);
  for (const [name, wasSame] of names) {
    const value = valueOf(call, name);
    names.set(name, wasSame && value?.is_cut === false && text(value) === text(valueOf(first, name)));
  }
  const isShared = (name) => group.rows.size > 1 && names.get(name);
  const all = [...names.keys()];
  const shown = all.filter((name) => !first.compared.includes(name));
  return { same: shown.filter(isShared), differing: shown.filter((name) => !isShared(name)) };
}

// Returns whether it has laid out all rows anew.
function layOut(group, added) {
  const { same, differing } = columnsWith(group, added.call);
  const known = group.origins.size;
  for (const { argument, source, label: itsLabel } of added.call.origins) {
    group.origins.add(`${argument || "the name of the tool"} has data from ${source}${itsLabel ? ` (${itsLabel})` : ""}`);
  }
  if (group.origins.size !== known) {
    const [...all] = group.origins;
    const more = all.length > NAMED ? `; and ${all.length - NAMED} more` : "";
    group.from.textContent = `As far as can be seen, ${all.slice(0, NAMED).join("; ")}${more}.`;
  }
  const columns = JSON.stringify([same, differing, group.origins.size]);
  if (columns === group.columns) {
    fill(added, differing);
    return false;
  }
  group.columns = columns;
  const line = make("tr");
  line.append(make("th", "narrow"));
  const heads = differing.length > COLUMNS ? [`${differing.length} arguments`] : differing;
  for (const name of heads) line.append(make("th", "", name));
  if (!heads.length) line.append(make("th", "", group.first.arguments.length ? "" : "no arguments"));
  if (group.first.compared.length) line.append(make("th", "", "Change"));
  const act = make("th", "act");
  act.append(make("span", "unseen", "Answer"));
  line.append(make("th", "left", "Time left"), act);
  group.head.replaceChildren(line);
  group.same.replaceChildren(...(same.length ? ["In all of them: ", ...pairs(same.map((name) => valueOf(group.first, name)))] : []));
  for (const row of group.rows) fill(row, differing);
  return true;
}

// Decided calls

// The line for those of a table that are folded.
function foldedLine() {
  const element = make("div", "folded");
  const words = make("span");
  const toggle = button("plain", "Show", () => {});
  toggle.setAttribute("aria-expanded", "false");
  element.append(words, toggle);
  element.hidden = true;
  return { element, words, toggle, isShown: false, hows: new Map() };
}

// Folds the calls that are decided, and none that has the focus.
function fold() {
  for (const group of groups.values()) {
    const { folded } = group;
    const over = [...group.rows].filter((row) => !row.isOpen);
    let isChanged = false;
    for (const row of over) {
      const hides = !folded.isShown && !row.element.contains(document.activeElement) && !row.full?.contains(document.activeElement);
      if (row.element.hidden === hides) continue;
      isChanged = true;
      row.element.hidden = hides;
      if (row.diff) row.diff.hidden = hides || Boolean(row.full && !row.full.hidden);
    }
    const isAny = over.some((row) => row.element.hidden) || folded.isShown;
    if (folded.element.hidden === isAny) isChanged = true;
    folded.element.hidden = !isAny;
    folded.words.textContent = `${over.length} decided: ${[...folded.hows].map(([how, count]) => `${count} ${how}`).join(", ")}`;
    folded.toggle.textContent = folded.isShown ? "Hide" : "Show";
    folded.toggle.setAttribute("aria-expanded", String(folded.isShown));
    group.table.hidden = over.length === group.rows.size && over.every((row) => row.element.hidden);
    if (isChanged) tablesFrom(group).forEach(guard);
  }
}

// True if nobody can be about to click where they are.
function isCalm() {
  const now = performance.now();
  return !isOverCalls && !menu.row && now - decided > FOLD_MS && now - touched > TOUCH_MS;
}
