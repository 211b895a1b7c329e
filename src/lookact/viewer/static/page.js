// The page of the chosen runs: who they are, and one tab at a time.

import { COLOURS } from "./chart.js";
import { showCharts } from "./charts.js";
import { make, replace } from "./dom.js";
import { showEpisodes } from "./episodes.js";
import { showGallery } from "./gallery.js";
import { statusMark } from "./list.js";
import { showLog } from "./log.js";
import { groupRuns, labelsOf } from "./seeds.js";
import { getRun } from "./source.js";
import { showResults, showSettings } from "./tables.js";

export async function showPage(container, listing, state, change) {
  const known = new Set(listing.runs.map((run) => run.place));
  const runs = await Promise.all(state.runs.filter((place) => known.has(place)).map(getRun));
  const stores = runs.length ? [...new Set(runs.flatMap((run) => run.stores))] : listing.stores.map((store) => store.place);
  const body = make("div", { class: "body" });
  replace(container, crumbs(runs, listing, state, change), runs.length ? tabBar(runs, stores, state, change) : null, body);
  if (!runs.length || state.tab === "episodes") return showEpisodes(body, stores, state, change);
  if (state.tab === "result") return showResults(body, runs);
  if (state.tab === "settings") return showSettings(body, runs, state, change);
  if (state.tab === "gallery") return showGallery(body, runs);
  if (state.tab === "log") return showLog(body, runs);
  return showCharts(body, runs, state, change);
}

function crumbs(runs, listing, state, change) {
  const labels = labelsOf(runs);
  const recipes = [...new Set(runs.map((run) => run.recipe))];
  const colour = runs.map(() => 0);
  groupRuns(runs, state.mean && state.tab === "charts").forEach(({ members }, index) => members.forEach((member) => { colour[member] = index; }));
  const chips = runs.map((run, index) => make("span", { class: `chip ${runs.length > 1 ? `c${colour[index] % COLOURS}` : "alone"}` },
    runs.length > 1 ? make("i") : null, labels[index], statusMark(run),
    runs.length > 1 ? make("button", { "aria-label": `leave out ${run.place}`, title: "leave out", onclick: () => change({ runs: state.runs.filter((place) => place !== run.place) }, true) }, "×") : null));
  const others = listing.runs.filter((run) => !state.runs.includes(run.place));
  const add = others.length && runs.length ? make("select", { class: "add", "aria-label": "compare with", onchange: (event) => change({ runs: [...state.runs, event.target.value] }, true) },
    make("option", { value: "" }, "compare with …"), others.map((run) => make("option", { value: run.place }, `${run.recipe} / ${run.name}`))) : null;
  const reasons = runs.filter((run) => run.reason).map((run) => make("p", { class: run.status === "failed" ? "wrong" : "quiet" }, `${run.name} ${run.status}: ${run.reason}`));
  return make("div", { class: "crumbs" },
    make("button", { class: "link", onclick: () => change({ runs: [], store: "", episode: "", turn: 0 }, true) }, "all runs"),
    recipes.length === 1 ? make("span", { class: "quiet" }, `/ ${recipes[0]} /`) : make("span", { class: "quiet" }, runs.length ? "/" : `/ ${state.store === "." ? "episodes" : state.store}`),
    chips, add, reasons);
}

function tabBar(runs, stores, state, change) {
  const media = runs.reduce((sum, run) => sum + run.media.length, 0);
  const tabs = [["charts", ""], ["result", ""], ["settings", ""], ["episodes", stores.length || ""], ["gallery", media || ""], ["log", ""]];
  return make("nav", { class: "tabs" }, tabs.map(([name, count]) => make("button", { "aria-current": name === state.tab ? "page" : "false", onclick: () => change({ tab: name }, true) }, name, count ? make("span", {}, String(count)) : null)));
}
