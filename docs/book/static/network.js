// mnist_cnn in the reader's browser: what prepare_digit and predict do in Python, for a drawing on a pad.

const FIELD = 28;
const BOX = 20;

// --- Layers. A batch of one: [channels][rows][columns], one number after the other. ---------------------------

function convolve(x, channels, size, weight, bias) {
  const filters = bias.length;
  const wide = size - 2; // 3 x 3, without padding
  const out = new Float32Array(filters * wide * wide);
  for (let f = 0; f < filters; f++) {
    const plane = out.subarray(f * wide * wide, (f + 1) * wide * wide).fill(bias[f]);
    for (let c = 0; c < channels; c++) {
      for (let k = 0; k < 9; k++) {
        const w = weight[(f * channels + c) * 9 + k];
        const from = c * size * size + Math.floor(k / 3) * size + (k % 3);
        for (let row = 0; row < wide; row++) {
          for (let column = 0; column < wide; column++) {
            plane[row * wide + column] += w * x[from + row * size + column];
          }
        }
      }
    }
  }
  return out;
}

function pool(x, channels, size) {
  const half = Math.floor(size / 2);
  const out = new Float32Array(channels * half * half);
  for (let i = 0; i < out.length; i++) {
    const [c, row, column] = [Math.floor(i / (half * half)), Math.floor(i / half) % half, i % half];
    const corner = (c * size + 2 * row) * size + 2 * column;
    out[i] = Math.max(x[corner], x[corner + 1], x[corner + size], x[corner + size + 1]);
  }
  return out;
}

function dense(x, weight, bias) {
  return bias.map((b, o) => x.reduce((sum, value, i) => sum + value * weight[o * x.length + i], b));
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const exponentials = [...logits].map((logit) => Math.exp(logit - largest));
  const total = exponentials.reduce((a, b) => a + b);
  return exponentials.map((each) => each / total);
}

// The arena: each layer's weights and then its bias, as cnn_numba lays them out.
function parts(arena, shapes) {
  let start = 0;
  return shapes.map((count) => arena.subarray(start, (start += count)));
}

// Ten probabilities for 784 numbers from 0 to 1.
export function predict(arena, pixels) {
  const [w1, b1, w2, b2, w3, b3, w4, b4] = parts(arena, [288, 32, 18432, 64, 204800, 128, 1280, 10]);
  const first = pool(convolve(pixels, 1, 28, w1, b1), 32, 26);
  const second = pool(convolve(first, 32, 13, w2, b2), 64, 11);
  const hidden = dense(second, w3, b3).map((value) => Math.max(value, 0));
  return softmax(dense(hidden, w4, b4));
}

// --- A drawing, 0 paper and 255 ink, as MNIST would have it -------------------------------------------------------

// Resampling along one axis with Pillow's Hamming filter: lines of `count` numbers, `stride` apart.
function resample(lines, count, wanted) {
  const scale = count / wanted;
  const support = Math.max(scale, 1);
  return lines.map((line) =>
    Array.from({ length: wanted }, (_, i) => {
      const centre = (i + 0.5) * scale;
      const from = Math.max(Math.floor(centre - support + 0.5), 0);
      const to = Math.min(Math.floor(centre + support + 0.5), count);
      let [sum, total] = [0, 0];
      for (let k = from; k < to; k++) {
        const w = hamming((k - centre + 0.5) / support);
        sum += w * line[k];
        total += w;
      }
      return sum / total;
    }),
  );
}

function hamming(x) {
  if (x === 0) return 1;
  if (Math.abs(x) >= 1) return 0;
  return (Math.sin(Math.PI * x) / (Math.PI * x)) * (0.54 + 0.46 * Math.cos(Math.PI * x));
}

const transposed = (rows) => rows[0].map((_, column) => rows.map((row) => row[column]));

function cropped(ink, size) {
  const rows = Array.from({ length: size }, (_, row) => [...ink.subarray(row * size, (row + 1) * size)]);
  const marked = (line) => line.some((value) => value > 0);
  const between = (lines) => {
    const found = lines.map(marked);
    return lines.slice(found.indexOf(true), found.lastIndexOf(true) + 1);
  };
  return transposed(between(transposed(between(rows))));
}

// 784 bytes, or nothing where nothing is drawn.
export function prepare(ink, size) {
  if (!ink.some((value) => value > 0)) return null;
  const rows = cropped(ink, size).map((row) => row.map((value) => value / 255));
  const [height, width] = [rows.length, rows[0].length];
  const scale = BOX / Math.max(height, width);
  const [high, wide] = [height, width].map((length) => Math.max(1, roundedEven(length * scale)));
  let fitted = resample(rows, width, wide);
  fitted = transposed(resample(transposed(fitted), height, high));
  const largest = Math.max(...fitted.flat());
  return centred(fitted.map((row) => row.map((value) => Math.max(value, 0) / largest)));
}

function centred(rows) {
  const total = rows.flat().reduce((a, b) => a + b);
  const middle = (lines) => lines.reduce((sum, line, i) => sum + i * line.reduce((a, b) => a + b), 0) / total;
  const place = (mean, length) => Math.min(Math.max(roundedEven(FIELD / 2 - mean), 0), FIELD - length);
  const top = place(middle(rows), rows.length);
  const left = place(middle(transposed(rows)), rows[0].length);
  const field = new Uint8Array(FIELD * FIELD);
  rows.forEach((row, r) =>
    row.forEach((value, c) => (field[(top + r) * FIELD + left + c] = roundedEven(255 * value))),
  );
  return field;
}

// Python's round: a half goes to the even neighbour.
function roundedEven(x) {
  const floor = Math.floor(x);
  if (x - floor !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
}
