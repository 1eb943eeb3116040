"use strict";
const MEAN = -1;
const BEST = 6; // words listed for a row
const LONGEST = 60; // characters of a label that are shown
const maps = JSON.parse(document.getElementById("data").textContent).maps;
const find = (id) => document.getElementById(id);
const state = { map: 0, head: MEAN, row: 0, held: false };
let weights = []; // of the shown map and head, rows by columns

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function plain(label) {
  const letters = Array.from(label.replace(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "·"));
  const text = letters.length > LONGEST ? letters.slice(0, LONGEST - 1).join("") + "…" : letters.join("");
  return text.trim() ? text : "␣";
}

const spoken = (label) => plain(label.replace(/^▁/, ""));
const percent = (weight, digits = 0) => (100 * weight).toFixed(digits);
const largest = (matrix) => matrix.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0);

function matrixOf(map, head) {
  if (head !== MEAN) return map.weights[head];
  const sum = (row, column) => map.weights.reduce((total, each) => total + each[row][column], 0);
  return map.rows.map((_, row) => map.columns.map((_, column) => sum(row, column) / map.weights.length));
}

function scaleOf(matrix) {
  return find("stretch").checked ? largest(matrix) || 1 : 1;
}

// Heads as small pictures, a pixel for each weight.

function drawHeads() {
  const map = maps[state.map];
  const several = map.weights.length > 1;
  find("heads").hidden = !several;
  const heads = several ? [MEAN, ...map.weights.keys()] : [];
  find("thumbs").replaceChildren(...heads.map((head) => {
    const label = make("label", "head");
    const input = make("input");
    input.type = "radio";
    input.name = "head";
    input.checked = head === state.head;
    input.addEventListener("change", () => { state.head = head; drawMap(); });
    const picture = make("canvas");
    picture.width = map.columns.length;
    picture.height = map.rows.length;
    paint(picture, matrixOf(map, head));
    label.append(input, picture, make("span", "", head === MEAN ? "mean" : `head ${head + 1}`));
    return label;
  }));
}

function paint(picture, matrix) {
  const pen = picture.getContext("2d");
  const top = scaleOf(matrix);
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  matrix.forEach((row, y) => row.forEach((weight, x) => {
    pen.globalAlpha = Math.min(1, weight / top);
    pen.fillRect(x, y, 1, 1);
  }));
}

// The two sentences. Pieces that begin a word start with ▁; without any such mark every label is a word.

function drawSentence(place, labels) {
  const pieces = labels.some((label) => label.startsWith("▁"));
  const special = (label) => /^<\w+>$/.test(label);
  place.replaceChildren();
  place.classList.toggle("pieces", pieces);
  labels.forEach((label, number) => {
    const starts = !pieces || label.startsWith("▁") || special(label) || special(labels[number - 1] || "");
    if (number && starts) place.append(" ");
    const token = make("span", "token", spoken(label));
    token.dataset.number = number;
    place.append(token);
  });
}

// The map.

function drawMap() {
  const map = maps[state.map];
  weights = matrixOf(map, state.head);
  const top = scaleOf(weights);
  document.documentElement.style.setProperty("--top", top);
  find("top").textContent = percent(top) + " %";
  const which = map.weights.length === 1 ? "" : state.head === MEAN ? `, mean of ${map.weights.length} heads` : `, head ${state.head + 1}`;
  find("name").textContent = plain(map.name) + which;

  const labels = make("tr");
  labels.append(make("td"), ...map.columns.map((label) => header("col", label)));
  const rows = weights.map((row, number) => {
    const line = make("tr");
    line.append(header("row", map.rows[number]), ...row.map((weight) => {
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
  hideTip();
  showRow(state.row);
}

function header(scope, label) {
  const cell = make("th");
  cell.scope = scope;
  cell.append(make("span", "", plain(label)));
  return cell;
}

function drawAll() {
  const map = maps[state.map];
  drawHeads();
  drawSentence(find("looking"), map.rows);
  drawSentence(find("looked"), map.columns);
  drawMap();
}

// One row: where it looked.

function showRow(number) {
  state.row = number;
  const map = maps[state.map];
  const row = weights[number];
  [...find("table").tBodies[0].rows].forEach((line, each) => line.classList.toggle("on", each === number));
  [...find("looking").children].forEach((token, each) => token.classList.toggle("on", each === number));
  [...find("looked").children].forEach((token, each) => {
    token.classList.add("shade");
    token.style.setProperty("--w", row[each]);
    token.title = percent(row[each], 2) + " %";
  });
  find("word").textContent = spoken(map.rows[number]);
  find("verb").textContent = state.held ? "looked at (held)" : "looked at";
  find("table").classList.toggle("held", state.held);
  const order = [...row.keys()].sort((a, b) => row[b] - row[a]).filter((each) => row[each] >= 0.005).slice(0, BEST);
  find("best").replaceChildren(...order.map((each) => {
    const item = make("li");
    const bar = make("span", "bar");
    bar.style.setProperty("--w", Math.min(1, row[each]));
    bar.setAttribute("aria-hidden", "true");
    item.append(make("span", "", spoken(map.columns[each])), make("span", "percent", percent(row[each]) + " %"), bar);
    return item;
  }));
  const rest = row.reduce((a, b) => a + b, 0) - order.reduce((sum, each) => sum + row[each], 0);
  find("rest").textContent = rest >= 0.005 ? `all others ${percent(rest)} %` : "";
}

function markColumn(number) {
  [...find("table").tHead.rows[0].cells].forEach((cell, each) => cell.classList.toggle("on", each === number + 1));
  [...find("looked").children].forEach((token, each) => token.classList.toggle("on", each === number));
}

// Pointing, holding, moving with keys.

function placeOf(target) {
  const line = target instanceof Element ? target.closest("tbody tr") : null;
  if (!line) return null;
  const cell = target.closest("td");
  return { row: line.sectionRowIndex, column: cell ? cell.cellIndex - 1 : -1, cell };
}

function point(target) {
  const place = placeOf(target);
  if (!place) return hideTip();
  if (!state.held && place.row !== state.row) showRow(place.row);
  if (!place.cell) return hideTip();
  markColumn(place.column);
  const map = maps[state.map];
  const weight = percent(weights[place.row][place.column], 2);
  const tip = find("tip");
  tip.textContent = `\u2068${spoken(map.rows[place.row])}\u2069 → \u2068${spoken(map.columns[place.column])}\u2069  ${weight} %`;
  tip.hidden = false;
  const box = place.cell.getBoundingClientRect();
  const left = box.left + box.width / 2 - tip.offsetWidth / 2;
  const above = box.top - tip.offsetHeight - 6;
  const x = Math.max(6, Math.min(left, document.documentElement.clientWidth - tip.offsetWidth - 6));
  tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(above < 4 ? box.bottom + 6 : above)}px)`;
}

function hideTip() {
  find("tip").hidden = true;
  markColumn(-2);
}

function hold(row) {
  state.held = !(state.held && state.row === row);
  showRow(row);
}

function release() {
  state.held = false;
  showRow(state.row);
  hideTip();
}

// One cell at a time is in the tab order: the one that was last in focus.

function enter(cell) {
  find("table").querySelectorAll('td[tabindex="0"]').forEach((each) => { each.tabIndex = -1; });
  cell.tabIndex = 0;
}

function move(event) {
  const place = placeOf(event.target);
  if (!place || !place.cell || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = { row: weights.length - 1, column: weights[0].length - 1 };
  let { row, column } = place;
  if (event.key === "ArrowUp") row = Math.max(0, row - 1);
  else if (event.key === "ArrowDown") row = Math.min(last.row, row + 1);
  else if (event.key === "ArrowLeft") column = Math.max(0, column - 1);
  else if (event.key === "ArrowRight") column = Math.min(last.column, column + 1);
  else if (event.key === "Home") column = 0;
  else if (event.key === "End") column = last.column;
  else if (event.key === "Enter" || event.key === " ") hold(row);
  else return;
  event.preventDefault();
  const cell = find("table").tBodies[0].rows[row].cells[column + 1];
  cell.focus();
}

function start() {
  const choice = find("map");
  choice.append(...maps.map((map, number) => new Option(plain(map.name), number)));
  choice.addEventListener("change", () => {
    Object.assign(state, { map: choice.selectedIndex, head: MEAN, row: 0, held: false });
    drawAll();
  });
  find("stretch").addEventListener("change", () => { drawHeads(); drawMap(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawHeads);

  const table = find("table");
  table.setAttribute("role", "grid");
  table.classList.add("live");
  table.addEventListener("pointerover", (event) => point(event.target));
  table.addEventListener("pointerleave", hideTip);
  table.addEventListener("focusin", (event) => { enter(event.target); point(event.target); });
  table.addEventListener("focusout", hideTip);
  table.addEventListener("keydown", move);
  table.addEventListener("click", (event) => { const place = placeOf(event.target); if (place) hold(place.row); });
  const word = (event) => (event.target.dataset.number === undefined ? null : Number(event.target.dataset.number));
  find("looking").addEventListener("pointerover", (event) => { if (!state.held && word(event) !== null) showRow(word(event)); });
  find("looking").addEventListener("click", (event) => { if (word(event) !== null) hold(word(event)); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") release(); });
  document.addEventListener("scroll", () => { find("tip").hidden = true; }, true);

  for (const id of ["controls", "sentences", "reading"]) find(id).hidden = false;
  drawAll();
}

start();
