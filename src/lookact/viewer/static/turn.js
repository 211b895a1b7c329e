// One turn of an episode: what was seen, said, counted, done and paid.

import { make } from "./dom.js";
import { plainText, shortNumber } from "./format.js";
import { pictureAddress } from "./source.js";

export const ENDS = {
  demonstration: "a demonstration: an expert's steps, with neither words nor reward",
  recorded: "a recording: what the cameras saw while actions were done, with neither words nor reward",
  broken: "a recording, up to where its world broke down",
  terminated: "terminated: it ended by the world's own rules",
  truncated: "truncated: it was cut at the limit of turns",
  "cut off": "it ends without a word why",
};
const EXACT = "marked: the tokens that count in the loss";
const ROUGH = "marked: the action in the text; name the tokenizer to see tokens (--tokenizer)";

export function turnCard(episode, at, store) {
  const turn = episode.turns[at];
  const info = Object.entries(turn.info ?? {}).map(([name, value]) => [name.replaceAll("_", " "), plainText(value)]);
  const said = make("summary", {}, "what the world says");
  const world = make("details", { class: "more", open: true }, said, factList(info));
  return [
    cameras(turn, episode.id, at, store),
    make("div", { class: "said" },
      make("h3", {}, `turn ${at + 1} of ${episode.turns.length}`, badges(turn)),
      make("p", { class: "shown" }, turn.text || "no text"),
      turn.reply === null ? null : replyBox(turn),
      factList([["action", actionText(turn.action)], ...paidFacts(turn), ...stateFacts(turn, at)]),
      info.length ? world : null),
  ];
}

export function lastCard(episode, at, store) {
  return [
    cameras(episode.last, episode.id, at, store),
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

// A demonstration has none of these.
function paidFacts(turn) {
  if (turn.reply === null) return [];
  return [
    ["reward", make("b", {}, shortNumber(turn.reward))],
    ["return so far", make("b", {}, shortNumber(Number((turn.running ?? 0).toFixed(6))))],
    ...(turn.value === null ? [] : [["value", shortNumber(turn.value)]]),
    ["tokens", `${turn.counted} of ${turn.tokens} count · found by ${turn.masking_method || "no search"}`],
    ["log-probability", shortNumber(turn.logprob)],
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
  return make("div", { class: turn.exact ? "reply" : "reply rough" },
    make("div", {}, pieces.length ? pieces : "(an empty reply)"),
    make("p", { class: "quiet small" }, turn.exact ? EXACT : ROUGH));
}

function cameras(seen, id, at, store) {
  const pictures = seen.cameras.map(({ name, width, height }) => make("figure", {},
    make("img", { src: pictureAddress(store, id, at, name), alt: `${name}, turn ${at + 1}`, width, height }),
    make("figcaption", { class: "quiet" }, `${name} · ${width}×${height}`)));
  return make("div", { class: "cameras" }, pictures.length ? pictures : make("p", { class: "quiet" }, "no pictures"));
}
