"use strict";
// An image that is looked at, or whose cells look: the weights of a row lie over it.

const HEAT = [[254, 217, 118], [252, 78, 42], [177, 0, 38]]; // from little to much
const OPAQUE = 0.75;
const FINE = 64; // pixels of the weights over an image; the browser does the rest

const pictureView = {
  place: "pictured",

  get hint() {
    return gridRows()
      ? "Point at a cell of the image, or move with the arrow keys, to see where it looked. A click or Enter holds it; Escape lets go."
      : "Point at a word or a picture to see where it looked, and at the image to read a weight. A click holds the word; Escape lets go.";
  },

  draw(map) {
    const grid = gridOf(map);
    const large = pictureOf(map, "large");
    large.tabIndex = 0;
    large.setAttribute("role", "img");
    large.append(make("div", "spot asking"), make("div", "spot pointed"));
    large.addEventListener("pointermove", (event) => pointAtImage(large, cellUnder(event, large, grid)));
    large.addEventListener("pointerleave", hideTip);
    large.addEventListener("click", (event) => hold(gridRows() ? cellUnder(event, large, grid) : state.row));
    large.addEventListener("keydown", moveInImage);
    const gallery = make("div", "gallery");
    if (grid.picture !== null) {
      const whole = make("figure", "small");
      whole.append(imageOf(grid), make("figcaption", "", "image"));
      gallery.append(whole);
    }
    if (map.axes.rows.kind === "tokens") {
      gallery.append(...map.rows.map((label, number) => {
        const button = make("button", "small");
        button.type = "button";
        const picture = pictureOf(map, "", number);
        glow(picture, weights[number], grid);
        button.append(picture, make("span", "", spoken(label)));
        button.addEventListener("pointerenter", () => { if (!state.held) showRow(number); });
        button.addEventListener("focus", () => { if (!state.held) showRow(number); });
        button.addEventListener("click", () => hold(number));
        return button;
      }));
    }
    find("pictured").replaceChildren(large, gallery);
  },

  show(number) {
    const map = maps[state.map];
    const large = find("pictured").firstChild;
    large.setAttribute("aria-label", `${spoken(map.rows[number])}: the image and where it looked`);
    large.classList.toggle("held", state.held);
    if (gridOf(map).each) large.querySelector("img").src = imageOf(gridOf(map), number).src;
    const looked = map.axes.columns.kind === "grid";
    glow(large, looked ? weights[number] : weights.map(() => 0), gridOf(map));
    spot(large.querySelector(".asking"), gridRows() ? number : -1, map.axes.rows);
    find("pictured").querySelectorAll("button").forEach((button, each) => {
      button.classList.toggle("on", each === number);
      button.setAttribute("aria-pressed", each === number && state.held);
    });
    document.querySelectorAll("#thumbs canvas").forEach((canvas, each) => {
      const row = rowOf(map, each - 1, number); // the mean comes before the first head
      if (looked) paintCells(canvas, row, gridOf(map), topOf(map, row));
    });
  },

  // Where the cells of the image look at words: the cells that looked at this one.
  mark(column) {
    const map = maps[state.map];
    const large = find("pictured").firstChild;
    if (map.axes.columns.kind === "grid") spot(large.querySelector(".pointed"), column, map.axes.columns);
    else glow(large, weights.map((row) => (column < 0 ? 0 : row[column])), gridOf(map));
  },

  start() {},
};

const gridRows = () => maps[state.map].axes.rows.kind === "grid";
const gridOf = (map) => (map.axes.columns.kind === "grid" ? map.axes.columns : map.axes.rows);

// The image of a row, where each has its own; else that of all.
function imageOf(axis, row) {
  const image = make("img");
  image.src = pictures[axis.each?.[row] ?? axis.picture];
  image.alt = "";
  image.draggable = false;
  return image;
}

function pictureOf(map, className, row) {
  const grid = gridOf(map);
  const box = make("div", `picture ${className}`);
  if (grid.picture !== null) box.append(imageOf(grid, row));
  else box.style.aspectRatio = `${grid.width} / ${grid.height}`;
  box.classList.toggle("bare", grid.picture === null);
  const canvas = make("canvas");
  canvas.width = grid.width;
  canvas.height = grid.height;
  box.append(canvas);
  return box;
}

// Over an image the weights are smooth, in heat; without one, and in small, they are cells.

function glow(box, row, grid) {
  const canvas = box.querySelector("canvas");
  const top = topOf(maps[state.map], row);
  if (grid.picture === null) return paintCells(canvas, row, grid, top);
  const times = Math.ceil(FINE / Math.max(grid.width, grid.height));
  const [wide, high] = [times * grid.width, times * grid.height];
  const pixels = new ImageData(wide, high);
  smoothed(row, grid, times).forEach((weight, place) => {
    const part = Math.max(0, Math.min(1, weight / top));
    pixels.data.set([...heatColour(part), 255 * OPAQUE * part], 4 * place);
  });
  canvas.width = wide;
  canvas.height = high;
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

function paintCells(canvas, row, grid, top) {
  canvas.getContext("2d").clearRect(0, 0, grid.width, grid.height);
  paint(canvas, linesOf(row, grid.width), top);
}

const linesOf = (row, width) => Array.from({ length: row.length / width }, (_, line) => row.slice(line * width, (line + 1) * width));
const turned = (lines) => lines[0].map((_, column) => lines.map((line) => line[column]));

function smoothed(row, grid, times) {
  const wide = linesOf(row, grid.width).map((line) => enlarged(line, times));
  return turned(turned(wide).map((line) => enlarged(line, times))).flat();
}

// A cubic curve through four neighbours at a time (Catmull and Rom 1974).
function enlarged(line, times) {
  return Array.from({ length: line.length * times }, (_, place) => {
    const at = (place + 0.5) / times - 0.5;
    const from = Math.floor(at);
    const t = at - from;
    const [a, b, c, d] = [-1, 0, 1, 2].map((each) => line[Math.max(0, Math.min(line.length - 1, from + each))]);
    return b + (t / 2) * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  });
}

function heatColour(part) {
  const from = Math.min(HEAT.length - 2, Math.floor(part * (HEAT.length - 1)));
  const rest = part * (HEAT.length - 1) - from;
  return HEAT[from].map((colour, each) => colour + rest * (HEAT[from + 1][each] - colour));
}

function spot(frame, place, axis) {
  frame.hidden = place < 0;
  frame.style.left = `${(100 * (place % axis.width)) / axis.width}%`;
  frame.style.top = `${(100 * Math.floor(place / axis.width)) / axis.height}%`;
  frame.style.width = `${100 / axis.width}%`;
  frame.style.height = `${100 / axis.height}%`;
}

function cellUnder(event, box, grid) {
  const area = box.getBoundingClientRect();
  const within = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
  const row = within((event.clientY - area.top) / area.height, grid.height);
  return row * grid.width + within((event.clientX - area.left) / area.width, grid.width);
}

function areaOf(box, place, grid) {
  const area = box.getBoundingClientRect();
  const [wide, high] = [area.width / grid.width, area.height / grid.height];
  return new DOMRect(area.left + (place % grid.width) * wide, area.top + Math.floor(place / grid.width) * high, wide, high);
}

function pointAtImage(box, place) {
  const map = maps[state.map];
  if (gridRows() && !state.held && place !== state.row) showRow(place);
  if (map.axes.columns.kind === "grid") showTip(state.row, place, areaOf(box, place, gridOf(map)));
}

function moveInImage(event) {
  const axis = maps[state.map].axes.rows;
  if (gridRows()) {
    const place = { row: Math.floor(state.row / axis.width), column: state.row % axis.width };
    const moved = step(event, place, { row: axis.height, column: axis.width });
    if (moved) showRow(moved.row * axis.width + moved.column);
  } else {
    const moved = step(event, { row: 0, column: state.row }, { row: 1, column: axis.size });
    if (moved) showRow(moved.column);
  }
}
