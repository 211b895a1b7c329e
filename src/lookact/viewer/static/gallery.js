// Pictures, videos and texts of the chosen runs.

import { emptyNote, make, replace } from "./dom.js";
import { bytesOf } from "./format.js";
import { labelsOf } from "./seeds.js";
import { mediaAddress, mediaText } from "./source.js";

export function showGallery(container, runs) {
  const labels = labelsOf(runs);
  const sections = runs.flatMap((run, index) => {
    const folders = new Map();
    for (const item of run.media) folders.set(item.folder, [...(folders.get(item.folder) ?? []), item]);
    return [...folders].map(([folder, items]) => make("details", { class: "group", open: true },
      make("summary", {}, runs.length > 1 ? `${labels[index]}: ` : "", folder === "." ? "run folder" : folder, make("span", {}, String(items.length))),
      make("div", { class: "gallery" }, items.map((item) => mediaCard(item, items)))));
  });
  replace(container, sections.length ? sections : make("div", { class: "card" }, emptyNote("No pictures, videos or texts yet: recipes leave them in samples, plots and videos.")));
}

function mediaCard(item, items) {
  const address = mediaAddress(item.place);
  const caption = make("figcaption", {}, make("span", {}, item.name), make("span", { class: "quiet" }, bytesOf(item.bytes)));
  if (item.kind === "video") return make("figure", { class: "card" }, make("video", { src: address, controls: true, preload: "metadata", loop: true, muted: true }), caption);
  if (item.kind === "text") {
    const text = make("pre", {}, "…");
    mediaText(item.place).then((words) => { text.textContent = words.trim(); }, () => { text.textContent = "it is no longer there"; });
    return make("figure", { class: "card words" }, text, caption);
  }
  const pictures = items.filter((other) => other.kind === "picture");
  const picture = make("img", { src: address, alt: item.name, loading: "lazy", onclick: () => enlarge(pictures, pictures.indexOf(item)),
    // a strip of many views takes a line of its own
    onload: () => picture.classList.toggle("long", picture.naturalWidth > 4 * picture.naturalHeight) });
  return make("figure", { class: "card" }, picture, caption);
}

// One picture over the page; the arrow keys go through its neighbours.
function enlarge(pictures, start) {
  let at = start;
  const picture = make("img", { alt: "" });
  const name = make("p", {});
  const show = () => {
    picture.src = mediaAddress(pictures[at].place);
    name.textContent = `${pictures[at].name}  ·  ${at + 1} of ${pictures.length}`;
  };
  const dialog = make("dialog", { class: "light", onclick: () => dialog.close(), onclose: () => dialog.remove(),
    onkeydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      at = (at + by + pictures.length) % pictures.length;
      show();
      event.preventDefault();
    } }, picture, name);
  show();
  document.body.append(dialog);
  dialog.showModal();
}
