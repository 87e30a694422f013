// The cells of a page that run in it: editors, buttons, outputs. CONFIG is put in when this is bundled:
// {archive, packages, source, topics}, the names of files beside this one and where packages come from.
import { Answers, answerIn, exerciseOf, unzipped, zipped } from "./answers.mjs";
import { editor, replace } from "./editor.mjs";
import { addOutput } from "./output.mjs";
import { Python } from "./python.mjs";

const base = new URL(".", import.meta.url).href;
const answers = new Answers(window.localStorage);
const cells = new Map();
const notebook = location.pathname.split("/").pop().replace(/\.html$/, "");

/** Return a new element. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// --- Python ------------------------------------------------------------------------------------------------

let running = null;
const python = new Python(
  () => new Worker(new URL(CONFIG.worker, base), { type: "module" }),
  () => ({ base, archive: CONFIG.archive, packages: CONFIG.packages, workbook: answers.workbook() }),
  (told) => {
    if (!running) return;
    if (told.failed) running.failed(told.failed);
    else running.progress(told.ready ? null : told);
  },
);

// --- A cell ------------------------------------------------------------------------------------------------

class Cell {
  constructor(place, id, label) {
    const given = place.querySelector("pre").textContent.replace(/\n$/, "");
    Object.assign(this, { place, id, given, isExercise: id.endsWith("-stub") });
    this.input = place.querySelector(".cell_input") ?? place;
    this.stored = place.querySelector(".cell_output");
    this.output = element("div", { class: "live-output", role: "status", "aria-label": `Output: ${label}` });
    this.state = element("span", { class: "live-state", role: "status" });
    this.bar = element("progress", { hidden: "", "aria-label": "Loading" });
    const button = (text, act, more = {}) =>
      element("button", { type: "button", onclick: act, "aria-label": `${text}: ${label}`, ...more }, text);
    this.runButton = button(this.isExercise ? "Run and check" : "Run", () => this.run(), { class: "live-run" });
    this.stopButton = button("Stop", () => python.stop(), { disabled: "" });
    const reset = button("Reset", () => this.reset());
    const bar = element("div", { class: "live-bar" }, this.runButton, this.stopButton, reset, this.bar, this.state);
    const box = element("div", { class: "live-editor" });
    this.input.replaceChildren(box, bar, this.output);
    this.view = editor(box, answers.get(notebook, id) ?? given, {
      label: `Python: ${label}. Escape, then Tab leaves the editor.`,
      run: () => this.run(),
      changed: (text) => answers.set(notebook, id, text === given ? null : text),
    });
    this.wanted = [];
  }

  get source() {
    return this.view.state.doc.toString();
  }

  reset() {
    replace(this.view, this.given);
    this.output.replaceChildren();
    this.state.textContent = "";
    this.stored?.removeAttribute("hidden");
    this.view.focus();
  }

  async run() {
    if (running) return;
    running = this;
    this.output.replaceChildren();
    this.busy(true);
    const sources = Object.fromEntries([...cells.values()].map((each) => [each.id, each.source]));
    const job = { notebook, cell: this.id, sources, fetch: this.wanted };
    this.wanted = [];
    const how = await python.run(job, (kind, text) => this.show(kind, text));
    running = null;
    this.busy(false);
    this.end(how);
  }

  show(kind, text) {
    this.stored?.setAttribute("hidden", ""); // what another machine has put out
    addOutput(this.output, kind, text);
  }

  progress(told) {
    this.bar.hidden = !told;
    this.state.textContent = told ? `${told.progress} …` : "Running …";
    if (told) Object.assign(this.bar, { max: told.steps, value: told.step + 0.5 });
  }

  busy(is) {
    this.state.textContent = is ? "Running …" : "";
    this.bar.hidden = true;
    this.stopButton.disabled = !is;
    for (const cell of cells.values()) cell.runButton.disabled = is;
    this.place.classList.toggle("live-busy", is);
  }

  end({ stopped, seconds, missing = [], workbook, status }) {
    if (stopped) this.state.textContent = "Stopped. What had run before is run again when it is needed.";
    else if (seconds !== undefined) this.state.textContent = `${seconds.toFixed(2)} s`;
    if (workbook) answers.addToWorkbook(workbook);
    if (status) this.place.dataset.status = status;
    const packages = [...new Set(missing)];
    if (!packages.length) return;
    const names = packages.join(", ");
    const from = new URL(CONFIG.packages, base).host;
    const fetch = () => ((this.wanted = packages), this.run());
    const text = `Fetch ${names} from ${from} and run again`;
    this.output.append(element("button", { type: "button", class: "live-fetch", onclick: fetch }, text));
  }

  failed(reason) {
    this.show("error", `Python could not be started: ${reason}`);
    python.stop();
  }
}

// --- The page ----------------------------------------------------------------------------------------------

function download() {
  const bytes = zipped(answers.workbook());
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/zip" }));
  element("a", { href: address, download: "workbook.zip" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function upload(files, said) {
  const found = {};
  try {
    for (const file of files) {
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (file.name.endsWith(".zip")) Object.assign(found, await unzipped(bytes));
      else if (file.name.endsWith(".py")) found[file.name] = new TextDecoder().decode(bytes);
    }
  } catch (error) {
    said.textContent = `This could not be read: ${error.message}`;
    return;
  }
  const topics = Object.values(CONFIG.topics);
  const known = Object.entries(found).filter(([name]) => exerciseOf(name, topics));
  answers.addToWorkbook(Object.fromEntries(known));
  for (const [name, text] of known) {
    const [topic, exercise] = exerciseOf(name, topics);
    const cell = cells.get(`${exercise.replaceAll("_", "-")}-stub`);
    if (CONFIG.topics[notebook] === topic && cell?.source === cell?.given) replace(cell.view, answerIn(text));
  }
  python.stop(); // the next run begins with the new workbook
  said.textContent = `${known.length} answers read.`;
}

function introduction() {
  const said = element("span", { role: "status" });
  const chosen = ({ target }) => upload([...target.files], said);
  const file = element("input", { type: "file", accept: ".zip,.py", multiple: "", hidden: "", onchange: chosen });
  return element(
    "div",
    { class: "live-note", role: "region", "aria-label": "Running cells here" },
    element(
      "p",
      {},
      "Cells with a ",
      element("b", {}, "Run"),
      " button run here, in your browser, by gpuless’ simulator. The first run fetches Python, some 11 MB. " +
        "Ctrl + Enter and Shift + Enter run too. Your answers stay in this browser, and nothing is sent anywhere.",
    ),
    element("button", { type: "button", onclick: download }, "Download workbook"),
    element("button", { type: "button", onclick: () => file.click() }, "Upload workbook"),
    file,
    said,
  );
}

/** Return what a cell is called: the heading above it, else its place. */
function labelOf(place, number) {
  const heading = place.closest("section")?.querySelector("h1, h2, h3");
  const text = heading?.textContent.replace(/#$/, "").trim();
  return text ? `${text}, cell ${number}` : `cell ${number}`;
}

function begin() {
  const places = document.querySelectorAll("[class*='tag_live-']");
  for (const [number, place] of [...places].entries()) {
    const id = [...place.classList].find((each) => each.startsWith("tag_live-")).slice("tag_live-".length);
    cells.set(id, new Cell(place, id, labelOf(place, number + 1)));
    // Run and check does what the cell below is for.
    const below = place.nextElementSibling;
    if (below?.classList.contains("tag_exercise-check")) below.hidden = true;
  }
  const intro = document.querySelector("[data-live-note]");
  if (cells.size) (intro ?? document.querySelector("h1")).after(introduction());
  document.documentElement.dataset.live = cells.size;
}

begin();
