// One chart: a card with a metric's name, its last value, and curves that tell their numbers under the pointer.

import { make, makeSvg, replace } from "./dom.js";
import { shortNumber, spanOf, tickLabel, unitOf, withUnit } from "./format.js";
import { heightRange, logTicks, pixelScale, roundTicks, timeTicks } from "./scale.js";
import { drawnIndices, nearestIndex } from "./series.js";

const HEIGHT = 168;
const WIDE_HEIGHT = 340;
export const COLOURS = 8;

// A card and what can be done with it: draw(series, options) and point(x or null).
export function chartCard(key, onPoint) {
  const svg = makeSvg("svg", { class: "plot", role: "img", "aria-label": key });
  const tip = make("div", { class: "tip", hidden: true });
  const values = make("span", { class: "values" });
  const name = make("button", { class: "metric", title: `${key}: click to enlarge` }, key.replace(/^[^/]*\//, ""));
  const element = make("figure", { class: "card chart", "data-key": key }, make("figcaption", {}, name, values), svg, tip);
  const card = { key, svg, tip, values, element, series: [], options: null, frame: null };
  name.addEventListener("click", () => {
    element.classList.toggle("wide");
    drawCard(card);
  });
  svg.addEventListener("pointermove", (event) => onPoint(pointedAt(card, event), card));
  svg.addEventListener("pointerleave", () => onPoint(null, card));
  return { element, draw: (series, options) => drawCard(Object.assign(card, { series, options })), point: (x, here) => pointCard(card, x, here === card) };
}

function drawCard(card) {
  const { svg, element, series, options, key } = card;
  if (!options) return;
  const width = Math.max(240, svg.clientWidth || 360);
  const height = element.classList.contains("wide") ? WIDE_HEIGHT : HEIGHT;
  const unit = unitOf(key);
  const heights = series.flatMap((one) => [...one.y, ...(one.raw ?? []), ...(one.low ?? []), ...(one.high ?? [])]);
  const yRange = heightRange(heights, options.log);
  // no share is above one
  if (unit === "%" && heights.every((height) => height <= 1)) yRange[1] = Math.min(yRange[1], 1.04);
  const ticks = options.log ? logTicks(...yRange) : roundTicks(...yRange, height > HEIGHT ? 6 : 4);
  const labels = ticks.map((tick) => tickLabel(tick, unit));
  const left = 12 + 6.4 * Math.max(2, ...labels.map((label) => label.length));
  const frame = { left, right: width - 12, top: 8, bottom: height - 24, unit };
  frame.x = pixelScale(options.xRange, [frame.left, frame.right], false);
  frame.y = pixelScale(yRange, [frame.bottom, frame.top], options.log);
  frame.xRange = options.xRange;
  card.frame = frame;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  replace(svg, axes(frame, ticks, labels, options), series.map((one) => curvePaths(one, frame)), makeSvg("g", { class: "cursor" }));
  replace(card.values, lastValues(series, unit));
}

function axes(frame, ticks, labels, options) {
  const group = makeSvg("g", { class: "axes" });
  ticks.forEach((tick, index) => {
    const y = frame.y(tick).toFixed(1);
    group.append(makeSvg("line", { x1: frame.left, x2: frame.right, y1: y, y2: y }));
    group.append(makeSvg("text", { x: frame.left - 6, y, dy: "0.32em", class: "y" }, labels[index]));
  });
  const timed = options.axis === "time";
  const count = Math.max(2, Math.floor((frame.right - frame.left) / 62));
  const along = timed ? timeTicks(...options.xRange, count) : roundTicks(...options.xRange, count).filter(Number.isInteger);
  const name = timed ? "time" : "step";
  group.append(makeSvg("text", { x: frame.right, y: frame.bottom + 16, class: "name" }, name));
  for (const tick of along) {
    if (frame.x(tick) > frame.right - 44) continue;
    const label = timed ? spanOf(tick) : shortNumber(tick);
    group.append(makeSvg("text", { x: frame.x(tick).toFixed(1), y: frame.bottom + 16, class: "x" }, label));
  }
  return group;
}

function curvePaths(one, frame) {
  const group = makeSvg("g", { class: `series c${one.colour % COLOURS}` });
  if (!one.x.length) return group;
  const kept = drawnIndices(one.x, one.y, Math.round(frame.right - frame.left));
  const path = (ys, indices) => indices.map((at, order) => `${order ? "L" : "M"}${frame.x(one.x[at]).toFixed(1)} ${frame.y(ys[at]).toFixed(1)}`).join("");
  if (one.low) {
    const back = path(one.low, [...kept].reverse()).replace("M", "L");
    group.append(makeSvg("path", { class: "band", d: `${path(one.high, kept)}${back}Z` }));
  }
  if (one.raw) group.append(makeSvg("path", { class: "raw", d: path(one.raw, kept) }));
  group.append(makeSvg("path", { class: "line", d: path(one.y, kept) }));
  if (one.x.length <= 30) {
    for (const at of kept) group.append(makeSvg("circle", { cx: frame.x(one.x[at]).toFixed(1), cy: frame.y(one.y[at]).toFixed(1), r: 2.2 }));
  }
  return group;
}

function lastValues(series, unit) {
  const drawn = series.filter((one) => one.y.length);
  if (drawn.length > 3) return [];
  return drawn.map((one) => make("b", { class: series.length > 1 ? `c${one.colour % COLOURS}` : "" }, withUnit((one.raw ?? one.y).at(-1), unit)));
}

function pointedAt({ svg, frame }, event) {
  if (!frame) return null;
  const box = svg.getBoundingClientRect();
  const share = (event.clientX - box.left - frame.left) / (frame.right - frame.left);
  const [low, high] = frame.xRange;
  return share < -0.02 || share > 1.02 ? null : low + Math.min(1, Math.max(0, share)) * (high - low);
}

function pointCard({ svg, tip, frame, series, options }, x, here) {
  const cursor = svg.querySelector(".cursor");
  tip.hidden = !(here && x !== null);
  if (!cursor || !frame) return;
  replace(cursor);
  if (x === null) return;
  const found = series.map((one) => ({ one, at: nearestIndex(one.x, x) })).filter(({ at }) => at >= 0);
  if (!found.length) return;
  const nearest = found.reduce((a, b) => (Math.abs(a.one.x[a.at] - x) <= Math.abs(b.one.x[b.at] - x) ? a : b));
  const across = frame.x(nearest.one.x[nearest.at]);
  cursor.append(makeSvg("line", { x1: across, x2: across, y1: frame.top, y2: frame.bottom }));
  for (const { one, at } of found) {
    cursor.append(makeSvg("circle", { class: `c${one.colour % COLOURS}`, cx: frame.x(one.x[at]), cy: frame.y(one.y[at]), r: 3.2 }));
  }
  if (!here) return;
  const where = options.axis === "time" ? spanOf(nearest.one.x[nearest.at]) : `step ${nearest.one.x[nearest.at].toLocaleString("en")}`;
  replace(tip, make("div", { class: "where" }, where), found.map((each) => tipRow(each, frame.unit, series.length > 1)));
  const leftward = across > (frame.left + frame.right) / 2;
  tip.style.left = leftward ? "" : `${across + 18}px`;
  tip.style.right = leftward ? `${svg.clientWidth - across + 18}px` : "";
}

function tipRow({ one, at }, unit, named) {
  const band = one.low ? make("i", {}, ` ${withUnit(one.low[at], unit)} to ${withUnit(one.high[at], unit)}`) : null;
  const raw = one.raw ? make("i", {}, ` recorded ${withUnit(one.raw[at], unit)}`) : null;
  return make("div", { class: `c${one.colour % COLOURS}` }, named ? make("span", {}, one.label) : null, make("b", {}, withUnit(one.y[at], unit)), band, raw);
}
