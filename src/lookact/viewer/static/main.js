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
  const state = readState(location.hash);
  view?.close?.();
  view = null;
  try {
    const listing = await getRuns();
    if (mine !== drawing) return;
    statuses = statusesOf(listing);
    drawTop(listing);
    document.title = ["LookAct", ...(state.runs.length === 1 ? state.runs : [listing.folder])].join(" · ");
    const change = (patch, redraw = false) => {
      Object.assign(state, patch);
      if (redraw) location.hash = writeState(state);
      else history.replaceState(null, "", writeState(state));
    };
    const open = (patch) => change({ tab: "charts", ...patch }, true);
    const lone = listing.runs.length === 1 && listing.runs[0].place === ".";
    if (lone && !state.runs.length && !state.store) state.runs = ["."];
    if (!listing.runs.length && listing.stores.length === 1 && !state.store) [state.store, state.tab] = [listing.stores[0].place, "episodes"];
    const shown = state.runs.length || state.store ? showPage(mainPart, listing, state, change) : showList(mainPart, listing, open);
    const made = await shown;
    if (mine === drawing) view = made ?? {};
    else made?.close?.();
  } catch (error) {
    console.error(error);
    replace(mainPart, make("p", { class: "wrong" }, `The viewer does not answer (${error.message}). Is lookact view still running?`));
  }
}

function drawTop(listing) {
  const running = listing.runs.filter((run) => run.status === "running").length;
  const told = embedded ? "an exported file" : running ? `live · ${running} running` : "live";
  const left = embedded?.left_out?.length ? ` · left out: ${embedded.left_out.join(", ")}` : "";
  const home = make("a", { href: "#", class: "brand" }, "LookAct");
  replace(topPart, home, make("span", { class: "quiet" }, listing.folder), make("span", { class: `live ${running && !embedded ? "on" : ""}` }, told + left));
}

function statusesOf(listing) {
  return JSON.stringify(listing.runs.map((run) => [run.place, run.status]));
}

async function news() {
  if (document.hidden || !view) return;
  try {
    const mine = drawing;
    const listing = await getRuns();
    if (mine !== drawing) return;
    if (statusesOf(listing) !== statuses) await draw();
    else if (await view.refresh?.()) await draw();
  } catch {
    topPart.querySelector(".live")?.replaceChildren("the viewer has ended");
  }
}

window.addEventListener("hashchange", draw);
draw().then(() => document.documentElement.setAttribute("data-ready", ""));
if (!embedded) setInterval(news, NEWS_EVERY);
