// One chart: a card with a metric's name, its last value, and its curves.

import { colourOf, make, makeSvg, replace } from "./dom.js";
import { shortNumber, spanOf, tickLabel, unitOf, withUnit } from "./format.js";
import { pointAt, showPoint } from "./pointer.js";
import { heightRange, logTicks, pixelScale, roundTicks, timeTicks } from "./scale.js";
import { drawnIndices } from "./series.js";

const HEIGHT = 168;
const WIDE_HEIGHT = 340;
const FEW = 30;

// A card and what can be done with it: draw(series, options) and point(x or null, the card pointed at).
export function chartCard(key, onPoint) {
  const svg = makeSvg("svg", { class: "plot", role: "img", "aria-label": key });
  const tip = make("div", { class: "tip", hidden: true });
  const values = make("span", { class: "values" });
  const name = make("button", { class: "metric", title: `${key}: click to enlarge` }, key.replace(/^[^/]*\//, ""));
  const caption = make("figcaption", {}, name, values);
  const element = make("figure", { class: "card chart", "data-key": key }, caption, svg, tip);
  const card = { key, svg, tip, values, element, series: [], options: null, frame: null };
  name.addEventListener("click", () => {
    element.classList.toggle("wide");
    drawCard(card);
  });
  svg.addEventListener("pointermove", (event) => onPoint(pointAt(card, event), card));
  svg.addEventListener("pointerleave", () => onPoint(null, card));
  return {
    element,
    draw: (series, options) => drawCard(Object.assign(card, { series, options })),
    point: (x, here) => showPoint(card, x, here === card),
  };
}

function drawCard(card) {
  const { svg, series, options } = card;
  if (!options) return;
  const width = Math.max(240, svg.clientWidth || 360);
  const height = card.element.classList.contains("wide") ? WIDE_HEIGHT : HEIGHT;
  const unit = unitOf(card.key);
  const yRange = shownRange(series, unit, options.log);
  const ticks = options.log ? logTicks(...yRange) : roundTicks(...yRange, height > HEIGHT ? 6 : 4);
  const labels = ticks.map((tick) => tickLabel(tick, unit));
  const left = 12 + 6.4 * Math.max(2, ...labels.map((label) => label.length));
  const frame = { left, right: width - 12, top: 8, bottom: height - 24, unit, xRange: options.xRange };
  frame.x = pixelScale(options.xRange, [frame.left, frame.right], false);
  frame.y = pixelScale(yRange, [frame.bottom, frame.top], options.log);
  card.frame = frame;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const curves = series.map((one) => curvePaths(one, frame));
  replace(svg, heightAxis(frame, ticks, labels), lengthAxis(frame, options), curves, makeSvg("g", { class: "cursor" }));
  replace(card.values, lastValues(series, unit));
}

function shownRange(series, unit, log) {
  const tails = series.flatMap((one) => (one.tails ?? []).flatMap((tail) => tail.y));
  const lines = series.flatMap((one) => [...one.y, ...(one.raw ?? []), ...(one.low ?? []), ...(one.high ?? [])]);
  const heights = [...lines, ...tails];
  const [low, high] = heightRange(heights, log);
  // no share is above one
  return unit === "%" && heights.every((height) => height <= 1) ? [low, Math.min(high, 1.04)] : [low, high];
}

function heightAxis(frame, ticks, labels) {
  const lines = ticks.flatMap((tick, index) => {
    const y = frame.y(tick).toFixed(1);
    const line = makeSvg("line", { x1: frame.left, x2: frame.right, y1: y, y2: y });
    return [line, makeSvg("text", { x: frame.left - 6, y, dy: "0.32em", class: "y" }, labels[index])];
  });
  return makeSvg("g", { class: "axes" }, lines);
}

function lengthAxis(frame, { axis, xRange }) {
  const count = Math.max(2, Math.floor((frame.right - frame.left) / 62));
  const timed = axis === "time";
  const ticks = timed ? timeTicks(...xRange, count) : roundTicks(...xRange, count).filter(Number.isInteger);
  const y = frame.bottom + 16;
  // the axis's own name stands at its end
  const labels = ticks.filter((tick) => frame.x(tick) <= frame.right - 44).map((tick) =>
    makeSvg("text", { x: frame.x(tick).toFixed(1), y, class: "x" }, timed ? spanOf(tick) : shortNumber(tick)));
  return makeSvg("g", { class: "axes" }, makeSvg("text", { x: frame.right, y, class: "name" }, axis), labels);
}

function curvePaths(one, frame) {
  const group = makeSvg("g", { class: `series ${colourOf(one.colour)}` });
  const kept = drawnIndices(one.x, one.y, Math.round(frame.right - frame.left));
  const place = (ys, at) => [frame.x(one.x[at]).toFixed(1), frame.y(ys[at]).toFixed(1)];
  const path = (ys, indices) => indices.map((at, order) => (order ? "L" : "M") + place(ys, at).join(" ")).join("");
  if (one.low) {
    const back = path(one.low, [...kept].reverse()).replace("M", "L");
    group.append(makeSvg("path", { class: "band", d: `${path(one.high, kept)}${back}Z` }));
  }
  if (one.raw) group.append(makeSvg("path", { class: "raw", d: path(one.raw, kept) }));
  for (const tail of one.tails ?? []) {
    const points = tail.x.map((x, at) => `${frame.x(x).toFixed(1)} ${frame.y(tail.y[at]).toFixed(1)}`);
    group.append(makeSvg("path", { class: "raw", d: `M${points.join("L")}` }));
  }
  group.append(makeSvg("path", { class: "line", d: path(one.y, kept) }));
  if (one.x.length <= FEW) {
    for (const [cx, cy] of kept.map((at) => place(one.y, at))) group.append(makeSvg("circle", { cx, cy, r: 2.2 }));
  }
  return group;
}

function lastValues(series, unit) {
  const drawn = series.filter((one) => one.y.length);
  if (drawn.length > 3) return [];
  return drawn.map((one) =>
    make("b", { class: series.length > 1 ? colourOf(one.colour) : "" }, withUnit((one.raw ?? one.y).at(-1), unit)));
}
