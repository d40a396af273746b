// The changes that wait in copies of the workspace. All texts are set as text, never as HTML.
"use strict";

// The least time between two questions which changes wait: a look takes a while in a large workspace.
const CHANGES_MS = 2000;

let changesAsked = 0;
let changesDue = null;
// The revision that is shown.
let shownRevision = null;

// Asks which changes wait, soon: a cell may have made some.
function askForChanges() {
  if (changesDue !== null) return;
  const pause = Math.max(0, changesAsked + CHANGES_MS - Date.now());
  changesDue = setTimeout(async () => {
    changesDue = null;
    changesAsked = Date.now();
    try {
      await post("changes", {});
    } catch {
      // The connection is lost, which the page says: the next one brings them.
    }
  }, pause);
}

function showChanges({ revision, note, copies }) {
  find("changes").hidden = !copies.length && !note;
  find("changes-note").textContent = note ?? "";
  if (shownRevision === revision) return;
  shownRevision = revision;
  if (find("copies").contains(document.activeElement)) find("changes-title").focus();
  shifts += 1;
  find("copies").replaceChildren(...copies.map((copy) => copyOf(copy, revision, shifts)));
}

function copyOf(copy, revision, shift) {
  const element = make("article", "card copy");
  const title = make("h3", "", `Copy ${copy.id}`);
  title.append(make("span", "", copy.live ? "its session goes on" : "its session has ended"));
  const list = make("ul", "decisions");
  copy.changes.forEach((change, place) => list.append(changeOf(copy, change, place, revision, shift)));
  element.append(title);
  if (copy.cut) element.append(make("p", "quiet", `There is more: \`ipybox changes ${copy.id}\` lists it.`));
  element.append(list, settling(copy, null, `all ${copy.changes.length}`, revision, shift));
  return element;
}

function changeOf(copy, change, place, revision, shift) {
  const item = make("li");
  const what = make("span", "what", change.path);
  if (change.bytes) what.append(make("span", "quiet", ` ${change.bytes} bytes`));
  for (const mark of change.marks) what.append(make("span", mark.warning ? "mark warning" : "mark", mark.words));
  item.append(make("span", "left", change.kind), what, settling(copy, [place], change.path, revision, shift));
  if (change.whole) {
    const details = make("details");
    details.append(make("summary", "", "Difference"), differenceOf(change.diff));
    item.append(details);
  } else {
    item.append(make("p", "quiet", `It is too long for this page: \`ipybox changes ${copy.id} --diff\` shows it.`));
  }
  return item;
}

function differenceOf(text) {
  const shown = make("pre", "diff");
  shown.tabIndex = 0;
  for (const line of text.split("\n")) {
    const kind = /^\+(?!\+\+ )/.test(line) ? "added" : /^-(?!-- )/.test(line) ? "removed" : "";
    shown.append(make("span", kind, `${line}\n`));
  }
  return shown;
}

// The buttons for changes, which are named by `what`.
function settling(copy, changes, what, revision, shift) {
  const buttons = make("span", "answers");
  for (const [action, words] of [["apply", "Apply"], ["discard", "Discard"]]) {
    const button = make("button", action === "discard" ? "deny" : "", changes ? words : `${words} ${what}`);
    button.type = "button";
    button.setAttribute("aria-label", `${words} ${what} of copy ${copy.id}`);
    button.addEventListener("click", (event) => {
      if (isMeant(event, shift)) settleChanges({ revision, copy: copy.id, action, changes });
    });
    buttons.append(button);
  }
  return buttons;
}

async function settleChanges(answer) {
  fail("");
  try {
    const reply = await post("settle", answer);
    if (reply.status === 401) return lock();
    if (!reply.ok) throw new Error(await reply.text());
  } catch (error) {
    fail(`Nothing was done: ${error.message}`);
    askForChanges();
  }
}
