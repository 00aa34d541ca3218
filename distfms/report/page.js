for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].title ?? "";
  const shown = (row, i) => row.cells[i].dataset.v || row.cells[i].title || row.cells[i].textContent;
  heads.forEach((head, i) => {
    const sort = () => {
      const up = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      const numeric = head.classList.contains("n");
      const key = row => numeric ? (value(row, i) === "" ? NaN : Number(value(row, i))) : shown(row, i);
      const compare = (a, b) => numeric
        ? (isNaN(a) - isNaN(b)) || up * (a - b)
        : -up * a.localeCompare(b, undefined, {numeric: true});
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
    };
    head.tabIndex = 0;
    head.onclick = sort;
    head.onkeydown = event => { if (event.key === "Enter") sort(); };
  });
  // A spreadsheet takes such texts for formulas.
  const plain = text => /^[=+\-@\t\r]/.test(text) && isNaN(text) ? `'${text}` : text;
  const quoted = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const csv = () => [heads.map(head => head.textContent), ...[...body.rows].map(row => heads.map((_, i) => shown(row, i)))]
    .map(cells => cells.map(plain).map(quoted).join(",")).join("\n") + "\n";
  const caption = table.closest("figure").querySelector("figcaption");
  const button = (text, act) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.onclick = () => act(made);
    caption.append(" ", made);
  };
  button("Copy as CSV", made => {
    const area = Object.assign(document.createElement("textarea"), {value: csv()});
    document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    made.textContent = "Copied";
  });
  button("Download", () => {
    const href = "data:text/csv;charset=utf-8," + encodeURIComponent("\ufeff" + csv());
    Object.assign(document.createElement("a"), {href, download: `${caption.id}.csv`}).click();
  });
}
