// The drawing pad on its page: pad.js, with the network of network.js in the place of Python.
import pad from "./pad.js";
import { predict, prepare } from "./network.js";

const SIZE = 140;
const EMPTY = "Draw a digit.";
const FAINT = 80;

// What pad.js asks of a widget's model: values by name, and who is told of changes.
class Model {
  constructor(arena) {
    this.arena = arena;
    this.values = { chances: [], seen: new DataView(new ArrayBuffer(0)), message: EMPTY };
    this.listeners = [];
  }

  get(name) {
    return this.values[name];
  }

  on(_, listener) {
    this.listeners.push(listener);
  }

  off(_, listener) {
    this.listeners = this.listeners.filter((each) => each !== listener);
  }

  set(name, value) {
    this.values[name] = value;
    this.changed = name;
  }

  async save_changes() {
    const drawn = this.changed === "drawing";
    try {
      this.read(drawn ? new Uint8Array(this.get("drawing").buffer) : await inkOf(this.get("upload")));
    } catch {
      this.read(new Uint8Array(SIZE * SIZE));
      this.values.message = "No digit could be read: this is no picture that the browser knows.";
    }
    this.listeners.forEach((listener) => listener());
  }

  read(ink) {
    const digit = prepare(ink, SIZE);
    const chances = digit ? predict(this.arena, Float32Array.from(digit, (value) => value / 255)) : [];
    const best = chances.indexOf(Math.max(...chances));
    this.values.chances = chances;
    this.values.seen = new DataView((digit ?? new Uint8Array(0)).buffer);
    this.values.message = digit ? `This is ${best === 8 ? "an" : "a"} ${best}.` : EMPTY;
  }
}

// A picture file, fitted to the pad; what most of it is, light or dark, is paper, and faint ink as well.
async function inkOf(bytes) {
  const picture = await createImageBitmap(new Blob([bytes]));
  const canvas = Object.assign(document.createElement("canvas"), { width: SIZE, height: SIZE });
  const pen = canvas.getContext("2d");
  const scale = SIZE / Math.max(picture.width, picture.height);
  const [width, height] = [picture.width * scale, picture.height * scale];
  pen.fillStyle = "white";
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.drawImage(picture, (SIZE - width) / 2, (SIZE - height) / 2, width, height);
  const { data } = pen.getImageData(0, 0, SIZE, SIZE);
  const grey = Uint8Array.from({ length: SIZE * SIZE }, (_, i) => data[4 * i + 1]);
  const light = grey.reduce((a, b) => a + b) / grey.length > 127;
  const ink = light ? grey.map((value) => 255 - value) : grey;
  return ink.map((value) => (value > FAINT ? value : 0));
}

const place = document.querySelector("#digit-pad");
if (place) {
  const answer = await fetch(new URL("./mnist_cnn.bin", import.meta.url));
  const arena = new Float32Array(await answer.arrayBuffer());
  place.replaceChildren();
  pad.render({ model: new Model(arena), el: place });
  window.readDigit = (pixels) => predict(arena, Float32Array.from(pixels)); // for whoever wants to compare
  window.prepareDigit = (ink, size) => [...prepare(Uint8Array.from(ink), size)];
}
