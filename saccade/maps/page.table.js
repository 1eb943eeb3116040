"use strict";
// Words that look at words: a table, one cell of which is in the tab order, the one that was last in focus.

const tableView = {
  place: "tabled",
  hint: "Point at a row, or move with the arrow keys. A click or Enter holds the row; Escape lets go.",

  draw(map) {
    const labels = make("tr");
    labels.append(make("td"), ...map.columns.map((label, number) => header("col", label, map.axes.columns, number)));
    const rows = weights.map((row, number) => {
      const line = make("tr");
      line.append(header("row", map.rows[number], map.axes.rows, number), ...row.map((weight) => {
        const cell = make("td", "shade", percent(weight));
        cell.style.setProperty("--w", weight);
        cell.tabIndex = -1;
        return cell;
      }));
      return line;
    });
    const table = find("table");
    table.tHead.replaceChildren(labels);
    table.tBodies[0].replaceChildren(...rows);
    table.style.setProperty("--columns", map.columns.length);
    rows[state.row].cells[1].tabIndex = 0;
  },

  show(number) {
    const table = find("table");
    table.classList.toggle("held", state.held);
    [...table.tBodies[0].rows].forEach((line, each) => line.classList.toggle("on", each === number));
  },

  mark(column) {
    [...find("table").tHead.rows[0].cells].forEach((cell, each) => cell.classList.toggle("on", each === column + 1));
  },

  start() {
    const table = find("table");
    table.setAttribute("role", "grid");
    table.className = "live";
    table.addEventListener("pointerover", (event) => pointAtCell(event.target));
    table.addEventListener("pointerleave", hideTip);
    table.addEventListener("focusin", (event) => { enter(event.target); pointAtCell(event.target); });
    table.addEventListener("focusout", hideTip);
    table.addEventListener("keydown", moveInTable);
    table.addEventListener("click", (event) => { const place = placeOf(event.target); if (place) hold(place.row); });
  },
};

function header(scope, label, axis, number) {
  const cell = make("th");
  cell.scope = scope;
  cell.append(make("span", "", plain(label)));
  if (axis.each) cell.append(imageOf(axis, number));
  return cell;
}

function placeOf(target) {
  const line = target instanceof Element ? target.closest("tbody tr") : null;
  if (!line) return null;
  const cell = target.closest("td");
  return { row: line.sectionRowIndex, column: cell ? cell.cellIndex - 1 : -1, cell };
}

function pointAtCell(target) {
  const place = placeOf(target);
  if (!place) return hideTip();
  if (!state.held && place.row !== state.row) showRow(place.row);
  if (!place.cell) return hideTip();
  showTip(place.row, place.column, place.cell.getBoundingClientRect());
}

function enter(cell) {
  find("table").querySelectorAll('td[tabindex="0"]').forEach((each) => { each.tabIndex = -1; });
  cell.tabIndex = 0;
}

function moveInTable(event) {
  const place = placeOf(event.target);
  if (!place || !place.cell) return;
  const moved = step(event, place, { row: weights.length, column: weights[0].length });
  if (!moved) return;
  find("table").tBodies[0].rows[moved.row].cells[moved.column + 1].focus();
}
