// The charts of the chosen runs, grouped by prefix, with the controls over them.

import { chartCard } from "./chart.js";
import { colourOf, emptyNote, foldable, make, pickBox, replace, searchBox } from "./dom.js";
import { groupKeys, groupRuns, seriesOf } from "./seeds.js";
import { hasTime, placesOf } from "./series.js";
import { embedded, readTable } from "./source.js";

// Fills a container and returns what to call when there may be more numbers.
export async function showCharts(container, runs, state, change) {
  const view = { runs, state, tables: [], cards: new Map(), drawn: "", waiting: 0 };
  view.legend = make("div", { class: "legend" });
  view.body = make("div", {});
  replace(container, chartControls(view, change), view.legend, view.body);
  await loadTables(view);
  drawCharts(view);
  const redraw = () => drawSoon(view);
  window.addEventListener("resize", redraw);
  return {
    refresh: async () => {
      if (runs.some((run) => run.status === "running") && (await loadTables(view))) drawCharts(view);
    },
    close: () => window.removeEventListener("resize", redraw),
  };
}

// Whether there are more lines than before.
async function loadTables(view) {
  const before = view.tables.map((table) => table.columns.step.length);
  view.tables = await Promise.all(view.runs.map((run) => readTable(run.place, view.state.file)));
  return view.tables.some((table, index) => table.columns.step.length !== before[index]);
}

// A slider tells more often than the page can be drawn.
function drawSoon(view) {
  cancelAnimationFrame(view.waiting);
  view.waiting = requestAnimationFrame(() => drawCharts(view));
}

function chartControls(view, change) {
  const { state, runs } = view;
  const set = (patch) => {
    Object.assign(state, patch);
    change(patch);
    drawSoon(view);
  };
  const files = [...new Set(runs.flatMap((run) => run.files))].map((file) => [file, phaseName(file)]);
  const slider = make("input", {
    ...{ type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth, "aria-label": "smoothing" },
    oninput: (event) => set({ smooth: Number(event.target.value) }),
  });
  view.axes = ["step", "time"].map((axis) => make("button", { class: "choice", onclick: () => set({ axis }) }, axis));
  view.axes[1].title = "training time, where a run logs time/";
  return make("div", { class: "controls" },
    searchBox("find a metric", state.search, (search) => set({ search })),
    files.length > 1 ? pickBox("file of numbers", files, state.file, (file) => change({ file }, true)) : null,
    make("label", { class: "slide" }, "smoothing", slider),
    make("span", { class: "pair" }, view.axes),
    toggle("log scale", state.log, (log) => set({ log })),
    runs.length > 1 ? toggle("seeds as mean", state.mean, (mean) => set({ mean })) : null);
}

function toggle(text, on, set) {
  const box = make("input", { type: "checkbox", checked: on, onchange: (event) => set(event.target.checked) });
  return make("label", { class: "toggle" }, box, text);
}

function phaseName(file) {
  if (file === "metrics.jsonl") return "training";
  return file.replace(/\/metrics\.jsonl$|\.jsonl$/, "").replaceAll("_", " ").replaceAll("/", ": ");
}

function drawCharts(view) {
  const { state, tables, runs } = view;
  const timed = tables.length > 0 && tables.every(hasTime);
  const axis = timed ? state.axis : "step";
  view.axes.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === axis)));
  view.axes[1].disabled = !timed;
  const keys = groupKeys(tables.flatMap(filledKeys), state.search);
  layOut(view, keys);
  const groups = groupRuns(runs, state.mean);
  const several = groups.length > 1 || groups[0]?.members.length > 1;
  const legend = groups.map(({ label }, index) => make("span", { class: colourOf(index) }, make("i"), label));
  replace(view.legend, several ? legend : null);
  const options = { axis, log: state.log, xRange: rangeOf(tables, axis) };
  for (const key of keys.flatMap(([, names]) => names)) {
    view.cards.get(key).draw(seriesOf(groups, tables, key, { axis, smooth: state.smooth }), options);
  }
}

function filledKeys({ columns }) {
  return Object.keys(columns).filter((key) => columns[key].some((value) => value !== null));
}

// Cards stay where they are unless metrics come or go.
function layOut(view, keys) {
  const layout = JSON.stringify(keys);
  if (layout === view.drawn) return;
  view.drawn = layout;
  const pointAll = (x, here) => view.cards.forEach((card) => card.point(x, here));
  for (const key of keys.flatMap(([, names]) => names)) {
    if (!view.cards.has(key)) view.cards.set(key, chartCard(key, pointAll));
  }
  const grid = (names) => make("div", { class: "grid" }, names.map((key) => view.cards.get(key).element));
  const sections = keys.map(([prefix, names]) => foldable(prefix, names.length, grid(names)));
  replace(view.body, sections.length ? sections : nothingYet(view));
}

function nothingYet(view) {
  if (view.state.search) return emptyNote(`No metric is called “${view.state.search}”.`);
  const running = !embedded && view.runs.some((run) => run.status === "running");
  return emptyNote(running ? "No numbers yet: curves begin with the first step." : "This run wrote no numbers here.");
}

function rangeOf(tables, axis) {
  let [low, high] = [Infinity, -Infinity];
  for (const table of tables) {
    for (const place of placesOf(table, axis)) [low, high] = [Math.min(low, place), Math.max(high, place)];
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
