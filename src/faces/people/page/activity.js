// Cells, decisions and grants. Everything that comes from code or servers is set as text, never as HTML.
"use strict";

// The longest part of a cell's output that is shown: its end.
const OUTPUT_CHARS = 200000;
// The most decisions and calls that are over and are shown.
const MOST = 500;

const cells = new Map();

function showCells(shown) {
  find("cells").textContent = "";
  cells.clear();
  for (const cell of shown) showCell(cell);
}

function showCell(shown) {
  if (cells.has(shown.cell)) return;
  find("no-cells").hidden = true;
  const element = make("article", "card cell");
  const title = make("h3", "", `${{ agent: "Agent", you: "You", another: "A user at a prompt" }[shown.by]} [${shown.number}]`);
  const how = make("span", "", "runs");
  title.append(how);
  const code = make("pre");
  code.append(...coloured(shown.code));
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
    const reply = await post("image", { cell: cell.id, image: index });
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
  const what = make("span", "what");
  what.append(make("b", "", `${decision.server}.${decision.tool}`), ...pairs(decision.arguments));
  item.append(time, what, outcome(decision.how));
  find("decisions").prepend(item);
  while (find("decisions").children.length > MOST) find("decisions").lastChild.remove();
}

// Grants

// By their numbers: what is there already stays where it is.
const granted = new Map();

function showGrants(grants) {
  const held = new Set(grants.map((grant) => grant.id));
  let isMoved = false;
  for (const [id, grant] of granted) {
    if (held.has(id)) {
      if (isMoved) grant.shift = shifts;
      continue;
    }
    isMoved = true;
    shifts += 1;
    if (grant.element.contains(document.activeElement)) find("waiting-title").focus();
    grant.element.remove();
    granted.delete(id);
  }
  for (const grant of grants) {
    const known = granted.get(grant.id) ?? addGrant(grant);
    known.left.textContent = `${grant.left} left, ${grant.of_cell ? "in this cell" : "in this session"}`;
  }
  find("granted").hidden = !grants.length;
}

function addGrant({ id, covers }) {
  const grant = { element: make("li"), left: make("span", "left"), shift: shifts += 1 };
  const revoke = make("button", "deny", "Revoke");
  revoke.type = "button";
  revoke.setAttribute("aria-label", `Revoke grant ${id}: ${covers}`);
  revoke.addEventListener("click", (event) => isMeant(event, grant.shift) && revokeGrant(id));
  grant.element.append(grant.left, make("span", "what", covers), revoke);
  find("grants").append(grant.element);
  granted.set(id, grant);
  return grant;
}

// The decision about a call, in the colour of a yes or a no.
function outcome(how) {
  const kind = /^(allowed|accepted)/.test(how) ? "allowed" : /^denied/.test(how) ? "denied" : "";
  return make("span", `how ${kind}`, how);
}

async function revokeGrant(grant) {
  fail("");
  try {
    const reply = await post("revoke", { grant });
    if (reply.status === 401) return lock();
    if (!reply.ok) throw new Error(await reply.text());
  } catch (error) {
    fail(`The grant was not revoked: ${error.message}`);
  }
}
