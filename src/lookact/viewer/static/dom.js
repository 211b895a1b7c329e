// Elements in one line, and the few that the pages share. Text is always set as text, never as markup.

const COLOURS = 8;

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// What stands where there is nothing yet, with what to do about it.
export function emptyNote(text, command) {
  return make("div", { class: "empty" }, make("p", {}, text), command ? make("code", {}, command) : null);
}

export function searchBox(label, value, onText) {
  const oninput = (event) => onText(event.target.value);
  return make("input", { type: "search", placeholder: label, "aria-label": label, value, oninput });
}

// A list to pick from: options are [value, text].
export function pickBox(label, options, chosen, onPick) {
  const onchange = (event) => onPick(event.target.value);
  const made = options.map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  return make("select", { "aria-label": label, onchange }, made);
}

// A part of the page that can be folded away.
export function foldable(title, count, body) {
  return make("details", { class: "group", open: true }, make("summary", {}, title, make("span", {}, count)), body);
}

// The class that gives an element the colour of a curve.
export function colourOf(index) {
  return `c${index % COLOURS}`;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
