// What is kept in the browser: what stands in the editors, and the workbook, a Python file for each right answer.

const PREFIX = "cnn-numba:";

/** The answers and the workbook in a store such as localStorage, which may refuse to keep anything. */
export class Answers {
  constructor(store) {
    this.store = store;
  }

  get(notebook, cell) {
    return this.#read(`${PREFIX}answer:${notebook}:${cell}`);
  }

  /** Keep an answer; null forgets it. */
  set(notebook, cell, source) {
    this.#write(`${PREFIX}answer:${notebook}:${cell}`, source);
  }

  workbook() {
    const files = {};
    for (const key of this.#keys()) {
      if (key.startsWith(`${PREFIX}workbook:`)) files[key.slice(`${PREFIX}workbook:`.length)] = this.#read(key);
    }
    return files;
  }

  addToWorkbook(files) {
    for (const [name, text] of Object.entries(files)) this.#write(`${PREFIX}workbook:${name}`, text);
  }

  #keys() {
    try {
      return Object.keys(this.store);
    } catch {
      return [];
    }
  }

  #read(key) {
    try {
      return this.store.getItem(key);
    } catch {
      return null;
    }
  }

  #write(key, text) {
    try {
      if (text === null) this.store.removeItem(key);
      else this.store.setItem(key, text);
    } catch {
      // Private windows, or no room left: the page works on, and keeps nothing.
    }
  }
}

/** Return the answer in a file of the workbook: all but the docstring that begins it. */
export function answerIn(text) {
  return text.replace(/^"""[^]*?"""\n+/, "").trimEnd();
}

/** Return the exercise that a file of the workbook answers, as its topic and its name. */
export function exerciseOf(file, topics) {
  const topic = topics.filter((each) => file.startsWith(`${each}_`)).sort((a, b) => b.length - a.length)[0];
  return topic && file.endsWith(".py") ? [topic, file.slice(topic.length + 1, -".py".length)] : null;
}

const table = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});
const crc32 = (bytes) => ~bytes.reduce((sum, byte) => table[(sum ^ byte) & 255] ^ (sum >>> 8), -1) >>> 0;

/** Return a zip file of some texts, as bytes: unpacked into notebooks/, it is the workbook of a clone. */
export function zipped(files, folder = "workbook/") {
  const [encoder, parts, directory] = [new TextEncoder(), [], []];
  let offset = 0;
  const add = (list, ...numbersAndBytes) => {
    for (const part of numbersAndBytes) {
      list.push(part instanceof Uint8Array ? part : little(...part));
    }
  };
  for (const [name, text] of Object.entries(files)) {
    const [path, content] = [encoder.encode(folder + name), encoder.encode(text)];
    // Version 2.0, names in UTF-8, stored as it is, 1 January 1980.
    const about = [[2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc32(content)]];
    const lengths = [[4, content.length], [4, content.length], [2, path.length], [2, 0]];
    add(parts, [4, 0x04034b50], ...about, ...lengths, path, content);
    add(directory, [4, 0x02014b50], [2, 20], ...about, ...lengths);
    add(directory, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset], path);
    offset += 30 + path.length + content.length;
  }
  const [size, count] = [directory.reduce((sum, part) => sum + part.length, 0), Object.keys(files).length];
  add(directory, [4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, offset], [2, 0]);
  return joined([...parts, ...directory]);
}

/** Return the texts in a zip file by their names without folders; Python files only. */
export async function unzipped(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error("this is no zip file");
  const files = {};
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [method, size] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true)];
    const lengths = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const path = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + lengths[0]));
    const local = view.getUint32(at + 42, true);
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const packed = bytes.subarray(begin, begin + size);
    if (path.endsWith(".py")) {
      files[path.split("/").pop()] = new TextDecoder().decode(method ? await inflated(packed) : packed);
    }
    at += 46 + lengths[0] + lengths[1] + lengths[2];
  }
  return files;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function little(count, number) {
  return Uint8Array.from({ length: count }, (_, place) => (number / 256 ** place) & 255);
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}
