// The worker: Pyodide, NumPy, the course, and one notebook's cells at a time. It gets {start: ...} once, then
// {run: {notebook, cell, sources, fetch}}, and answers {output: [kind, text]} and {done: {...}}.

const steps = 4;
let python;

const post = (message) => self.postMessage(message);
const progress = (text, step) => post({ progress: text, step, steps });

async function start({ base, packages, archive, workbook }) {
  const at = (name) => new URL(name, base).href;
  progress("Loading Python", 0);
  const { loadPyodide } = await import(at("pyodide/pyodide.mjs"));
  const [course] = await Promise.all([
    fetch(at(archive)).then((answer) => answer.arrayBuffer()),
    loadPyodide({ indexURL: at("pyodide/"), packageBaseUrl: new URL(packages, base).href }).then((made) => {
      python = made;
    }),
  ]);
  progress("Loading NumPy", 1);
  await load(["numpy"]);
  progress("Unpacking the course", 2);
  python.unpackArchive(course, "zip", { extractDir: "/course" });
  python.FS.mkdirTree("/course/notebooks/workbook");
  for (const [name, text] of Object.entries(workbook)) {
    python.FS.writeFile(`/course/notebooks/workbook/${name}`, text);
  }
  progress("Importing the course", 3);
  python.runPython("import sys, warnings; sys.path.insert(0, '/course'); warnings.simplefilter('ignore')");
  python.runPython("from cnn_course.engine import in_page");
  post({ ready: true });
}

/** Load packages by the names, and the SHA-256, in Pyodide's own lock file. */
async function load(names) {
  const loaded = await python.loadPackage(names, { messageCallback: () => {}, errorCallback: () => {} });
  const lacking = names.filter((name) => !(name in python.loadedPackages));
  if (lacking.length) throw new Error(`${lacking.join(", ")} could not be fetched`);
  return loaded;
}

/** Return the package of the lock file that has a module, if one has. */
function packageOf(module) {
  const found = Object.values(python.lockfile.packages).find((each) => each.imports.includes(module));
  return found?.name;
}

async function run({ notebook, cell, sources, fetch: wanted }) {
  const began = performance.now();
  const missing = [];
  const emit = (kind, text) => {
    const name = kind === "missing" ? packageOf(text) : undefined;
    if (kind !== "missing") post({ output: [kind, text] });
    else if (name) missing.push(name);
  };
  const done = {};
  try {
    if (wanted.length) {
      progress(`Loading ${wanted.join(", ")}`, 1);
      await load(wanted);
      post({ ready: true });
    }
    const inPage = python.pyimport("cnn_course.engine.in_page");
    const told = inPage.run(notebook, cell, JSON.stringify(sources), emit);
    Object.assign(done, JSON.parse(told), { missing });
  } catch (error) {
    post({ output: ["error", String(error.message ?? error)] });
  }
  post({ done: { ...done, seconds: (performance.now() - began) / 1000 } });
}

let ready = Promise.resolve();
self.onmessage = ({ data }) => {
  // One after the other: a run waits for the start.
  ready = ready.then(async () => {
    try {
      await (data.start ? start(data.start) : run(data.run));
    } catch (error) {
      post({ failed: String(error.message ?? error) });
    }
  });
};
