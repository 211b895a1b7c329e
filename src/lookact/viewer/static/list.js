// The list of runs, and of folders of episodes.

import { emptyNote, make, makeSvg, replace, searchBox } from "./dom.js";
import { agoOf, shortNumber, unitOf, withUnit } from "./format.js";
import { countOf } from "./seeds.js";
import { embedded, getRuns } from "./source.js";
import { addressOf } from "./state.js";

const HEADS = ["", "run", "preset", "seed", "steps", "headline", "", "changed"];

export async function showList(container, listing, open) {
  const view = { listing, open, chosen: new Set(), words: [], rows: make("tbody") };
  view.compare = make("button", { class: "main", onclick: () => open({ runs: [...view.chosen] }) });
  const find = searchBox("find a run", "", (text) => {
    view.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    drawRuns(view);
  });
  drawRuns(view);
  const head = make("tr", {}, HEADS.map((name, index) => make("th", { class: `k${index}` }, name)));
  const table = make("table", { class: "runs" }, make("thead", {}, head), view.rows);
  const runs = [make("div", { class: "controls" }, find, view.compare), make("div", { class: "card scroll" }, table)];
  replace(container,
    listing.runs.length ? runs : null,
    listing.stores.length ? storeList(listing.stores) : null,
    listing.runs.length || listing.stores.length ? null : nothingHere());
  return { refresh: () => refreshList(view) };
}

// Whether the page must be drawn anew, because runs or folders of episodes have come or gone.
async function refreshList(view) {
  const before = view.listing;
  view.listing = await getRuns();
  if (JSON.stringify(view.listing) === JSON.stringify(before)) return false;
  const sizes = ({ runs, stores }) => `${runs.length} ${stores.length}`;
  if (sizes(view.listing) !== sizes(before)) return true;
  drawRuns(view);
  return false;
}

function drawRuns(view) {
  const { chosen, words, listing } = view;
  const matching = (run) => words.every((word) => `${run.place} ${run.status}`.toLowerCase().includes(word));
  replace(view.rows, listing.runs.filter(matching).map((run) => runRow(run, view)));
  view.compare.disabled = !chosen.size;
  view.compare.textContent = chosen.size > 1 ? `compare ${chosen.size}` : chosen.size ? "open" : "compare";
}

function runRow(run, view) {
  const { headline } = run;
  const now = embedded?.made ?? Date.now() / 1000;
  const cells = [
    runBox(run, view),
    [statusMark(run), runName(run)],
    run.preset ?? "–",
    [run.seed === null || run.seed === undefined ? "–" : String(run.seed), seedsButton(run, view)],
    run.steps ? run.steps.toLocaleString("en") : "–",
    headline ? [make("b", {}, withUnit(headline.value, unitOf(headline.key))), quietly(headline.key, "key")] : "–",
    headline ? sparkline(headline.spark) : null,
    agoOf(now - run.changed),
  ];
  return make("tr", { onclick: () => view.open({ runs: [run.place] }), "data-place": run.place },
    cells.map((cell, index) => make("td", { class: `k${index}` }, cell)));
}

function runBox(run, view) {
  const onchange = (event) => {
    if (event.target.checked) view.chosen.add(run.place);
    else view.chosen.delete(run.place);
    drawRuns(view);
  };
  const onclick = (event) => event.stopPropagation();
  const checked = view.chosen.has(run.place);
  return make("input", { type: "checkbox", checked, "aria-label": `choose ${run.place}`, onclick, onchange });
}

// A link as any other: it opens in a tab of its own if asked to.
function runName(run) {
  const onclick = (event) => event.stopPropagation();
  const href = addressOf({ runs: [run.place] });
  return make("a", { href, class: "name", onclick }, quietly(`${run.recipe} / `), run.name);
}

function seedsButton(run, { listing, open }) {
  const seeds = listing.runs.filter((other) => other.group === run.group);
  if (seeds.length < 2) return null;
  const onclick = (event) => {
    event.stopPropagation();
    open({ runs: seeds.map((seed) => seed.place) });
  };
  return make("button", { class: "link", title: "all runs of this config", onclick }, countOf(seeds));
}

export function statusMark(run) {
  return make("span", { class: `status ${run.status}`, title: run.reason || run.status }, run.status);
}

function quietly(text, more = "") {
  return make("span", { class: `quiet ${more}` }, text);
}

function sparkline(values) {
  const [width, height] = [96, 22];
  const low = Math.min(...values);
  const span = Math.max(...values) - low;
  const end = values.length - 1;
  const across = (index) => (end ? (index / end) * (width - 4) + 2 : width / 2).toFixed(1);
  const up = (value) => (span ? height - 3 - ((value - low) / span) * (height - 6) : height / 2).toFixed(1);
  const path = values.map((value, index) => `${index ? "L" : "M"}${across(index)} ${up(value)}`).join("");
  const label = `from ${shortNumber(values[0])} to ${shortNumber(values[end])}`;
  return makeSvg("svg", { class: "spark", width, height, "aria-label": label },
    makeSvg("path", { d: path }),
    makeSvg("circle", { cx: across(end), cy: up(values[end]), r: 2 }));
}

function storeList(stores) {
  const cards = stores.map(({ place, episodes }) =>
    make("a", { class: "card store", href: addressOf({ store: place, tab: "episodes" }) },
      make("b", {}, place === "." ? "this folder" : place),
      quietly(`${episodes} ${episodes === 1 ? "episode" : "episodes"}`)));
  return make("section", {}, make("h2", {}, "episodes"), make("div", { class: "stores" }, cards));
}

function nothingHere() {
  const train = "lookact train nav-rloo --preset debug";
  const collect = "lookact collect nav-rloo --preset debug --episodes 8 --out episodes";
  return make("div", { class: "card" },
    emptyNote("No runs and no episodes in this folder yet. A first run takes a minute:", train),
    emptyNote("Or collect a few episodes and look at them:", collect));
}
