// One turn of an episode: what was seen, said, counted, done and paid.

import { make } from "./dom.js";
import { floorMap } from "./map.js";
import { plainText, shortNumber } from "./format.js";
import { pictureAddress } from "./source.js";

export const ENDS = {
  demonstration: "a demonstration: an expert's steps, with neither words nor reward",
  recorded: "a recording: what the cameras saw while actions were done, with neither words nor reward",
  broken: "a recording, up to where its world broke down",
  terminated: "terminated: it ended by the world's own rules",
  truncated: "truncated: it was cut at its time limit",
  "cut off": "it ends without a word why",
};
const EXACT = "marked: the tokens that count in the loss";
const ROUGH = "marked: the action in the text; name the tokenizer to see tokens (--tokenizer)";

// What an episode is counted in.
export function unitName(episode) {
  return episode.acts === "vectors" ? "step" : "turn";
}

export function turnCard(episode, at, store, go) {
  const turn = episode.turns[at];
  const info = Object.entries(turn.info ?? {}).map(([name, value]) => [name.replaceAll("_", " "), plainText(value)]);
  const said = make("summary", {}, "what the world says");
  const world = make("details", { class: "more", open: true }, said, factList(info));
  return [
    seenPart(episode, turn, at, store, go),
    make("div", { class: "said" },
      make("h3", {}, `${unitName(episode)} ${at + 1} of ${episode.turns.length}`, badges(turn)),
      make("p", { class: "shown" }, turn.text || "no text"),
      turn.reply === null ? null : replyBox(turn),
      factList([["action", actionText(turn.action)], ...paidFacts(turn), ...stateFacts(turn, at)]),
      info.length ? world : null),
  ];
}

export function lastCard(episode, at, store, go) {
  return [
    seenPart(episode, episode.last, at, store, go),
    make("div", { class: "said" },
      make("h3", {}, "at the end"),
      make("p", { class: "shown" }, episode.last.text || "no text"),
      make("p", {}, ENDS[episode.ended] ?? `error: ${episode.error}`)),
  ];
}

function badges(turn) {
  return ["terminated", "truncated"].filter((name) => turn[name]).map((name) => make("span", { class: "badge" }, name));
}

function actionText(action) {
  if (Array.isArray(action)) return action.map(shortNumber).join(", ");
  if (!action) return "none could be read";
  return Object.entries(action).flatMap(([name, value], index) =>
    [index ? " · " : "", `${name.replaceAll("_", " ")} `, make("b", {}, plainText(value))]);
}

// A demonstration has no reward, a vector no tokens, and a random policy's words were sampled from nothing.
function paidFacts(turn) {
  const known = (value) => value !== null && value !== undefined;
  return [
    ...(known(turn.reward) ? [["reward", make("b", {}, shortNumber(turn.reward))]] : []),
    ...(known(turn.running) ? [["return so far", make("b", {}, shortNumber(Number(turn.running.toFixed(6))))]] : []),
    ...(known(turn.value) ? [["value", shortNumber(turn.value)]] : []),
    ...(turn.tokens
      ? [["tokens", `${turn.counted} of ${turn.tokens} count · found by ${turn.masking_method || "no search"}`]]
      : []),
    ...(known(turn.logprob) ? [["log-probability", shortNumber(turn.logprob)]] : []),
  ];
}

function stateFacts(turn, at) {
  return [
    ...(turn.fresh && at > 0 ? [["context", "built anew before this turn"]] : []),
    ...(turn.state ? [["state", turn.state.map(shortNumber).join(", ")]] : []),
  ];
}

function factList(facts) {
  return make("dl", {}, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function replyBox(turn) {
  const marked = (piece) => (piece.counts ? "token counts" : "token");
  const pieces = turn.pieces.map((piece) => make("span", { class: marked(piece) }, piece.text));
  // words that no model sampled have no tokens to mark
  const note = turn.tokens ? make("p", { class: "quiet small" }, turn.exact ? EXACT : ROUGH) : null;
  return make("div", { class: turn.exact ? "reply" : "reply rough" },
    make("div", {}, pieces.length ? pieces : "(an empty reply)"), note);
}

// The cameras, and the room from above where there is a map.
function seenPart(episode, seen, at, store, go) {
  const pictures = seen.cameras.map(({ name, width, height }) => make("figure", {},
    make("img", { src: pictureAddress(store, episode.id, at, name), alt: `${name}, turn ${at + 1}`, width, height }),
    make("figcaption", { class: "quiet" }, `${name} · ${width}×${height}`)));
  const map = floorMap(episode, at, store, go);
  const all = [...pictures, ...(map ? [map] : [])];
  return make("div", { class: "cameras" }, all.length ? all : make("p", { class: "quiet" }, "no pictures"));
}
