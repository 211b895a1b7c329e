// Folders of episodes: the list beside the player.

import { emptyNote, make, pickBox, replace } from "./dom.js";
import { shortNumber } from "./format.js";
import { showEpisode } from "./player.js";
import { getEpisodes } from "./source.js";

const KINDS = ["all", "terminated", "truncated", "error", "invalid"];
const COLLECT = "lookact collect nav-rloo --checkpoint RUN/best --episodes 16 --out RUN/episodes";

export async function showEpisodes(container, stores, state, change) {
  if (!stores.length) {
    const note = emptyNote("No episodes here. Collect some from this run's policy:", COLLECT);
    replace(container, make("div", { class: "card" }, note));
    return null;
  }
  const store = stores.includes(state.store) ? state.store : stores[0];
  const rows = await getEpisodes(store);
  const view = { store, rows, change, only: "all" };
  view.list = make("div", { class: "episodes" });
  view.player = make("div", { class: "player" });
  const aside = make("aside", { class: "card" }, storePicker(view, stores), kindPicker(view), view.list);
  replace(container, make("div", { class: "watch" }, aside, view.player));
  if (!rows.length) {
    replace(view.player, emptyNote("This folder lists no episodes yet."));
    return null;
  }
  const onKey = (event) => steer(view, event);
  document.addEventListener("keydown", onKey);
  const known = rows.some((row) => row.id === state.episode);
  await choose(view, known ? state.episode : rows[0].id, known ? state.turn : 0);
  return { close: () => document.removeEventListener("keydown", onKey) };
}

function storePicker({ store, change }, stores) {
  if (stores.length < 2) return null;
  const options = stores.map((each) => [each, each === "." ? "this folder" : each]);
  return pickBox("folder of episodes", options, store, (next) => change({ store: next, episode: "", turn: 0 }, true));
}

function kindPicker(view) {
  const counts = KINDS.map((kind) => [kind, view.rows.filter((row) => isOfKind(row, kind)).length]);
  const there = counts.filter(([kind, count]) => kind === "all" || count);
  const options = there.map(([kind, count]) => [kind, `${kind} (${count})`]);
  return pickBox("which episodes", options, view.only, (kind) => {
    view.only = kind;
    drawEpisodes(view);
  });
}

function isOfKind(row, kind) {
  return kind === "all" || row.ended === kind || (kind === "invalid" && row.is_valid === false);
}

function drawEpisodes(view) {
  const shown = view.rows.filter((row) => isOfKind(row, view.only));
  replace(view.list, shown.map((row, index) => {
    const turns = `${row.length} ${row.length === 1 ? "turn" : "turns"}`;
    const told = [`#${index + 1}`, turns, row.ended, ...(row.is_valid === false ? ["invalid"] : [])].join(" · ");
    const current = String(row.id === view.id);
    return make("button", { class: "episode", "aria-current": current, onclick: () => choose(view, row.id, 0) },
      make("span", { class: `end ${row.ended.replace(" ", "-")}`, title: row.ended }),
      make("span", { class: "what" }, row.question || row.id),
      make("b", {}, row.return === null ? "" : shortNumber(Number(row.return.toFixed(3)))),
      make("span", { class: "quiet" }, told));
  }));
}

async function choose(view, id, turn) {
  view.id = id;
  view.change({ store: view.store, episode: id, turn });
  drawEpisodes(view);
  const showing = await showEpisode(view.player, view.store, id, turn, (now) => view.change({ turn: now }));
  if (view.id === id) view.showing = showing;
  view.list.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
}

// Left and right go through the turns, up and down through the episodes; space plays.
function steer(view, event) {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const shown = view.rows.filter((row) => isOfKind(row, view.only));
  const at = shown.findIndex((row) => row.id === view.id);
  const next = { ArrowUp: shown[at - 1], ArrowDown: shown[at + 1] }[event.key];
  if (event.key === "ArrowLeft") view.showing?.move(-1);
  else if (event.key === "ArrowRight") view.showing?.move(1);
  else if (event.key === " " && event.target.tagName !== "BUTTON") view.showing?.play();
  else if (next) choose(view, next.id, 0);
  else return;
  event.preventDefault();
}
