// Which pairs of a judge's diary are shown, in which order, and how often it was right by difficulty. Pure.

export const OUTCOMES = ["right", "wrong", "undecided"];
export const DIFFICULTY = ["hardest first", "easiest first", "newest first"];
const BINS = 5;

// A verdict on equal scores can't be told right from wrong, and counts as undecided.
export function outcomeOf({ verdict, truth }) {
  if (verdict === -1 || truth === -1) return "undecided";
  return verdict === truth ? "right" : "wrong";
}

export function countOutcomes(pairs) {
  const counts = Object.fromEntries(OUTCOMES.map((name) => [name, 0]));
  for (const pair of pairs) counts[outcomeOf(pair)] += 1;
  return counts;
}

export function choosePairs(pairs, only, order) {
  const found = pairs.filter((pair) => only === "all" || outcomeOf(pair) === only);
  if (order === "newest first") return found.reverse();
  const sign = order === "easiest first" ? -1 : 1;
  return found.sort((a, b) => sign * ((a.gap ?? 0) - (b.gap ?? 0)));
}

// Up to five bins of about equally many pairs, from the hardest: {low, high, right, wrong, undecided}.
export function byDifficulty(pairs) {
  const sorted = choosePairs(pairs, "all", "hardest first");
  const count = Math.min(BINS, sorted.length);
  return Array.from({ length: count }, (_, bin) => {
    const from = Math.round((bin * sorted.length) / count);
    const part = sorted.slice(from, Math.round(((bin + 1) * sorted.length) / count));
    return { low: part[0].gap ?? 0, high: part[part.length - 1].gap ?? 0, ...countOutcomes(part) };
  });
}
