// Folders of episodes: the list beside the player.

import { emptyNote, make, replace } from "./dom.js";
import { shortNumber } from "./format.js";
import { showEpisode } from "./player.js";
import { getEpisodes } from "./source.js";

export async function showEpisodes(container, stores, state, change) {
  if (!stores.length) {
    replace(container, make("div", { class: "card" }, emptyNote("No episodes here. Collect some from this run's policy:", "lookact collect nav-rloo --checkpoint RUN/best --episodes 16 --out RUN/episodes")));
    return null;
  }
  const store = stores.includes(state.store) ? state.store : stores[0];
  const rows = await getEpisodes(store);
  const view = { store, rows, state, change, list: make("div", { class: "episodes" }), player: make("div", { class: "player" }), only: "all" };
  const pick = make("select", { "aria-label": "folder of episodes", onchange: (event) => change({ store: event.target.value, episode: "", turn: 0 }, true) },
    stores.map((each) => make("option", { value: each, selected: each === store }, each === "." ? "this folder" : each)));
  const filter = make("select", { "aria-label": "which episodes", onchange: (event) => { view.only = event.target.value; drawList(view); } },
    ["all", "terminated", "truncated", "error", "invalid"].filter((name) => name === "all" || rows.some((row) => matches(row, name))).map((name) => make("option", { value: name }, `${name} (${rows.filter((row) => matches(row, name)).length})`)));
  replace(container, make("div", { class: "watch" }, make("aside", { class: "card" }, stores.length > 1 ? pick : null, filter, view.list), view.player));
  if (!rows.length) {
    replace(view.player, emptyNote("This folder lists no episodes yet."));
    return null;
  }
  const onKey = (event) => steer(view, event);
  document.addEventListener("keydown", onKey);
  await choose(view, rows.some((row) => row.id === state.episode) ? state.episode : rows[0].id, state.turn);
  return { close: () => document.removeEventListener("keydown", onKey) };
}

function matches(row, name) {
  return name === "all" || row.ended === name || (name === "invalid" && row.is_valid === false);
}

function drawList(view) {
  const shown = view.rows.filter((row) => matches(row, view.only));
  replace(view.list, shown.map((row, index) => make("button", { class: "episode", "aria-current": String(row.id === view.id), onclick: () => choose(view, row.id, 0) },
    make("span", { class: `end ${row.ended === "cut off" ? "cut" : row.ended}`, title: row.ended }),
    make("span", { class: "what" }, row.question || row.id),
    make("b", {}, row.return === null ? "" : shortNumber(Number(row.return.toFixed(3)))),
    make("span", { class: "quiet" }, `#${index + 1} · ${row.length} ${row.length === 1 ? "turn" : "turns"} · ${row.ended}${row.is_valid === false ? " · invalid" : ""}`))));
}

async function choose(view, id, turn) {
  view.id = id;
  view.change({ store: view.store, episode: id, turn });
  drawList(view);
  view.showing = await showEpisode(view.player, view.store, id, turn, (now) => view.change({ turn: now }));
  view.list.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
}

// Left and right go through the turns, up and down through the episodes; space plays.
function steer(view, event) {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const shown = view.rows.filter((row) => matches(row, view.only));
  const at = shown.findIndex((row) => row.id === view.id);
  if (event.key === "ArrowLeft") view.showing?.move(-1);
  else if (event.key === "ArrowRight") view.showing?.move(1);
  else if (event.key === " " && event.target.tagName !== "BUTTON") view.showing?.play();
  else if (event.key === "ArrowUp" && at > 0) choose(view, shown[at - 1].id, 0);
  else if (event.key === "ArrowDown" && at < shown.length - 1) choose(view, shown[at + 1].id, 0);
  else return;
  event.preventDefault();
}
