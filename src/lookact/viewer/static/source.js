// Where records come from: the server, or what an exported file holds.

import { emptyTable, joinTable } from "./series.js";

const holder = document.getElementById("embedded");
export const embedded = holder ? JSON.parse(holder.textContent) : null;

const tables = new Map();

async function ask(route, words) {
  const answer = await fetch(`api/${route}?${new URLSearchParams(words)}`);
  if (!answer.ok) throw new Error(answer.status === 404 ? "it is no longer in the folder" : `status ${answer.status}`);
  return answer.json();
}

export function getRuns() {
  return embedded ? embedded.runs : ask("runs", {});
}

export function getRun(place) {
  return embedded ? embedded.run[place] : ask("run", { place });
}

export function getLog(place) {
  return embedded ? (embedded.log?.[place] ?? { text: "" }) : ask("log", { place });
}

export function getPairs(place) {
  return embedded ? (embedded.pairs?.[place] ?? []) : ask("pairs", { place });
}

export function getEpisodes(store) {
  return embedded ? (embedded.episodes?.[store] ?? []) : ask("episodes", { store });
}

export function getEpisode(store, id) {
  return embedded ? embedded.episode?.[`${store}|${id}`] : ask("episode", { store, id });
}

export function pictureAddress(store, id, turn, camera) {
  if (embedded) return embedded.picture?.[`${store}|${id}|${turn}|${camera}`] ?? "";
  return `api/picture?${new URLSearchParams({ store, id, turn, camera })}`;
}

export function mapAddress(store, id) {
  if (embedded) return embedded.picture?.[`${store}|${id}|map`] ?? "";
  return `api/map?${new URLSearchParams({ store, id })}`;
}

export function mediaAddress(place) {
  return embedded ? (embedded.media?.[place] ?? "") : `api/media?${new URLSearchParams({ place })}`;
}

export async function mediaText(place) {
  const answer = await fetch(mediaAddress(place));
  return answer.text();
}

// A run's numbers, as far as they were read; asked again, only what was written since is sent.
export async function readTable(place, file) {
  const key = `${place}|${file}`;
  if (embedded) return embedded.metrics?.[key] ? joinTable(emptyTable(), embedded.metrics[key]) : emptyTable();
  let table = tables.get(key) ?? emptyTable();
  for (let more = true; more; ) {
    const { offset, version } = table;
    const answer = await ask("metrics", { place, file, offset, version });
    table = joinTable(table, answer);
    more = answer.more;
  }
  tables.set(key, table);
  return table;
}
