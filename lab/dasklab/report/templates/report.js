// Tables with the class "sortable" get a button in each heading and a field that filters rows. Without
// scripts they are plain tables. Open all details before printing, because paper cannot be clicked.
"use strict";

function key(cell) {
  const text = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number.parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, "en", { numeric: true });
}

function sortBy(table, column, heading) {
  const up = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
  rows.sort(([a], [b]) => (up ? compare(a, b) : compare(b, a)));
  body.append(...rows.map(([, row]) => row));
}

function filter(table, text, count) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sortBy(table, column, heading));
  });
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  label.className = "filter";
  input.type = "search";
  label.append("Filter rows", input, count);
  input.addEventListener("input", () => filter(table, input.value, count));
  table.parentElement.before(label);
}

// A link to a row that is folded away opens what it is in, and shows the row if a filter hides it.
function reveal() {
  const row = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!row) return;
  for (let box = row.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  row.hidden = false;
  row.scrollIntoView({ block: "center" });
}
window.addEventListener("hashchange", reveal);
reveal();

window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
