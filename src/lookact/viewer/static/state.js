// What the page shows, kept in its address, so that a link or a reload shows the same. Pure.

const DEFAULTS = {
  runs: [],
  tab: "charts",
  file: "metrics.jsonl",
  store: "",
  episode: "",
  turn: 0,
  search: "",
  smooth: 0,
  axis: "step",
  log: false,
  mean: true,
  all: false,
};

export function readState(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...DEFAULTS, runs: words.getAll("run") };
  for (const [name, standard] of Object.entries(DEFAULTS)) {
    const word = words.get(name);
    if (word === null || name === "runs") continue;
    if (typeof standard === "number") state[name] = Number.isFinite(Number(word)) ? Number(word) : standard;
    else state[name] = typeof standard === "boolean" ? word === "yes" : word;
  }
  return state;
}

// The address of a page that shows nothing but what is told.
export function addressOf(part) {
  return writeState({ ...DEFAULTS, ...part });
}

// The address of a state; what is as usual is left out.
export function writeState(state) {
  const words = new URLSearchParams();
  for (const run of state.runs) words.append("run", run);
  for (const [name, standard] of Object.entries(DEFAULTS)) {
    const value = state[name];
    if (name === "runs" || value === standard) continue;
    words.set(name, typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
  }
  const text = words.toString();
  return text ? `#${text}` : "#";
}
