// Settings by their dotted names, and where configs differ. Pure.

import { ownValue } from "./format.js";

export function flatten(config, prefix = "") {
  const flat = {};
  for (const [name, value] of Object.entries(config ?? {})) {
    const full = prefix + name;
    const nested = value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length;
    if (nested) Object.assign(flat, flatten(value, `${full}.`));
    else flat[full] = value;
  }
  return flat;
}

// Rows of [name, values by config, whether they differ]; a setting that one config lacks is undefined there.
export function compareSettings(configs) {
  const flats = configs.map((config) => flatten(config));
  const names = [...new Set(flats.flatMap((flat) => Object.keys(flat)))];
  return names.map((name) => {
    const values = flats.map((flat) => ownValue(flat, name));
    const written = values.map((value) => JSON.stringify(value) ?? "");
    return [name, values, new Set(written).size > 1];
  });
}
