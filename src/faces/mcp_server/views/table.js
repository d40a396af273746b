// A table of a view: rows from the server, as many as fit on a page. It is a part of view.js.

const TESTS = [
  ["containing", "contains"],
  ["=", "="],
  ["!=", "≠"],
  ["<", "<"],
  ["<=", "≤"],
  [">", ">"],
  [">=", "≥"],
  ["empty", "is missing"],
  ["filled", "is there"],
];
const ROWS = 50;

function count(number) {
  try {
    return number.toLocaleString(client.context.locale ?? "en");
  } catch {
    // Clients also send what is no language tag, such as `en_US`.
    return number.toLocaleString("en");
  }
}

async function showTable(view, section) {
  const asked = { from: 0, sort: null, filters: [] };
  let summaries = [];
  const title = make("h2", { className: "title" });
  const note = make("span", { className: "note", role: "status" });
  const filters = make("div", { className: "bar filters", hidden: true });
  const head = make("thead");
  const body = make("tbody");
  const caption = make("caption", { className: "away" });
  const table = make("table", {}, caption, head, body);
  const scroll = make("div", { className: "scroll", tabIndex: 0, role: "region" }, table);
  const trouble = make("p", { className: "trouble", role: "alert", hidden: true });
  const pages = [
    ["First", "«", () => 0],
    ["Previous", "‹", () => Math.max(0, shown.from - ROWS)],
    // A page of long rows has fewer of them.
    ["Next", "›", () => shown.from + shown.page.length],
    ["Last", "»", (matching) => Math.floor((matching - 1) / ROWS) * ROWS],
  ].map(([name, sign, to]) => ({ to, button: make("button", { type: "button", hidden: true, title: name, ariaLabel: name }, sign) }));
  const more = make("button", { type: "button" }, "Add a filter");
  const filter = make("button", { type: "button", hidden: true, ariaExpanded: "false" }, "Filter");
  const copy = make("button", { type: "button", hidden: true, title: "Copy these rows, for a spreadsheet" }, "Copy");
  const csv = make("button", { type: "button", hidden: true, title: "Save these rows as a file" }, "CSV");
  const wide = wideButton();
  section.append(
    make("div", { className: "bar controls" }, title, note, ...pages.map(({ button }) => button), filter, copy, csv, ...wide),
    filters,
    trouble,
    scroll,
  );
  let shown = null;
  let newest = 0;

  async function load() {
    const number = ++newest;
    section.classList.add("busy");
    try {
      const what = { view, from: asked.from, rows: ROWS, filters: asked.filters };
      const page = await read(asked.sort ? { ...what, sort: asked.sort } : what);
      if (number !== newest) return;
      shown = page;
      trouble.hidden = true;
      draw();
      summarize(number);
    } catch (error) {
      if (number !== newest) return;
      trouble.textContent = error.message;
      trouble.hidden = false;
    } finally {
      if (number === newest) section.classList.remove("busy");
    }
  }

  // The values of the columns, of the same rows. The rows are there before.
  async function summarize(number) {
    try {
      const { summary } = await read({ view, summary: true, filters: asked.filters });
      if (number !== newest) return;
      summaries = summary;
      head.querySelectorAll("button").forEach((button, at) => nameSummary(button, at));
    } catch {
      // The rows are shown without.
    }
  }

  function nameSummary(button, at) {
    const { missing, distinct, least, greatest } = summaries[at] ?? {};
    button.querySelector(".summary")?.remove();
    if (distinct === undefined) return;
    const parts = [`${count(distinct)} distinct`];
    if (missing) parts.unshift(`${count(missing)} missing`);
    const column = shown.columns[at];
    const look = lookOf(column, [least, greatest]);
    const end = (value) => shorten(inWords(value, look), 20);
    const hasRange = look.isTime || [least, greatest].every((value) => typeof value === "number" || value?.number !== undefined);
    if (distinct > 1 && hasRange) parts.push(`${end(least)} – ${end(greatest)}`);
    button.append(make("small", { className: "summary" }, parts.join(" · ")));
  }

  function draw() {
    section.ariaLabel = shown.title;
    title.textContent = shown.title;
    caption.textContent = shown.title;
    scroll.ariaLabel = `Rows of ${shown.title}`;
    note.textContent = describe(shown);
    const columns = shown.columns.map((column, number) => headOf(column, number));
    const focused = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    head.replaceChildren(make("tr", {}, make("th", { scope: "col", className: "row" }, make("span", { className: "away" }, "Row")), ...columns));
    head.querySelectorAll("button")[focused]?.focus();
    const looks = shown.columns.map((column, at) => lookOf(column, shown.page.map(({ values }) => values[at] ?? null)));
    body.replaceChildren(...shown.page.map((row) => rowOf(row, looks)));
    scroll.scrollTop = 0;
    const { matching } = shown;
    for (const { to, button } of pages) {
      const from = to(matching);
      button.disabled = from < 0 || from >= matching || from === shown.from;
    }
    pages[0].button.disabled = shown.from === 0;
    filter.hidden = shown.held < 2;
    [copy, csv].forEach((button) => (button.hidden = shown.held === 0));
    const isWhole = shown.from === 0 && shown.page.length === matching;
    pages.forEach(({ button }) => (button.hidden = shown.held <= ROWS && isWhole));
  }

  // The rows that fit, all of them, as text.
  async function matchingRows(separator, quote) {
    const lines = [shown.columns.map(({ name }) => quote(name)).join(separator)];
    for (let from = 0; from < shown.matching; ) {
      const what = { view, from, rows: 1000, filters: asked.filters };
      const { page } = await read(asked.sort ? { ...what, sort: asked.sort } : what);
      if (!page.length) break;
      for (const { values } of page) lines.push(shown.columns.map((_, at) => quote(exactText(values[at] ?? null))).join(separator));
      from += page.length;
    }
    return lines.join("\n");
  }

  async function give(button, make) {
    const words = button.textContent;
    button.disabled = true;
    try {
      await make();
      button.textContent = "Done";
    } catch (error) {
      trouble.textContent = error.message;
      trouble.hidden = false;
    } finally {
      button.disabled = false;
      setTimeout(() => (button.textContent = words), 1500);
    }
  }

  function headOf(column, number) {
    const isSorted = asked.sort?.column === number;
    const way = !isSorted ? "" : asked.sort.descending ? " ↓" : " ↑";
    const button = make("button", { type: "button" }, `${column.name}${way}`, make("small", {}, column.type));
    if (shown.held < shown.rows) button.title = `Sorts the first ${count(shown.held)} rows, which are here`;
    if (summaries[number]) nameSummary(button, number);
    button.onclick = () => {
      if (!isSorted) asked.sort = { column: number, descending: false };
      else asked.sort = asked.sort.descending ? null : { column: number, descending: true };
      asked.from = 0;
      load();
    };
    const cell = make("th", { scope: "col" }, button);
    cell.ariaSort = !isSorted ? "none" : asked.sort.descending ? "descending" : "ascending";
    return cell;
  }

  function rowOf({ number, values }, looks) {
    const cells = shown.columns.map(({ index }, at) => {
      const value = values[at] ?? null;
      const isNumber = typeof value === "number" || value?.number !== undefined;
      const isTime = isMoment(shown.columns[at]);
      const kind = value === null ? "missing" : isNumber ? "number" : isTime ? "moment" : value.length > 40 ? "long" : "";
      const cell = make(index ? "th" : "td", { className: index ? `index ${kind}` : kind });
      if (index) cell.scope = "row";
      const text = inWords(value, looks[at]);
      if (text !== exactText(value)) cell.title = exactText(value);
      cell.append(kind === "long" ? make("div", {}, text) : text);
      return cell;
    });
    return make("tr", {}, make("td", { className: "row" }, count(number)), ...cells);
  }

  function addFilter() {
    const options = [["", "any column"], ...shown.columns.map(({ name }, number) => [number, name])];
    const choice = (label, pairs) =>
      make("select", { ariaLabel: label }, ...pairs.map(([value, text]) => make("option", { value }, text)));
    const column = choice("Column", options);
    const is = choice("Condition", TESTS);
    const value = make("input", { ariaLabel: "Value", type: "search", placeholder: "filter" });
    more.before(make("div", { className: "filter" }, column, is, value));
    let timer = null;
    const change = () => {
      clearTimeout(timer);
      timer = setTimeout(applyFilters, 200);
      value.hidden = ["empty", "filled"].includes(is.value);
    };
    [column, is].forEach((select) => (select.onchange = change));
    value.oninput = change;
  }

  function applyFilters() {
    asked.filters = [...filters.querySelectorAll(".filter")].flatMap(({ children: [column, is, value] }) => {
      const isAlone = ["empty", "filled"].includes(is.value);
      if (!isAlone && value.value === "") return [];
      const filter = { is: is.value, value: isAlone ? "" : value.value };
      return [column.value === "" ? filter : { ...filter, column: Number(column.value) }];
    });
    asked.from = 0;
    load();
  }

  for (const { to, button } of pages) {
    button.onclick = () => {
      asked.from = to(shown.matching);
      load();
    };
  }
  filters.append(more);
  more.onclick = addFilter;
  filter.onclick = () => {
    filters.hidden = !filters.hidden;
    filter.ariaExpanded = String(!filters.hidden);
    if (filters.hidden) return;
    if (!filters.querySelector(".filter")) addFilter();
    filters.querySelector("input").focus();
  };
  copy.onclick = () => give(copy, async () => copyText(await matchingRows("\t", (text) => text.replace(/[\t\r\n]+/g, " "))));
  csv.onclick = () =>
    give(csv, async () => {
      const text = await matchingRows(",", (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value));
      const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "table.csv" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  await load();
}

// A value with all that it has. A number that JavaScript does not have comes as a text.
const exactText = (value) => (value === null ? "" : String(value.number ?? value));

const isMoment = ({ type }) => /^(datetime|date|timestamp)/i.test(type);

// The format of a column's values: with so many decimals, and without a time if all are dates.
function lookOf(column, values) {
  const isTime = isMoment(column);
  const isDate = isTime && values.every((value) => value === null || /^[^T]*T00:00:00(\.0+)?$/.test(value));
  return { isTime, isDate, digits: digitsOf(values) };
}

function inWords(value, { isTime, isDate, digits }) {
  if (typeof value === "number" && digits !== null && Math.abs(value) < 1e15) {
    return value !== 0 && Math.abs(value) < 1e-4 ? value.toPrecision(4) : value.toFixed(digits);
  }
  const text = exactText(value);
  return isDate ? text.replace(/T.*/, "") : isTime ? text.replace("T", " ") : text;
}

// The number of decimals that tell the numbers of a column apart; `null` if none has any. Differences behind the sixth digit are noise.
function digitsOf(values) {
  const all = values.filter((value) => typeof value === "number");
  if (!all.some((value) => !Number.isInteger(value))) return null;
  const told = new Set(all.map((value) => Number(value.toPrecision(6))));
  const needed = Math.max(...[...told].map((value) => (String(value).split(".")[1] ?? "").replace(/e.*/, "").length));
  for (let digits = Math.min(2, needed); digits < needed; digits += 1) {
    const rounded = new Set([...told].map((value) => value.toFixed(digits)));
    const isLost = [...told].some((value) => value !== 0 && Number(value.toFixed(digits)) === 0);
    if (rounded.size === told.size && !isLost) return digits;
  }
  return Math.min(needed, 12);
}

const shorten = (text, chars) => (text.length > chars ? `${text.slice(0, chars)}…` : text);

// Clients may keep the clipboard from views: then the text is selected and copied as by a person.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { value: text, className: "away" });
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    if (!isCopied) throw new Error("This client does not let views copy.");
  }
}

// The rows that are shown, and the part of the table that is not there.
function describe({ rows, held, matching, from, page, left_out: leftOut }) {
  const parts = [];
  const last = from + page.length;
  if (page.length === 0) parts.push(held === 0 ? "no rows" : "no row fits");
  else if (page.length < matching) parts.push(`${count(from + 1)}–${count(last)} of ${count(matching)}`);
  if (matching < held && page.length > 0) parts.push(`${count(matching)} of ${count(held)} rows fit`);
  if (held < rows) parts.push(`only the first ${count(held)} rows are here`);
  if (leftOut > 0) parts.push(`${count(leftOut)} further columns are not here`);
  return parts.join("; ");
}

