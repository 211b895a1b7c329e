// What a chart tells under the pointer.

import { colourOf, make, makeSvg, replace } from "./dom.js";
import { spanOf, withUnit } from "./format.js";
import { nearestIndex } from "./series.js";

// The step or time that the pointer is over; null beside the curves.
export function pointAt({ svg, frame }, event) {
  if (!frame) return null;
  const box = svg.getBoundingClientRect();
  const share = (event.clientX - box.left - frame.left) / (frame.right - frame.left);
  const [low, high] = frame.xRange;
  return share < -0.02 || share > 1.02 ? null : low + Math.min(1, Math.max(0, share)) * (high - low);
}

// Marks the points nearest to x in a card, and tells their numbers in the card that is pointed at.
export function showPoint({ svg, tip, frame, series, options }, x, here) {
  const cursor = svg.querySelector(".cursor");
  tip.hidden = !(here && x !== null);
  if (!cursor || !frame) return;
  replace(cursor);
  if (x === null) return;
  const found = series.map((one) => ({ one, at: nearestIndex(one.x, x) })).filter(({ at }) => at >= 0);
  if (!found.length) return;
  const distance = ({ one, at }) => Math.abs(one.x[at] - x);
  const nearest = found.reduce((a, b) => (distance(a) <= distance(b) ? a : b));
  const place = nearest.one.x[nearest.at];
  const across = frame.x(place);
  cursor.append(makeSvg("line", { x1: across, x2: across, y1: frame.top, y2: frame.bottom }));
  for (const { one, at } of found) {
    const [cx, cy] = [frame.x(one.x[at]), frame.y(one.y[at])];
    cursor.append(makeSvg("circle", { class: colourOf(one.colour), cx, cy, r: 3.2 }));
  }
  if (!here) return;
  const where = options.axis === "time" ? spanOf(place) : `step ${place.toLocaleString("en")}`;
  const rows = found.map((each) => tipRow(each, frame.unit, series.length > 1));
  replace(tip, make("div", { class: "where" }, where), rows);
  const leftward = across > (frame.left + frame.right) / 2;
  tip.style.left = leftward ? "" : `${across + 18}px`;
  tip.style.right = leftward ? `${svg.clientWidth - across + 18}px` : "";
}

function tipRow({ one, at }, unit, named) {
  const told = (values) => withUnit(values[at], unit);
  return make("div", { class: colourOf(one.colour) },
    named ? make("span", {}, one.label) : null,
    make("b", {}, told(one.y)),
    one.low ? make("i", {}, ` ${told(one.low)} to ${told(one.high)}`) : null,
    one.raw ? make("i", {}, ` recorded ${told(one.raw)}`) : null);
}
