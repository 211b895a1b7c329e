// The charts of the chosen runs, grouped by prefix, with the controls over them.

import { chartCard, COLOURS } from "./chart.js";
import { emptyNote, make, replace } from "./dom.js";
import { groupKeys, groupRuns, seriesOf } from "./seeds.js";
import { curveOf, hasTime } from "./series.js";
import { embedded, readTable } from "./source.js";

// Fills a container and returns what to call when there may be more numbers.
export async function showCharts(container, runs, state, change) {
  const view = { runs, state, tables: [], cards: new Map(), legend: make("div", { class: "legend" }), body: make("div", {}), drawn: "" };
  replace(container, controls(view, change), view.legend, view.body);
  await loadTables(view);
  drawCharts(view);
  let waiting = 0;
  const redraw = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => drawCharts(view));
  };
  window.addEventListener("resize", redraw);
  return {
    refresh: async () => {
      if (runs.some((run) => run.status === "running") && (await loadTables(view))) drawCharts(view);
    },
    close: () => window.removeEventListener("resize", redraw),
  };
}

async function loadTables(view) {
  const before = view.tables;
  view.tables = await Promise.all(view.runs.map((run) => readTable(run.place, view.state.file)));
  return view.tables.some((table, index) => table.columns.step.length !== before[index]?.columns.step.length);
}

function controls(view, change) {
  const { state, runs } = view;
  let waiting = 0;
  const set = (patch) => {
    Object.assign(state, patch);
    change(patch);
    // a slider tells more often than the page can be drawn
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => drawCharts(view));
  };
  const files = [...new Set(runs.flatMap((run) => run.files))];
  const pick = make("select", { "aria-label": "file of numbers", onchange: (event) => change({ file: event.target.value }, true) },
    files.map((file) => make("option", { value: file, selected: file === state.file }, fileName(file))));
  const slider = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth, "aria-label": "smoothing",
    oninput: (event) => set({ smooth: Number(event.target.value) }) });
  const search = make("input", { type: "search", placeholder: "find a metric", value: state.search, "aria-label": "find a metric",
    oninput: (event) => set({ search: event.target.value }) });
  view.timeButton = choice("time", state.axis === "time", () => pickAxis("time"), "training time, where a run logs time/");
  view.stepButton = choice("step", state.axis === "step", () => pickAxis("step"));
  const pickAxis = (axis) => {
    view.timeButton.setAttribute("aria-pressed", axis === "time");
    view.stepButton.setAttribute("aria-pressed", axis === "step");
    set({ axis });
  };
  return make("div", { class: "controls" },
    search,
    files.length > 1 ? pick : null,
    make("label", { class: "slide" }, "smoothing", slider),
    make("span", { class: "pair" }, view.stepButton, view.timeButton),
    toggle("log scale", state.log, (log) => set({ log })),
    runs.length > 1 ? toggle("seeds as mean", state.mean, (mean) => set({ mean })) : null);
}

function choice(text, pressed, onclick, title) {
  return make("button", { class: "choice", "aria-pressed": String(pressed), onclick, title }, text);
}

function toggle(text, on, set) {
  const box = make("input", { type: "checkbox", checked: on, onchange: (event) => set(event.target.checked) });
  return make("label", { class: "toggle" }, box, text);
}

function fileName(file) {
  return file === "metrics.jsonl" ? "training" : file.replace(/\/metrics\.jsonl$|\.jsonl$/, "").replaceAll("_", " ").replaceAll("/", ": ");
}

function drawCharts(view) {
  const { state, tables, runs } = view;
  const timed = tables.length > 0 && tables.every(hasTime);
  view.timeButton.disabled = !timed;
  const axis = timed ? state.axis : "step";
  const groups = groupRuns(runs, state.mean);
  const keys = groupKeys(tables.flatMap((table) => Object.keys(table.columns).filter((key) => table.columns[key].some((value) => value !== null))), state.search);
  const layout = JSON.stringify(keys);
  if (layout !== view.drawn) {
    view.drawn = layout;
    replace(view.body, keys.length ? keys.map((group) => section(view, group)) : nothingYet(view));
  }
  replace(view.legend, groups.length > 1 || groups[0]?.members.length > 1 ? groups.map(({ label }, index) => make("span", { class: `c${index % COLOURS}` }, make("i"), label)) : null);
  const xRange = rangeOf(tables, axis);
  for (const [, names] of keys) {
    for (const key of names) view.cards.get(key).draw(seriesOf(groups, tables, key, { axis, smooth: state.smooth }), { axis, log: state.log, xRange });
  }
}

function section(view, [prefix, names]) {
  const cards = names.map((key) => {
    if (!view.cards.has(key)) view.cards.set(key, chartCard(key, (x, here) => view.cards.forEach((card) => card.point(x, here))));
    return view.cards.get(key).element;
  });
  return make("details", { class: "group", open: true }, make("summary", {}, prefix, make("span", {}, String(names.length))), make("div", { class: "grid" }, cards));
}

function nothingYet(view) {
  if (view.state.search) return emptyNote(`No metric is called “${view.state.search}”.`);
  const running = view.runs.some((run) => run.status === "running");
  return emptyNote(running && !embedded ? "No numbers yet: curves begin with the first step." : "This run wrote no numbers here.");
}

function rangeOf(tables, axis) {
  let low = Infinity;
  let high = -Infinity;
  for (const table of tables) {
    const { x } = curveOf({ columns: { ...table.columns, all: table.columns.step } }, "all", axis);
    if (x.length) [low, high] = [Math.min(low, x[0]), Math.max(high, x[x.length - 1])];
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
