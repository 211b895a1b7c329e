// The list of runs, and of folders of episodes.

import { emptyNote, make, makeSvg, replace } from "./dom.js";
import { agoOf, shortNumber, unitOf, withUnit } from "./format.js";
import { embedded, getRuns } from "./source.js";

export async function showList(container, listing, open) {
  const chosen = new Set();
  const compare = make("button", { class: "main", disabled: true, onclick: () => open({ runs: [...chosen] }) }, "compare");
  const rows = make("tbody");
  const find = make("input", { type: "search", placeholder: "find a run", "aria-label": "find a run", oninput: () => draw() });
  let current = listing;
  const draw = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = current.runs.filter((run) => words.every((word) => run.place.toLowerCase().includes(word) || run.status.includes(word)));
    replace(rows, shown.map((run) => runRow(run, current.runs, chosen, open, draw)));
    compare.disabled = chosen.size < 1;
    compare.textContent = chosen.size > 1 ? `compare ${chosen.size}` : chosen.size ? "open" : "compare";
  };
  draw();
  const head = ["", "run", "preset", "seed", "steps", "headline", "", "changed"].map((name, index) => make("th", { class: `k${index}` }, name));
  const table = make("table", { class: "runs" }, make("thead", {}, make("tr", {}, head)), rows);
  replace(container,
    listing.runs.length ? [make("div", { class: "controls" }, find, compare), make("div", { class: "card scroll" }, table)] : null,
    listing.stores.length ? storeList(listing.stores, open) : null,
    listing.runs.length || listing.stores.length ? null : nothingHere());
  return {
    refresh: async () => {
      const before = JSON.stringify(current);
      current = await getRuns();
      if (JSON.stringify(current) === before) return false;
      if (current.runs.length !== listing.runs.length || current.stores.length !== listing.stores.length) return true;
      draw();
      return false;
    },
  };
}

function runRow(run, all, chosen, open, draw) {
  const seeds = all.filter((other) => other.group === run.group);
  const box = make("input", { type: "checkbox", checked: chosen.has(run.place), "aria-label": `choose ${run.place}`,
    onclick: (event) => event.stopPropagation(),
    onchange: (event) => {
      if (event.target.checked) chosen.add(run.place);
      else chosen.delete(run.place);
      draw();
    } });
  const together = seeds.length > 1 ? make("button", { class: "link", title: "all seeds of this config",
    onclick: (event) => { event.stopPropagation(); open({ runs: seeds.map((seed) => seed.place) }); } }, `${seeds.length} seeds`) : null;
  const headline = run.headline;
  const cells = [
    box,
    [statusMark(run), make("a", { href: "#", class: "name", onclick: (event) => event.preventDefault() }, make("span", { class: "quiet" }, `${run.recipe} / `), run.name)],
    run.preset ?? "–",
    [run.seed === null || run.seed === undefined ? "–" : String(run.seed), together],
    run.steps ? run.steps.toLocaleString("en") : "–",
    headline ? [make("b", {}, withUnit(headline.value, unitOf(headline.key))), make("span", { class: "quiet key" }, headline.key)] : "–",
    headline ? sparkline(headline.spark) : null,
    agoOf(embedded ? (embedded.made ?? Date.now() / 1000) - run.changed : Date.now() / 1000 - run.changed),
  ];
  return make("tr", { onclick: () => open({ runs: [run.place] }), "data-place": run.place }, cells.map((cell, index) => make("td", { class: `k${index}` }, cell)));
}

export function statusMark(run) {
  return make("span", { class: `status ${run.status}`, title: run.reason || run.status }, run.status);
}

function sparkline(values) {
  const [width, height] = [96, 22];
  const low = Math.min(...values);
  const span = Math.max(...values) - low;
  const across = (index) => (values.length > 1 ? (index / (values.length - 1)) * (width - 4) + 2 : width / 2);
  const up = (value) => (span ? height - 3 - ((value - low) / span) * (height - 6) : height / 2);
  const path = values.map((value, index) => `${index ? "L" : "M"}${across(index).toFixed(1)} ${up(value).toFixed(1)}`).join("");
  const end = values.length - 1;
  return makeSvg("svg", { class: "spark", width, height, "aria-label": `from ${shortNumber(values[0])} to ${shortNumber(values[end])}` },
    makeSvg("path", { d: path }), makeSvg("circle", { cx: across(end), cy: up(values[end]), r: 2 }));
}

function storeList(stores, open) {
  const cards = stores.map(({ place, episodes }) => make("button", { class: "card store", onclick: () => open({ runs: [], store: place, tab: "episodes" }) },
    make("b", {}, place === "." ? "this folder" : place), make("span", { class: "quiet" }, `${episodes} ${episodes === 1 ? "episode" : "episodes"}`)));
  return make("section", {}, make("h2", {}, "episodes"), make("div", { class: "stores" }, cards));
}

function nothingHere() {
  return make("div", { class: "card" },
    emptyNote("No runs and no episodes in this folder yet. A first run takes a minute:", "lookact train nav-rloo --preset debug"),
    emptyNote("Or collect a few episodes and look at them:", "lookact collect nav-rloo --preset debug --episodes 8 --out episodes"));
}
