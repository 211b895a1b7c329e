// Folders of episodes: the list beside the player.

import { emptyNote, make, pickBox, replace, searchBox } from "./dom.js";
import { shortNumber } from "./format.js";
import { showEpisode } from "./player.js";
import { ORDERS, SHOWN, chosenRows, kindsOf, storeLabels } from "./rows.js";
import { getEpisodes } from "./source.js";

// `stores` are { place, episodes }; `advice` is what to do where there are none.
export async function showEpisodes(container, stores, state, change, advice) {
  if (!stores.length) {
    replace(container, make("div", { class: "card" }, emptyNote(advice.text, advice.command)));
    return null;
  }
  const places = stores.map(({ place }) => place);
  const store = places.includes(state.store) ? state.store : places[0];
  const rows = await getEpisodes(store);
  const view = { store, rows, change, only: "all", order: ORDERS[0], words: [], most: SHOWN };
  view.list = make("div", { class: "episodes" });
  view.player = make("div", { class: "player" });
  const aside = make("aside", { class: "card" }, storePicker(view, stores), choices(view), view.list);
  replace(container, make("div", { class: "watch" }, aside, view.player));
  if (!rows.length) {
    replace(view.player, emptyNote("This folder lists no episodes yet."));
    return null;
  }
  const onKey = (event) => steer(view, event);
  document.addEventListener("keydown", onKey);
  const known = rows.some((row) => row.id === state.episode);
  await choose(view, known ? state.episode : rows[0].id, known ? state.turn : 0);
  return { close: () => leave(view, onKey) };
}

// What plays must not go on: it would write its turn over the address of the page that comes next.
function leave(view, onKey) {
  document.removeEventListener("keydown", onKey);
  view.showing?.stop();
  view.id = null;
}

function storePicker({ store, change }, stores) {
  if (stores.length < 2) return null;
  const labels = storeLabels(stores.map(({ place }) => place));
  const options = stores.map(({ place, episodes }, index) => [place, `${labels[index]} (${episodes})`]);
  return pickBox("folder of episodes", options, store, (next) => change({ store: next, episode: "", turn: 0 }, true));
}

// Which episodes are listed, and in which order; of few there is nothing to choose.
function choices(view) {
  const set = (patch) => {
    Object.assign(view, patch, { most: SHOWN });
    drawEpisodes(view);
  };
  const kinds = kindsOf(view.rows).map(([kind, count]) => [kind, `${kind} (${count})`]);
  const words = (text) => set({ words: text.toLowerCase().split(/\s+/).filter(Boolean) });
  const orders = ORDERS.map((name) => [name, name]);
  return [
    view.rows.length > 8 ? searchBox("find an episode", "", words) : null,
    kinds.length > 1 ? pickBox("which episodes", kinds, view.only, (only) => set({ only })) : null,
    view.rows.length > 2 ? pickBox("order", orders, view.order, (order) => set({ order })) : null,
  ];
}

function drawEpisodes(view) {
  const shown = chosenRows(view);
  const rest = shown.length - view.most;
  const more = () => {
    view.most += SHOWN;
    drawEpisodes(view);
  };
  replace(view.list,
    shown.slice(0, view.most).map((row) => episodeRow(row, view)),
    rest > 0 ? make("button", { class: "link rest", onclick: more }, `${rest.toLocaleString("en")} more`) : null,
    shown.length ? null : make("p", { class: "quiet rest" }, "none is like that"));
}

function episodeRow(row, view) {
  const unit = row.acts === "vectors" ? "step" : "turn";
  const length = `${row.length} ${unit}${row.length === 1 ? "" : "s"}`;
  const told = [`#${row.number}`, length, row.ended, ...(row.is_valid === false ? ["invalid"] : [])].join(" · ");
  const kind = row.success === true ? "good" : row.success === false && row.ended !== "error" ? "bad" : row.ended;
  const title = row.success === true ? "success" : row.success === false ? `failure, ${row.ended}` : row.ended;
  const current = String(row.id === view.id);
  return make("button", { class: "episode", "aria-current": current, onclick: () => choose(view, row.id, 0) },
    make("span", { class: `end ${kind.replace(" ", "-")}`, title }),
    make("span", { class: "what" }, row.question || row.id),
    make("b", {}, row.return === null ? "" : shortNumber(Number(row.return.toFixed(3)))),
    make("span", { class: "quiet" }, told));
}

async function choose(view, id, turn) {
  view.showing?.stop();
  view.id = id;
  view.change({ store: view.store, episode: id, turn });
  // one that is further down is brought into the list
  view.most = Math.max(view.most, chosenRows(view).findIndex((row) => row.id === id) + 1);
  drawEpisodes(view);
  const showing = await showEpisode(view.player, view.store, id, turn, (now) => view.change({ turn: now }));
  if (view.id === id) view.showing = showing;
  view.list.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
}

// Left and right go through the turns, up and down through the episodes; space plays.
function steer(view, event) {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const shown = chosenRows(view);
  const at = shown.findIndex((row) => row.id === view.id);
  const next = { ArrowUp: shown[at - 1], ArrowDown: shown[at + 1] }[event.key];
  if (event.key === "ArrowLeft") view.showing?.move(-1);
  else if (event.key === "ArrowRight") view.showing?.move(1);
  else if (event.key === " " && event.target.tagName !== "BUTTON") view.showing?.play();
  else if (next) choose(view, next.id, 0);
  else return;
  event.preventDefault();
}
