// The drawing pad in the browser. It sends the ink and shows what comes back; the network runs in Python.

const SIZE = 140; // pixels along an edge of the drawing, as in pad.py
const PEN = 11;
const SEEN = 28;
const STEP = 7; // of the keyboard's pen
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HELP = "By keys: arrows move the pen, Space puts it down or lifts it, Delete clears.";

function element(parent, tag, className, properties = {}) {
  const made = Object.assign(document.createElement(tag), { className, ...properties });
  parent.append(made);
  return made;
}

// Ink from where the pen was last; a pen put down without a move leaves a dot.
function inking(pen, changed) {
  let last = null;
  return {
    line: (to) => {
      pen.beginPath();
      pen.moveTo(...(last ?? to));
      pen.lineTo(to[0] + 0.01, to[1]); // browsers draw no line of length 0
      pen.stroke();
      last = to;
      changed();
    },
    lift: () => (last = null),
    down: () => last !== null,
  };
}

function strokes(canvas, ink) {
  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    const x = ((event.clientX - frame.left) * SIZE) / frame.width;
    const y = ((event.clientY - frame.top) * SIZE) / frame.height;
    return [x, y];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
    ink.lift();
    ink.line(place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) ink.line(place(event));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, ink.lift);
  }
}

// The same by keys: arrows move a pen, the space bar puts it down and lifts it, Delete clears.
function keys(canvas, ink, mark, status, clear) {
  let at = [SIZE / 2, SIZE / 2];
  const show = () => {
    [mark.style.left, mark.style.top] = at.map((place) => `${(100 * place) / SIZE}%`);
    mark.classList.toggle("down", ink.down());
    status.textContent = ink.down() ? "The pen is down." : "The pen is up.";
  };
  const act = {
    " ": () => (ink.down() ? ink.lift() : ink.line(at)),
    Delete: clear,
    Backspace: clear,
  };
  canvas.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || !(move || act[event.key])) return;
    event.preventDefault();
    if (move) {
      at = at.map((place, axis) => Math.min(Math.max(place + STEP * move[axis], 0), SIZE));
      if (ink.down()) ink.line(at);
    } else if (!event.repeat) {
      act[event.key]();
    }
    show();
  });
  canvas.addEventListener("blur", () => {
    ink.lift();
    status.textContent = "";
  });
  show();
  status.textContent = "";
}

function bars(parent) {
  const table = element(parent, "div", "bars");
  return [...Array(10).keys()].map((digit) => {
    const row = element(table, "div", "bar");
    element(row, "span", "digit", { textContent: digit });
    const fill = element(element(row, "div", "groove"), "div", "fill");
    return { row, fill, number: element(row, "span", "number") };
  });
}

function render({ model, el }) {
  el.classList.add("digit-pad");
  const left = element(el, "div", "column");
  const paper = element(left, "div", "paper");
  const canvas = element(paper, "canvas", "drawing", { width: SIZE, height: SIZE, tabIndex: 0 });
  canvas.setAttribute("role", "application"); // so that screen readers pass the arrow keys on
  canvas.setAttribute("aria-label", `Drawing pad for one digit. ${HELP}`);
  canvas.dataset.lmSuppressShortcuts = "true"; // JupyterLab would walk through its cells
  const mark = element(paper, "div", "pen");
  element(left, "div", "help", { textContent: HELP }).setAttribute("aria-hidden", "true");
  const status = element(left, "div", "status");
  status.setAttribute("role", "status");
  const buttons = element(left, "div", "buttons");
  const clear = element(buttons, "button", "clear", { type: "button", textContent: "Clear" });
  const open = element(buttons, "label", "open", { textContent: "or open a picture " });
  const file = element(open, "input", "file", { type: "file", accept: "image/*" });

  const right = element(el, "div", "column");
  const answer = element(right, "div", "answer");
  answer.setAttribute("aria-live", "polite");
  const rows = bars(right);
  const view = element(right, "div", "buttons");
  const small = element(view, "canvas", "seen", { width: SEEN, height: SEEN });
  small.setAttribute("role", "img");
  small.setAttribute("aria-label", "Your digit, 28 by 28 pixels");
  element(view, "span", "open", { textContent: "what the network sees" });

  const pen = canvas.getContext("2d", { willReadFrequently: true });
  Object.assign(pen, { lineWidth: PEN, lineCap: "round", lineJoin: "round", strokeStyle: "white" });

  const wipe = () => {
    pen.fillStyle = "black";
    pen.fillRect(0, 0, SIZE, SIZE);
  };
  let waiting = false;
  const send = () => {
    waiting = false;
    const { data } = pen.getImageData(0, 0, SIZE, SIZE);
    const ink = Uint8Array.from({ length: SIZE * SIZE }, (_, i) => data[4 * i]);
    model.set("drawing", new DataView(ink.buffer));
    model.save_changes();
  };
  // At most once a frame; while Python is busy, Jupyter keeps only the newest.
  const changed = () => {
    if (!waiting) requestAnimationFrame(send);
    waiting = true;
  };

  const show = () => {
    const chances = model.get("chances");
    const best = chances.indexOf(Math.max(...chances));
    if (answer.textContent !== model.get("message")) answer.textContent = model.get("message"); // once
    rows.forEach(({ row, fill, number }, digit) => {
      const chance = chances[digit] ?? 0;
      row.classList.toggle("best", digit === best);
      fill.style.width = `${100 * chance}%`;
      number.textContent = chances.length ? `${Math.round(100 * chance)}%` : "";
    });
    const seen = model.get("seen");
    const picture = small.getContext("2d").createImageData(SEEN, SEEN);
    for (let i = 0; i < SEEN * SEEN; i++) {
      picture.data.fill(seen.byteLength ? seen.getUint8(i) : 0, 4 * i, 4 * i + 3);
      picture.data[4 * i + 3] = 255;
    }
    small.getContext("2d").putImageData(picture, 0, 0);
  };

  wipe();
  const ink = inking(pen, changed);
  const start = () => {
    ink.lift();
    wipe();
    changed();
  };
  strokes(canvas, ink);
  keys(canvas, ink, mark, status, start);
  clear.addEventListener("click", start);
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    model.set("upload", new DataView(await file.files[0].arrayBuffer()));
    model.save_changes();
    file.value = ""; // so that the same file can be chosen again
    wipe();
  });
  const names = ["chances", "seen", "message"].map((name) => `change:${name}`);
  names.forEach((name) => model.on(name, show));
  show();
  return () => names.forEach((name) => model.off(name, show));
}

export default { render };
