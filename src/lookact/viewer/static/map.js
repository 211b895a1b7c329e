// The room from above with the path walked so far; the way still to come is faint.

import { make, makeSvg } from "./dom.js";
import { mapAddress } from "./source.js";

const WEDGE = (35 * Math.PI) / 180;

// Null where the episode has no map. `go(turn)` is called for a place on the path that is clicked.
export function floorMap(episode, at, store, go) {
  if (!episode.map) return null;
  const { width, height, poses } = episode.map;
  const size = width / 100;
  const room = makeSvg("image", { href: mapAddress(store, episode.id), width, height });
  const goal = episode.turns[0]?.info?.goal;
  const label = `the room from above, turn ${at + 1}`;
  return make("figure", { class: "map" },
    makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      room, walk(poses, at, size, go)),
    make("figcaption", { class: "quiet" }, goal ? `from above · goal: ${goal.replaceAll("_", " ")}` : "from above"));
}

function walk(poses, at, size, go) {
  const known = poses.map((pose, turn) => ({ pose, turn })).filter(({ pose }) => pose);
  if (!known.length) return [];
  const past = known.filter(({ turn }) => turn <= at);
  const now = past.at(-1);
  return [
    makeSvg("path", { class: "coming", d: pathOf(known), "stroke-width": size }),
    makeSvg("path", { class: "halo", d: pathOf(past), "stroke-width": 2.2 * size }),
    makeSvg("path", { class: "walked", d: pathOf(past), "stroke-width": 1.2 * size }),
    known.map(({ pose: [cx, cy], turn }) => {
      const title = makeSvg("title", {}, turn ? `turn ${turn + 1}` : "the start");
      const kind = turn === 0 ? "start" : turn <= at ? "was" : "will";
      return makeSvg("circle", { class: kind, cx, cy, r: (turn ? 0.9 : 1.7) * size, onclick: () => go(turn) }, title);
    }),
    now ? agent(now.pose, size) : [],
  ].flat();
}

// A dot, and the wedge of floor that it looks at. Yaw turns left from the right of the picture.
function agent([x, y, yaw], size) {
  const reach = 11 * size;
  const at = (angle) => `${(x + reach * Math.cos(angle)).toFixed(1)} ${(y - reach * Math.sin(angle)).toFixed(1)}`;
  const wedge = `M${x} ${y}L${at(yaw + WEDGE)}A${reach} ${reach} 0 0 1 ${at(yaw - WEDGE)}Z`;
  return [
    makeSvg("path", { class: "looks", d: wedge }),
    makeSvg("circle", { class: "agent", cx: x, cy: y, r: 2.1 * size, "stroke-width": 0.6 * size }),
  ];
}

function pathOf(stops) {
  return stops.map(({ pose: [x, y] }, index) => `${index ? "L" : "M"}${x} ${y}`).join("");
}
