// What a judge was asked: both pictures side by side, its words, its verdict and the truth.

import { emptyNote, make, pickBox, replace } from "./dom.js";
import { shortNumber } from "./format.js";
import { DIFFICULTY, OUTCOMES, byDifficulty, choosePairs, countOutcomes, outcomeOf } from "./outcomes.js";
import { labelsOf } from "./seeds.js";
import { getPairs, mediaAddress } from "./source.js";

const AT_ONCE = 60;
const NO_PAIRS = "No pairs yet: only a judge who is shown pictures keeps a diary, judge/queries.jsonl.";

export async function showJudged(container, runs) {
  const asked = await Promise.all(runs.map((run) => getPairs(run.place)));
  const labels = labelsOf(runs);
  const parts = runs.map((run, index) => judgedPart(asked[index], runs.length > 1 ? labels[index] : ""));
  const some = asked.some((pairs) => pairs.length);
  replace(container, some ? parts : make("div", { class: "card" }, emptyNote(NO_PAIRS)));
}

function judgedPart(pairs, title) {
  if (!pairs.length) return null;
  const list = make("div", { class: "gallery judged" });
  const view = { pairs, only: "all", order: DIFFICULTY[0], most: AT_ONCE, list };
  const set = (patch) => {
    Object.assign(view, { most: AT_ONCE }, patch);
    drawPairs(view);
  };
  const counts = countOutcomes(pairs);
  const kinds = [["all", `all (${pairs.length})`], ...OUTCOMES.map((name) => [name, `${name} (${counts[name]})`])];
  const controls = make("div", { class: "controls" },
    pickBox("which pairs", kinds, "all", (only) => set({ only })),
    pickBox("order of pairs", DIFFICULTY.map((name) => [name, name]), view.order, (order) => set({ order })));
  view.more = () => set({ most: view.most + AT_ONCE });
  drawPairs(view);
  return make("section", { class: "card" }, title ? make("h3", {}, title) : null,
    make("p", {}, `The goal is ${pairs[pairs.length - 1].goal}.`), difficultyTable(pairs), controls, view.list);
}

function difficultyTable(pairs) {
  const head = ["difference of true scores", ...OUTCOMES].map((name) => make("th", {}, name));
  const rows = byDifficulty(pairs).map((bin) => make("tr", {},
    make("td", {}, `${shortNumber(bin.low)} – ${shortNumber(bin.high)}`),
    OUTCOMES.map((name) => make("td", { class: "number" }, bin[name]))));
  return make("table", { class: "difficulty" }, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows));
}

function drawPairs(view) {
  const found = choosePairs(view.pairs, view.only, view.order);
  const rest = found.length - view.most;
  const more = rest > 0 ? make("button", { class: "link", onclick: view.more }, `${rest} more`) : null;
  replace(view.list, found.slice(0, view.most).map(pairCard), more);
}

function pairCard(pair) {
  const outcome = outcomeOf(pair);
  const pictures = pair.pictures.map((place, side) => make("figure", {},
    make("img", { src: mediaAddress(place), alt: `picture ${side}`, loading: "lazy" }),
    make("figcaption", {}, `${side}: true score ${shortNumber(pair.scores[side])}`)));
  const said = pair.replies.map((reply, index) => make("pre", { title: pair.prompts[index] ?? "" }, reply));
  const mark = make("b", { class: `outcome ${outcome}` }, outcome);
  const told = make("p", { class: "small" }, mark, ` says ${pair.verdict}, truth ${pair.truth} · round ${pair.round}`);
  return make("div", { class: "card pair-card" }, make("div", { class: "both" }, pictures), told, said);
}
