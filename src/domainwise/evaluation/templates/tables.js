"use strict";
// Table headings become buttons that sort the rows.
document.querySelectorAll("table").forEach((table) => {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  const readSortKey = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const match = text.replace(/,/g, "").match(/^[<>]?\s*([+-]?\d+(\.\d+)?(e[+-]?\d+)?)/i);
    return match ? parseFloat(match[1]) : text === "–" || text === "" ? null : text.toLowerCase();
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    if (body.querySelector(`td:nth-child(${column + 1}).picture`)) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const keys = new Map(Array.from(body.rows, (row) => [row, readSortKey(row, column)]));
      // Cells without a value stay at the end in both directions.
      const rows = Array.from(body.rows).sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return ascending ? compare(x, y) : compare(y, x);
      });
      body.append(...rows);
    });
  });
});
// A field above a table shows only the rows that contain its text.
document.querySelectorAll("table.filter").forEach((table) => {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", `Filter rows: ${table.getAttribute("aria-label")}`);
  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(text);
  });
  table.parentElement.before(field);
});
// Printing opens all sections. A link opens the section that it points to.
const openSections = (sections) => sections.forEach((section) => { section.open = true; });
const openAll = () => openSections(document.querySelectorAll("details"));
const openTarget = () => {
  let element = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; element; element = element.parentElement) if (element.matches("details")) openSections([element]);
};
addEventListener("beforeprint", openAll);
addEventListener("hashchange", openTarget);
matchMedia("print").addEventListener("change", (event) => { if (event.matches) openAll(); });
if (matchMedia("print").matches) openAll();
openTarget();
