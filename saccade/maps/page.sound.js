"use strict";
// Time that is listened to: the spectrogram, beneath it a line of shades for each row, and seconds.

const SIDE_BY_SIDE = 8; // numbers on a time scale, at most

const soundView = {
  place: "heard",
  hint: "Point at a row, or move with the arrow keys. A click or Enter holds the row; Escape lets go.",

  draw(map) {
    const time = map.axes.columns;
    const lines = make("div", "lines");
    lines.tabIndex = 0;
    lines.setAttribute("role", "img");
    const canvas = make("canvas");
    canvas.width = map.columns.length;
    canvas.height = map.rows.length;
    paint(canvas, weights, topOf(map, weights.map((row) => Math.max(...row))));
    lines.append(canvas, make("div", "row"));
    const spoke = map.axes.rows.kind === "tokens";
    lines.style.height = spoke ? `${Math.max(6, 1.2 * map.rows.length)}rem` : "26rem";
    lines.addEventListener("pointermove", (event) => pointAtTime(lines, event));
    lines.addEventListener("pointerleave", hideTip);
    lines.addEventListener("click", () => hold(state.row));
    lines.addEventListener("keydown", moveInTime);
    lines.addEventListener("blur", hideTip);
    const labels = make("div", "labels");
    labels.append(...(spoke ? lettersOf(map) : scaleAlong(map.axes.rows, "top")));
    const seconds = make("div", "seconds");
    seconds.append(...scaleAlong(time, "left"));
    const parts = [labels, lines, make("div"), seconds];
    if (time.picture !== null) {
      const spectrum = imageOf(time);
      spectrum.className = "spectrum";
      parts.unshift(make("div"), spectrum);
    }
    find("heard").replaceChildren(...parts);
  },

  show(number) {
    const map = maps[state.map];
    const row = find("heard").querySelector(".row");
    row.style.top = `${(100 * number) / map.rows.length}%`;
    row.style.height = `${100 / map.rows.length}%`;
    row.classList.toggle("held", state.held);
    find("heard").querySelector(".lines").setAttribute("aria-label", `${spoken(map.rows[number])}: when it listened`);
    find("heard").querySelectorAll("[data-number]").forEach((label) => label.classList.toggle("on", Number(label.dataset.number) === number));
  },

  mark(column) { state.column = Math.max(0, column); },

  start() {},
};

function lettersOf(map) {
  return map.rows.map((label, number) => {
    const letter = make("span", "", spoken(label));
    letter.style.top = `${(100 * (number + 0.5)) / map.rows.length}%`;
    letter.dataset.number = number;
    letter.addEventListener("pointerenter", () => { if (!state.held) showRow(number); });
    letter.addEventListener("click", () => hold(number));
    return letter;
  });
}

function scaleAlong(axis, side) {
  const whole = axis.size * axis.seconds;
  const power = 10 ** Math.floor(Math.log10(whole / SIDE_BY_SIDE));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => whole / each <= SIDE_BY_SIDE);
  const places = Array.from({ length: Math.floor(whole / step + 1e-9) + 1 }, (_, number) => number * step);
  return places.map((place) => {
    const tick = make("span", "", place ? String(Number(place.toPrecision(6))) : "0 s");
    tick.style[side] = `${(100 * place) / whole}%`;
    return tick;
  });
}

function pointAtTime(lines, event) {
  const map = maps[state.map];
  const area = lines.getBoundingClientRect();
  const within = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
  const row = within((event.clientY - area.top) / area.height, map.rows.length);
  const column = within((event.clientX - area.left) / area.width, map.columns.length);
  if (!state.held && row !== state.row) showRow(row);
  tipInTime(lines, row, column);
}

function tipInTime(lines, row, column) {
  const area = lines.getBoundingClientRect();
  const [wide, high] = [area.width / weights[0].length, area.height / weights.length];
  showTip(row, column, new DOMRect(area.left + column * wide, area.top + row * high, wide, high));
}

function moveInTime(event) {
  const moved = step(event, { row: state.row, column: state.column }, { row: weights.length, column: weights[0].length });
  if (!moved) return;
  showRow(moved.row);
  tipInTime(event.currentTarget, moved.row, moved.column);
}
