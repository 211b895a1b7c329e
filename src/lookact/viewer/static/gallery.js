// Pictures, videos and texts of the chosen runs.

import { emptyNote, foldable, make, replace } from "./dom.js";
import { bytesOf } from "./format.js";
import { labelsOf } from "./seeds.js";
import { mediaAddress, mediaText } from "./source.js";

const NONE = "No pictures, videos or texts yet: recipes leave them in samples, plots and videos.";

export function showGallery(container, runs) {
  const labels = labelsOf(runs);
  const sections = runs.flatMap((run, index) => {
    const folders = [...new Set(run.media.map((item) => item.folder))];
    return folders.map((folder) => {
      const items = run.media.filter((item) => item.folder === folder);
      const title = (runs.length > 1 ? `${labels[index]}: ` : "") + (folder === "." ? "run folder" : folder);
      const cards = items.map((item) => mediaCard(item, items));
      return foldable(title, items.length, make("div", { class: "gallery" }, cards));
    });
  });
  replace(container, sections.length ? sections : make("div", { class: "card" }, emptyNote(NONE)));
}

function mediaCard(item, items) {
  const size = make("span", { class: "quiet" }, bytesOf(item.bytes));
  const caption = make("figcaption", {}, make("span", {}, item.name), size);
  const shown = { video: videoOf, text: textOf, picture: pictureOf }[item.kind](item, items);
  return make("figure", { class: "card" }, shown, caption);
}

function videoOf(item) {
  return make("video", { src: mediaAddress(item.place), controls: true, preload: "metadata", loop: true, muted: true });
}

function textOf(item) {
  const text = make("pre", {}, "…");
  mediaText(item.place).then(
    (words) => { text.textContent = words.trim(); },
    () => { text.textContent = "it is no longer there"; },
  );
  return text;
}

function pictureOf(item, items) {
  const pictures = items.filter((other) => other.kind === "picture");
  const onclick = () => enlarge(pictures, pictures.indexOf(item));
  // a strip of many views takes a line of its own
  const onload = () => picture.classList.toggle("long", picture.naturalWidth > 4 * picture.naturalHeight);
  const picture = make("img", { src: mediaAddress(item.place), alt: item.name, loading: "lazy", onclick, onload });
  return picture;
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
  const onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    at = (at + by + pictures.length) % pictures.length;
    show();
    event.preventDefault();
  };
  const closing = { onclick: () => dialog.close(), onclose: () => dialog.remove() };
  const dialog = make("dialog", { class: "light", ...closing, onkeydown }, picture, name);
  show();
  document.body.append(dialog);
  dialog.showModal();
}
