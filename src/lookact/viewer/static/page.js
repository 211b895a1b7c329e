// The page of the chosen runs: who they are, and one tab at a time.

import { showCharts } from "./charts.js";
import { colourOf, make, pickBox, replace } from "./dom.js";
import { showEpisodes } from "./episodes.js";
import { showGallery } from "./gallery.js";
import { showJudged } from "./judged.js";
import { statusMark } from "./list.js";
import { showLog } from "./log.js";
import { groupRuns, labelsOf } from "./seeds.js";
import { getRun } from "./source.js";
import { showResults, showSettings } from "./tables.js";

export async function showPage(container, listing, state, change) {
  const known = new Set(listing.runs.map((run) => run.place));
  const runs = await Promise.all(state.runs.filter((place) => known.has(place)).map(getRun));
  const stores = runs.length ? runs.flatMap((run) => run.stores) : listing.stores;
  const body = make("div", { class: "body" });
  const tabs = runs.length ? tabBar(runs, stores, state, change) : null;
  replace(container, crumbs(runs, listing, state, change), tabs, body);
  if (!runs.length || state.tab === "episodes") {
    return showEpisodes(body, stores, state, change, runs[0]?.advice);
  }
  if (state.tab === "result") return showResults(body, runs);
  if (state.tab === "settings") return showSettings(body, runs, state, change);
  if (state.tab === "gallery") return showGallery(body, runs);
  if (state.tab === "judge") return showJudged(body, runs);
  if (state.tab === "log") return showLog(body, runs);
  return showCharts(body, runs, state, change);
}

function crumbs(runs, listing, state, change) {
  const recipes = [...new Set(runs.map((run) => run.recipe))];
  const store = state.store === "." ? "episodes" : state.store;
  const where = recipes.length === 1 ? `/ ${recipes[0]} /` : runs.length ? "/" : `/ ${store}`;
  const reasons = runs.filter((run) => run.reason).map((run) =>
    make("p", { class: run.status === "failed" ? "wrong" : "quiet" }, `${run.name} ${run.status}: ${run.reason}`));
  return make("div", { class: "crumbs" },
    make("a", { class: "link", href: "#" }, "all runs"),
    make("span", { class: "quiet" }, where),
    runChips(runs, state, change),
    runs.length ? addBox(listing, state, change) : null,
    reasons);
}

function runChips(runs, state, change) {
  const labels = labelsOf(runs);
  if (runs.length === 1) return make("span", { class: "chip alone" }, labels[0], statusMark(runs[0]));
  const colours = new Map();
  const groups = groupRuns(runs, state.mean && state.tab === "charts");
  groups.forEach(({ members }, index) => members.forEach((member) => colours.set(member, index)));
  return runs.map((run, index) => {
    const onclick = () => change({ runs: state.runs.filter((place) => place !== run.place) }, true);
    const drop = make("button", { "aria-label": `leave out ${run.place}`, title: "leave out", onclick }, "×");
    const colour = colourOf(colours.get(index));
    return make("span", { class: `chip ${colour}` }, make("i"), labels[index], statusMark(run), drop);
  });
}

function addBox(listing, state, change) {
  const others = listing.runs.filter((run) => !state.runs.includes(run.place));
  if (!others.length) return null;
  const options = [["", "compare with …"], ...others.map((run) => [run.place, `${run.recipe} / ${run.name}`])];
  const box = pickBox("compare with", options, "", (place) => change({ runs: [...state.runs, place] }, true));
  box.classList.add("add");
  return box;
}

function tabBar(runs, stores, state, change) {
  const kept = stores.reduce((sum, store) => sum + store.episodes, 0);
  const counts = { episodes: kept, gallery: runs.reduce((sum, run) => sum + run.media.length, 0) };
  const judge = runs.some((run) => run.judged) ? ["judge"] : [];
  const tabs = ["charts", "result", "settings", "episodes", ...judge, "gallery", "log"].map((name) => {
    const current = name === state.tab ? "page" : "false";
    const count = counts[name] ? make("span", {}, counts[name].toLocaleString("en")) : null;
    return make("button", { "aria-current": current, onclick: () => change({ tab: name }, true) }, name, count);
  });
  return make("nav", { class: "tabs" }, tabs);
}
