"use strict";
const MEAN = -1;
const BEST = 6; // words listed for a row
const LONGEST = 60; // characters of a label that are shown
const { maps, pictures } = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const state = { map: 0, head: MEAN, row: 0, column: 0, held: false };
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
const inkColour = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();

function rowOf(map, head, row) {
  if (head !== MEAN) return map.weights[head][row];
  return map.columns.map((_, column) => map.weights.reduce((total, each) => total + each[row][column], 0) / map.weights.length);
}

const matrixOf = (map, head) => map.rows.map((_, row) => rowOf(map, head, row));

// How a map is drawn follows from its axes.

function viewOf(map) {
  if (map.axes.columns.kind === "grid" || map.axes.rows.kind === "grid") return pictureView;
  return map.axes.columns.kind === "frames" ? soundView : tableView;
}

// The weight that is darkest: 1 where columns are few, else the largest, but not so little that an even row is dark.

function scaleOf(matrix) {
  return find("stretch").checked ? largest(matrix) || 1 : 1;
}

function topOf(map, row) {
  const most = Math.max(...row);
  return find("stretch").checked ? most || 1 : Math.max(most, map.darkest);
}

// Heads as small pictures, a pixel for each weight.

function drawHeads() {
  const map = maps[state.map];
  const several = map.weights.length > 1;
  find("heads").hidden = !several;
  const heads = several ? [MEAN, ...map.weights.keys()] : [];
  const looked = map.axes.columns.kind === "grid" ? map.axes.columns : null; // then a head is what the row looked at
  find("thumbs").replaceChildren(...heads.map((head) => {
    const label = make("label", "head");
    const input = make("input");
    input.type = "radio";
    input.name = "head";
    input.checked = head === state.head;
    input.addEventListener("change", () => { state.head = head; drawMap(); });
    const picture = make("canvas", looked ? "cells" : "");
    picture.width = looked ? looked.width : map.columns.length;
    picture.height = looked ? looked.height : map.rows.length;
    const matrix = matrixOf(map, head);
    if (!looked) paint(picture, matrix, viewOf(map) === tableView ? scaleOf(matrix) : topOf(map, matrix.map((row) => Math.max(...row))));
    label.append(input, picture, make("span", "", head === MEAN ? "mean" : `head ${head + 1}`));
    return label;
  }));
}

function paint(picture, matrix, top) {
  const pen = picture.getContext("2d");
  pen.fillStyle = inkColour();
  matrix.forEach((row, y) => row.forEach((weight, x) => {
    pen.globalAlpha = Math.min(1, weight / top);
    pen.fillRect(x, y, 1, 1);
  }));
}

// The two sentences. Pieces that begin a word start with ▁; without any such mark every label is a word.

function drawSentence(place, labels, axis) {
  const words = axis.kind === "tokens";
  place.hidden = place.previousElementSibling.hidden = !words;
  const pieces = labels.some((label) => label.startsWith("▁"));
  const special = (label) => /^<\w+>$/.test(label);
  place.replaceChildren();
  place.classList.toggle("pieces", pieces);
  if (!words) return;
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
  const which = map.weights.length === 1 ? "" : state.head === MEAN ? `, mean of ${map.weights.length} heads` : `, head ${state.head + 1}`;
  find("name").textContent = plain(map.name) + which;
  document.documentElement.style.setProperty("--top", scaleOf(weights));
  const view = viewOf(map);
  for (const each of [tableView, pictureView, soundView]) find(each.place).hidden = each !== view;
  view.draw(map);
  find("hint").textContent = view.hint;
  hideTip();
  showRow(state.row);
}

function drawAll() {
  const map = maps[state.map];
  const { kind, height, width } = map.axes.rows;
  state.row = kind === "grid" ? Math.floor(height / 2) * width + Math.floor(width / 2) : 0;
  drawHeads();
  drawSentence(find("looking"), map.rows, map.axes.rows);
  drawSentence(find("looked"), map.columns, map.axes.columns);
  find("sentences").hidden = find("looking").hidden && find("looked").hidden;
  drawMap();
}

// One row: where it looked.

function showRow(number) {
  state.row = number;
  const map = maps[state.map];
  const row = weights[number];
  const view = viewOf(map);
  view.show(number);
  drawLegend(map, view);
  [...find("looking").children].forEach((token, each) => token.classList.toggle("on", each === number));
  [...find("looked").children].forEach((token, each) => {
    token.classList.add("shade");
    token.style.setProperty("--w", row[each]);
    token.title = percent(row[each], 2) + " %";
  });
  find("word").textContent = spoken(map.rows[number]);
  find("verb").textContent = state.held ? "looked at (held)" : "looked at";
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

function drawLegend(map, view) {
  const heat = view === pictureView && gridOf(map).picture !== null;
  const most = view === pictureView ? weights[state.row] : weights.map((row) => Math.max(...row));
  const top = view === tableView ? scaleOf(weights) : topOf(map, most);
  find("scale").classList.toggle("heat", heat);
  find("top").textContent = percent(top, top < 0.01 ? 1 : 0) + " %";
}

function markColumn(number) {
  viewOf(maps[state.map]).mark(number);
  [...find("looked").children].forEach((token, each) => token.classList.toggle("on", each === number));
}

// Pointing, holding, moving with keys.

function showTip(row, column, box) {
  markColumn(column);
  const map = maps[state.map];
  const weight = percent(weights[row][column], 2);
  const tip = find("tip");
  tip.textContent = `\u2068${spoken(map.rows[row])}\u2069 → \u2068${spoken(map.columns[column])}\u2069  ${weight} %`;
  tip.hidden = false;
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

// Where an arrow key leads from a place among so many rows and columns; Enter holds the row.

function step(event, place, count) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  let { row, column } = place;
  if (event.key === "ArrowUp") row = Math.max(0, row - 1);
  else if (event.key === "ArrowDown") row = Math.min(count.row - 1, row + 1);
  else if (event.key === "ArrowLeft") column = Math.max(0, column - 1);
  else if (event.key === "ArrowRight") column = Math.min(count.column - 1, column + 1);
  else if (event.key === "Home") column = 0;
  else if (event.key === "End") column = count.column - 1;
  else if (event.key === "Enter" || event.key === " ") hold(viewOf(maps[state.map]) === tableView ? row : state.row);
  else return null;
  event.preventDefault();
  return { row, column };
}

function start() {
  const choice = find("map");
  choice.append(...maps.map((map, number) => new Option(plain(map.name), number)));
  choice.addEventListener("change", () => {
    Object.assign(state, { map: choice.selectedIndex, head: MEAN, column: 0, held: false });
    drawAll();
  });
  find("stretch").addEventListener("change", () => { drawHeads(); drawMap(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawHeads(); drawMap(); });

  for (const view of [tableView, pictureView, soundView]) view.start();
  const word = (event) => (event.target.dataset.number === undefined ? null : Number(event.target.dataset.number));
  find("looking").addEventListener("pointerover", (event) => { if (!state.held && word(event) !== null) showRow(word(event)); });
  find("looking").addEventListener("click", (event) => { if (word(event) !== null) hold(word(event)); });
  find("looked").addEventListener("pointerover", (event) => { if (word(event) !== null) markColumn(word(event)); });
  find("looked").addEventListener("pointerleave", () => markColumn(-2));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") release(); });
  document.addEventListener("scroll", () => { find("tip").hidden = true; }, true);

  for (const id of ["controls", "reading"]) find(id).hidden = false;
  drawAll();
}

start();
