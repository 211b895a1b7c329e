// One episode turn by turn: what was seen, said, counted, done and paid.

import { emptyNote, make, makeSvg, replace } from "./dom.js";
import { plainText, shortNumber } from "./format.js";
import { getEpisode, pictureAddress } from "./source.js";

const PACE = 450;
const ENDS = {
  demonstration: "a demonstration: an expert's steps, with neither words nor reward",
  terminated: "terminated: it ended by the world's own rules",
  truncated: "truncated: it was cut at the limit of turns",
  "cut off": "it ends without a word why",
};

// Fills the player and returns move(by) and play() for the keyboard.
export async function showEpisode(player, store, id, turn, onTurn) {
  const episode = await getEpisode(store, id);
  if (!episode || episode.problem) {
    replace(player, make("div", { class: "card" }, emptyNote(episode?.problem ?? "This episode was left out of the file.")));
    return { move: () => {}, play: () => {} };
  }
  const stops = [...episode.turns, ...(episode.last ? [episode.last] : [])];
  let at = Math.max(0, Math.min(turn, stops.length - 1));
  let playing = 0;
  const body = make("div", { class: "card turn" });
  const strip = make("div", { class: "strip", role: "tablist" });
  const show = () => {
    replace(strip, turnStrip(episode, stops, at, (now) => go(now)));
    replace(body, at < episode.turns.length ? turnCard(episode, at, store) : lastCard(episode, at, store));
  };
  const go = (next) => {
    const stop = Math.max(0, Math.min(next, stops.length - 1));
    if (stop === at) return false;
    at = stop;
    show();
    onTurn(at);
    return true;
  };
  const pause = () => {
    clearInterval(playing);
    playing = 0;
    button.textContent = "play";
  };
  const play = () => {
    if (playing) return pause();
    if (at === stops.length - 1) go(0);
    button.textContent = "pause";
    playing = setInterval(() => button.isConnected && go(at + 1) || pause(), PACE);
  };
  const button = make("button", { class: "play", title: "space", onclick: play }, "play");
  replace(player, heading(episode, stops.length > 1 ? button : null), strip, stops.length ? body : make("div", { class: "card" }, emptyNote("This episode has no turns.")));
  if (stops.length) show();
  return { move: (by) => go(at + by), play };
}

function heading(episode, button) {
  const why = episode.error ? `error: ${episode.error}` : ENDS[episode.ended];
  return make("div", { class: "heading" },
    button,
    make("h2", {}, episode.question || episode.id),
    episode.return === null ? make("p", { class: "quiet" }, `episode ${episode.id} · ${episode.length} steps`) : make("p", { class: "quiet" },
      `${episode.id} · group ${episode.group} · seed ${episode.seed} · weights ${episode.policy_version} · return `,
      make("b", {}, shortNumber(Number(episode.return.toFixed(4))))),
    make("p", { class: episode.error ? "wrong" : "quiet" }, why, episode.is_valid === false ? ` · not trained on: ${episode.dropout_reason}` : ""));
}

// A bar a turn, as high as its reward; the last stop is what was seen at the end.
function turnStrip(episode, stops, at, go) {
  const most = Math.max(1e-9, ...episode.turns.map((turn) => Math.abs(turn.reward ?? 0)));
  return stops.map((_, index) => {
    const reward = episode.turns[index]?.reward ?? null;
    const height = reward === null ? 0 : (Math.abs(reward) / most) * 16;
    const bar = makeSvg("svg", { width: 28, height: 34, "aria-hidden": "true" },
      makeSvg("line", { x1: 4, x2: 24, y1: 17, y2: 17 }),
      makeSvg("rect", { class: reward < 0 ? "minus" : "plus", x: 9, width: 10, y: reward < 0 ? 17 : 17 - height, height }));
    const title = reward === null ? `stop ${index + 1}` : `turn ${index + 1}: reward ${shortNumber(reward)}`;
    const name = index < episode.turns.length ? String(index + 1) : "end";
    return make("button", { role: "tab", "aria-selected": String(index === at), title, onclick: () => go(index) }, episode.return === null ? null : bar, name);
  });
}

function turnCard(episode, at, store) {
  const turn = episode.turns[at];
  const facts = [
    ["action", Array.isArray(turn.action) ? turn.action.map(shortNumber).join(", ") : turn.action ? pairs(turn.action) : "none could be read"],
    ...(turn.reply === null ? [] : [
      ["reward", make("b", {}, shortNumber(turn.reward))],
      ["return so far", make("b", {}, shortNumber(Number((turn.running ?? 0).toFixed(6))))],
      turn.value === null ? null : ["value", shortNumber(turn.value)],
      ["tokens", `${turn.counted} of ${turn.tokens} count · found by ${turn.masking_method || "no search"}`],
      ["log-probability", shortNumber(turn.logprob)],
    ]),
    turn.fresh && at > 0 ? ["context", "built anew before this turn"] : null,
    turn.state ? ["state", turn.state.map(shortNumber).join(", ")] : null,
  ].filter(Boolean);
  const info = Object.entries(turn.info ?? {}).map(([name, value]) => [name.replaceAll("_", " "), plainText(value)]);
  return [
    cameras(turn, episode.id, at, store),
    make("div", { class: "said" },
      make("h3", {}, `turn ${at + 1} of ${episode.turns.length}`, turn.terminated ? make("span", { class: "badge" }, "terminated") : null, turn.truncated ? make("span", { class: "badge" }, "truncated") : null),
      make("p", { class: "shown" }, turn.text || "no text"),
      turn.reply === null ? null : reply(turn),
      factList(facts),
      info.length ? make("details", { class: "more", open: true }, make("summary", {}, "what the world says"), factList(info)) : null),
  ];
}

function factList(facts) {
  return make("dl", {}, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function pairs(action) {
  return Object.entries(action).flatMap(([name, value], index) => [index ? " · " : "", `${name.replaceAll("_", " ")} `, make("b", {}, plainText(value))]);
}

function reply(turn) {
  const pieces = turn.pieces.map((piece) => make("span", { class: piece.counts ? "token counts" : "token" }, piece.text));
  const note = turn.exact ? "marked: the tokens that count in the loss" : "marked: the action in the text; name the tokenizer to see tokens (--tokenizer)";
  return make("div", { class: turn.exact ? "reply" : "reply rough" }, make("div", {}, pieces.length ? pieces : "(an empty reply)"), make("p", { class: "quiet small" }, note));
}

function lastCard(episode, at, store) {
  return [cameras(episode.last, episode.id, at, store), make("div", { class: "said" }, make("h3", {}, "at the end"), make("p", { class: "shown" }, episode.last.text || "no text"), make("p", {}, ENDS[episode.ended] ?? `error: ${episode.error}`))];
}

function cameras(seen, id, at, store) {
  const pictures = seen.cameras.map((camera) => make("figure", {},
    make("img", { src: pictureAddress(store, id, at, camera.name), alt: `${camera.name}, turn ${at + 1}`, width: camera.width, height: camera.height }),
    make("figcaption", { class: "quiet" }, `${camera.name} · ${camera.width}×${camera.height}`)));
  return make("div", { class: "cameras" }, pictures.length ? pictures : make("p", { class: "quiet" }, "no pictures"));
}
