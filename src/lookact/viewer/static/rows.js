// Which episodes of a folder are listed, in which order, and what folders are called. Pure.

export const SHOWN = 200;
export const ORDERS = ["in order", "highest return", "lowest return", "longest", "shortest"];
const KINDS = ["all", "success", "failure", "terminated", "truncated", "error", "invalid"];

function isOfKind(row, kind) {
  if (kind === "success" || kind === "failure") return row.success === (kind === "success");
  return kind === "all" || row.ended === kind || (kind === "invalid" && row.is_valid === false);
}

// The kinds that tell some episodes from others, each with its count.
export function kindsOf(rows) {
  const counted = KINDS.map((kind) => [kind, rows.filter((row) => isOfKind(row, kind)).length]);
  return counted.filter(([kind, count]) => kind === "all" || (count && count < rows.length));
}

// The rows that match the words and the kind, in the order asked for; `number` is a row's place in the folder.
export function chosenRows({ rows, only, order, words }) {
  const text = (row) => `${row.id} ${row.question ?? ""} ${row.scene_id ?? ""} ${row.ended}`.toLowerCase();
  const found = rows
    .map((row, index) => ({ ...row, number: index + 1 }))
    .filter((row) => isOfKind(row, only) && words.every((word) => text(row).includes(word)));
  const by = {
    "highest return": (row) => -(row.return ?? 0),
    "lowest return": (row) => row.return ?? 0,
    longest: (row) => -row.length,
    shortest: (row) => row.length,
  }[order];
  return by ? found.sort((a, b) => by(a) - by(b) || a.number - b.number) : found;
}

// Folders by what tells them apart: step-000020 is step 20, before-greedy the greedy policy before RL.
export function storeLabels(places) {
  const parts = places.map((place) => place.split("/"));
  let shared = 0;
  const last = Math.min(...parts.map((each) => each.length)) - 1;
  while (shared < last && parts.every((each) => each[shared] === parts[0][shared])) shared += 1;
  return parts.map((each) => each.slice(shared).map(spoken).join(" / "));
}

function spoken(name) {
  if (name === ".") return "this folder";
  const step = /^step-(\d+)(?:-(\w+))?$/.exec(name);
  if (step) return `step ${Number(step[1])}${step[2] ? `, ${step[2]}` : ""}`;
  const end = /^(before|after)-(\w+)$/.exec(name);
  return end ? `${end[1]} RL, ${end[2]}` : name.replaceAll("_", " ");
}
