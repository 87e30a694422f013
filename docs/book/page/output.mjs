// What a cell puts out, as elements.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Append text to an element; the colours of a terminal become classes. */
export function addText(parent, text) {
  let [colour, bold] = [null, false];
  for (const [number, part] of text.split(/\x1b\[([\d;]*)m/).entries()) {
    if (number % 2) {
      for (const code of part.split(";").map(Number)) {
        if (code === 0) [colour, bold] = [null, false];
        else if (code === 1) bold = true;
        else if (code === 39) colour = null;
        else if (code >= 30 && code <= 37) colour = COLOURS[code - 30];
        else if (code >= 90 && code <= 97) colour = COLOURS[code - 90];
      }
    } else if (part) {
      const classes = [colour && `live-${colour}`, bold && "live-bold"].filter(Boolean);
      const span = parent.ownerDocument.createElement("span");
      span.className = classes.join(" ");
      span.textContent = part;
      parent.append(classes.length ? span : part);
    }
  }
}

/** Append an output of a cell. What is printed goes on where the text before ended. */
export function addOutput(parent, kind, text) {
  const document = parent.ownerDocument;
  if (kind === "html") {
    // Made by the course's own verdicts and pictures, or by what the reader has written.
    const box = document.createElement("div");
    box.innerHTML = text;
    parent.append(box);
    return;
  }
  let box = parent.lastElementChild;
  if (box?.dataset.kind !== "stream" || kind !== "stream") {
    box = document.createElement("pre");
    box.dataset.kind = kind;
    box.tabIndex = 0; // a long line scrolls, by keys too
    if (kind === "error") box.className = "live-error";
    parent.append(box);
  }
  addText(box, text);
}
