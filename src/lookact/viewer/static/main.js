// Starts the page: draws what its address says, and asks for news while something runs.

import { make, replace } from "./dom.js";
import { showList } from "./list.js";
import { showPage } from "./page.js";
import { embedded, getRuns } from "./source.js";
import { readState, writeState } from "./state.js";

const NEWS_EVERY = 2500;
const mainPart = document.getElementById("main");
const topPart = document.getElementById("top");
let view = null;
let drawing = 0;
let statuses = "";

async function draw() {
  const mine = ++drawing;
  view?.close?.();
  view = null;
  try {
    const listing = await getRuns();
    if (mine !== drawing) return;
    statuses = statusesOf(listing);
    const state = settled(readState(location.hash), listing);
    drawTop(listing, state);
    const made = await drawMain(listing, state, () => mine === drawing);
    if (mine === drawing) view = made ?? {};
    else made?.close?.();
  } catch (error) {
    console.error(error);
    const told = `The viewer does not answer (${error.message}). Is lookact view still running?`;
    replace(mainPart, make("p", { class: "wrong" }, told));
  }
}

// Where there is only one thing to see, it is shown at once.
function settled(state, { runs, stores }) {
  if (state.runs.length || state.store) return state;
  if (runs.length === 1 && runs[0].place === ".") return { ...state, runs: ["."] };
  if (!runs.length && stores.length === 1) return { ...state, store: stores[0].place, tab: "episodes" };
  return state;
}

// `isNow()` says whether the page is still the one that is shown: what is left must not change the address.
function drawMain(listing, state, isNow) {
  const change = (patch, redraw = false) => {
    if (!isNow()) return;
    Object.assign(state, patch);
    if (redraw) location.hash = writeState(state);
    else history.replaceState(null, "", writeState(state));
  };
  if (state.runs.length || state.store) return showPage(mainPart, listing, state, change);
  return showList(mainPart, listing, (patch) => change({ tab: "charts", ...patch }, true));
}

function drawTop(listing, state) {
  document.title = `LookAct · ${state.runs.length === 1 && state.runs[0] !== "." ? state.runs[0] : listing.folder}`;
  const running = embedded ? 0 : listing.runs.filter((run) => run.status === "running").length;
  const left = embedded?.left_out?.length ? ` · left out: ${embedded.left_out.join(", ")}` : "";
  const told = embedded ? `an exported file${left}` : running ? `live · ${running} running` : "live";
  replace(topPart,
    make("a", { href: "#", class: "brand" }, "LookAct"),
    make("span", { class: "quiet" }, listing.folder),
    make("span", { class: `live ${running ? "on" : ""}` }, told));
}

function statusesOf(listing) {
  return JSON.stringify(listing.runs.map((run) => [run.place, run.status]));
}

async function news() {
  if (document.hidden || !view) return;
  const mine = drawing;
  try {
    const listing = await getRuns();
    if (mine !== drawing) return;
    if (statusesOf(listing) !== statuses || (await view.refresh?.())) await draw();
  } catch {
    topPart.querySelector(".live")?.replaceChildren("the viewer has ended");
  }
}

window.addEventListener("hashchange", draw);
draw().then(() => document.documentElement.setAttribute("data-ready", ""));
if (!embedded) setInterval(news, NEWS_EVERY);
