// Plays one episode: its heading, a strip of turns, and the turn that is shown.

import { emptyNote, make, makeSvg, replace } from "./dom.js";
import { shortNumber } from "./format.js";
import { getEpisode } from "./source.js";
import { ENDS, lastCard, turnCard, unitName } from "./turn.js";

const PACE = 450;
const FAST = 120;
const MANY = 40; // more steps than this are shown as thin bars, and played faster
const LEFT_OUT = "This episode was left out of the file.";

// Fills the player and returns move(by) and play() for the keyboard, and stop() for when something else is shown.
export async function showEpisode(player, store, id, turn, onTurn) {
  const episode = await getEpisode(store, id);
  const stops = episode ? [...episode.turns, ...(episode.last ? [episode.last] : [])] : [];
  if (!stops.length) {
    const why = episode ? (episode.problem ?? "This episode has no turns.") : LEFT_OUT;
    replace(player, make("div", { class: "card" }, emptyNote(why)));
    return { move: () => {}, play: () => {}, stop: () => {} };
  }
  const body = make("div", { class: "card turn" });
  const many = stops.length > MANY;
  const strip = make("div", { class: many ? "strip many" : "strip", role: "tablist" });
  let at = Math.max(0, Math.min(turn, stops.length - 1));
  const show = () => {
    replace(strip, turnStrip(episode, stops, at, go));
    replace(body, (at < episode.turns.length ? turnCard : lastCard)(episode, at, store, go));
  };
  // Whether there was another stop to go to.
  const go = (next) => {
    const stop = Math.max(0, Math.min(next, stops.length - 1));
    if (stop === at) return false;
    at = stop;
    show();
    onTurn(at);
    return true;
  };
  const controls = { step: () => go(at + 1), rewind: () => at === stops.length - 1 && go(0) };
  const { button, play, stop } = playButton(controls, many ? FAST : PACE);
  replace(player, heading(episode, stops.length > 1 ? button : null), strip, body);
  show();
  return { move: (by) => go(at + by), play, stop };
}

function playButton({ step, rewind }, pace) {
  let playing = 0;
  const pause = () => {
    clearInterval(playing);
    playing = 0;
    button.textContent = "play";
  };
  const play = () => {
    if (playing) return pause();
    rewind();
    button.textContent = "pause";
    playing = setInterval(() => (button.isConnected && step()) || pause(), pace);
  };
  const button = make("button", { class: "play", title: "space", onclick: play }, "play");
  return { button, play, stop: pause };
}

function heading(episode, button) {
  const why = episode.error ? `error: ${episode.error}` : ENDS[episode.ended];
  const dropped = episode.is_valid === false ? ` · not trained on: ${episode.dropout_reason}` : "";
  return make("div", { class: "heading" },
    button,
    make("h2", {}, episode.question || episode.id, outcome(episode)),
    make("p", { class: "quiet" }, whoAndWhat(episode)),
    make("p", { class: episode.error ? "wrong" : "quiet" }, why + dropped));
}

// Whether it reached its goal, or what was answered.
function outcome(episode) {
  const info = episode.turns.at(-1)?.info ?? {};
  if (typeof info.prediction === "string" && "ground_truth" in info) {
    const said = info.prediction ? `answered ${info.prediction}` : "no answer";
    return make("span", { class: "badge" }, `${said}, truth ${info.ground_truth}`);
  }
  if (typeof episode.success !== "boolean") return null;
  return make("span", { class: episode.success ? "badge good" : "badge bad" }, episode.success ? "success" : "failure");
}

function whoAndWhat(episode) {
  if (episode.return === null) return `episode ${episode.id} · ${episode.length} steps`;
  const { id, group, seed, policy_version: version } = episode;
  const total = make("b", {}, shortNumber(Number(episode.return.toFixed(4))));
  const counted = `${episode.length} ${unitName(episode)}${episode.length === 1 ? "" : "s"}`;
  const weights = version ? ` · weights ${version}` : "";
  const origin = episode.acts === "vectors" ? "" : ` · group ${group} · seed ${seed}${weights}`;
  return [`${id}${origin} · ${counted} · return `, total];
}

// A bar a turn, as high as its reward; the last stop is what was seen at the end.
function turnStrip(episode, stops, at, go) {
  const thin = stops.length > MANY;
  const most = Math.max(1e-9, ...episode.turns.map((turn) => Math.abs(turn.reward ?? 0)));
  return stops.map((_, index) => {
    const reward = episode.turns[index]?.reward ?? null;
    const name = index < episode.turns.length ? String(index + 1) : "end";
    const title = reward === null ? name : `${unitName(episode)} ${name}: reward ${shortNumber(reward)}`;
    const selected = String(index === at);
    return make("button", { role: "tab", "aria-selected": selected, title, onclick: () => go(index) },
      episode.return === null && !thin ? null : rewardBar(reward ?? 0, most, thin ? 7 : 28), thin ? null : name);
  });
}

function rewardBar(reward, most, width) {
  const height = (Math.abs(reward) / most) * 16;
  const [kind, y] = reward < 0 ? ["minus", 17] : ["plus", 17 - height];
  const bar = Math.min(10, width - 2);
  return makeSvg("svg", { width, height: 34, "aria-hidden": "true" },
    makeSvg("line", { x1: width > 20 ? 4 : 0, x2: width > 20 ? width - 4 : width, y1: 17, y2: 17 }),
    makeSvg("rect", { class: kind, x: (width - bar) / 2, width: bar, y, height }));
}
