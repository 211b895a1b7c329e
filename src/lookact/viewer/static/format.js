// Numbers, units and times as people read them. Pure.

const PERCENT = /(_rate|_share|_fraction|accuracy|answered|success)$/;

// A mapping's own value: names such as "constructor" are every object's.
export function ownValue(mapping, name) {
  return Object.hasOwn(mapping ?? {}, name) ? mapping[name] : undefined;
}

// What a metric is measured in, by its name.
export function unitOf(key) {
  if (key.startsWith("time/")) return "s";
  if (/psnr$/.test(key)) return "dB";
  return PERCENT.test(key) ? "%" : "";
}

// Four digits that matter, thousands as k and M, small numbers by their power of ten.
export function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e12 || size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size < 1e4) return String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
  // what would round up to a thousand of one mark is told in the next
  const [scale, mark] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => size >= 0.99995 * each);
  return String(Number((value / scale).toPrecision(3))) + mark;
}

export function withUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return `${trimmed(100 * value, 1)}%`;
  return unit ? `${shortNumber(value)} ${unit}` : shortNumber(value);
}

// A tick's label: no more digits than its neighbours need.
export function tickLabel(value, unit) {
  if (unit === "%") return `${Number((100 * value).toPrecision(4))}%`;
  const label = value === 0 ? "0" : shortNumber(Number(value.toPrecision(4)));
  return unit ? `${label} ${unit}` : label;
}

// Seconds as 45 s, 12 min, 3 h 20 or 2 d 4 h.
export function spanOf(seconds) {
  if (seconds < 60) return `${trimmed(seconds, seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return seconds % 60 && seconds < 600 ? `${trimmed(seconds / 60, 1)} min` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${String(minutes % 60).padStart(2, "0")}` : `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function agoOf(seconds) {
  const whole = seconds < 60 ? Math.round(seconds) : 60 * Math.round(seconds / 60);
  return seconds < 5 ? "just now" : `${spanOf(whole)} ago`;
}

export function bytesOf(count) {
  if (count < 1024) return `${count} B`;
  return count < 1 << 20 ? `${Math.round(count / 1024)} kB` : `${trimmed(count / (1 << 20), 1)} MB`;
}

// A setting or result as text.
export function plainText(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.length ? value.map(plainText).join(", ") : "[ ]";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : shortNumber(value);
  return String(value) === "" ? "“”" : String(value);
}

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}
