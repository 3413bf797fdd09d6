// The picture pixel by pixel: where operations are finer than pixels, every column of pixels is shared among the kinds,
// and idle time, exactly as its span of time is; and the memory of every rank, at any size.

const base = document.getElementById("base"), stageElement = document.getElementById("stage");
const paper = base.getContext("2d", { alpha: false });
let image = null, words = null; // the pixels of the page, as bytes and as one number each

function resize() {
  const box = stageElement.getBoundingClientRect();
  view.ratio = window.devicePixelRatio || 1;
  view.width = box.width;
  view.height = box.height;
  for (const canvas of [base, over]) {
    canvas.width = Math.max(1, Math.round(view.width * view.ratio));
    canvas.height = Math.max(1, Math.round(view.height * view.ratio));
  }
  image = paper.createImageData(base.width, base.height);
  words = new Uint32Array(image.data.buffer);
}

// Rows in device pixels: where the bar and the memory strip of a rank begin and end.
function rowPixels(rank) {
  const clip = (y) => Math.min(base.height, Math.max(Math.round(AXIS * view.ratio), Math.round(y * view.ratio)));
  const y = yOf(rank) + gap() / 2;
  return [clip(y), clip(y + barHeight()), clip(y + view.row - gap())];
}

const columnsOf = () => {
  const from = Math.max(Math.ceil(xOf(0) * view.ratio), Math.round(GUTTER * view.ratio));
  return [from, Math.max(from, Math.min(base.width, Math.round(xOf(meta.makespan) * view.ratio)))];
};

// The last operation of a list begun by t, when i was one begun earlier: a few steps, or a search.
function onward(times, i, high, t) {
  for (let hop = 0; i + 1 < high && times[i + 1] <= t; hop++) {
    if (hop === 16) return lastAt(times, i, high, t);
    i++;
  }
  return i;
}

// Time spent on a kind by time t, of which operation i is the last begun.
function spentBy(sums, i, t) {
  const h = head(i), length = end[i] - begin[i];
  return t >= end[i] || !length ? sums[i + 1] : sums[h] + ((t - begin[i]) / length) * (sums[i + 1] - sums[h]);
}

// How far down each kind reaches in every column of a bar, and in which tint.
function mixRow(rank) {
  const low = first(rank), high = last(rank), [from, to] = columnsOf(), step = view.perPixel / view.ratio;
  const [top, bottom] = rowPixels(rank), depth = bottom - top;
  const reach = used.map(() => new Uint16Array(to - from)), tint = used.map(() => new Uint32Array(to - from));
  const before = used.map((_, k) => spent[k][low]), pale = shaded.map((sums) => sums[low]);
  let i = low - 1;
  for (let x = from - 1; x < to; x++) {
    const t = timeOf((x + 1) / view.ratio);
    i = onward(begin, i, high, t);
    if (i < low) continue;
    let share = 0;
    for (let k = 0; k < used.length; k++) {
      const now = spentBy(spent[k], i, t), busy = now - before[k];
      before[k] = now;
      share += busy / step;
      let shade = 0;
      if (shaded.length) {
        const sum = spentBy(shaded[k], i, t);
        if (busy > 0) shade = Math.round(((sum - pale[k]) / busy) * TINTS);
        pale[k] = sum;
      }
      if (x < from) continue;
      reach[k][x - from] = Math.round(share * depth);
      tint[k][x - from] = tints[k][shade];
    }
  }
  return [reach, tint];
}

function fillMix(rank, row) {
  const [top, bottom] = rowPixels(rank), [from, to] = columnsOf(), [reach, tint] = mixRow(rank), kinds = used.length;
  for (let y = top; y < bottom; y++)
    for (let x = from, at = y * base.width + from; x < to; x++, at++) {
      let k = 0;
      while (k < kinds && reach[k][x - from] <= y - top) k++;
      words[at] = k < kinds ? tint[k][x - from] : row;
    }
}

// Most that a rank holds in the span of every column, in parts.
function levels(rank) {
  const low = first(rank), high = last(rank), [from, to] = columnsOf(), most = new Float64Array(to - from);
  let i = lastAt(change, low, high, timeOf(from / view.ratio));
  for (let x = from; x < to; x++) {
    const level = i >= low ? heldAt(i, timeOf(x / view.ratio)) : 0;
    const next = onward(change, i, high, timeOf((x + 1) / view.ratio) - 1e-9);
    most[x - from] = Math.max(0, next > i ? Math.max(level, mostHeld(i + 1, next + 1)) : level);
    i = next;
  }
  return most;
}

// What a rank holds, as an area under its bar; the height is shared by all ranks.
function fillMemory(rank, area, edge, page) {
  const [, top, bottom] = rowPixels(rank), [from, to] = columnsOf(), depth = bottom - top;
  if (depth < 3) return;
  const heights = levels(rank).map((level) => Math.round((level / peak) * (depth - 1)));
  for (let y = top; y < bottom; y++)
    for (let x = from, at = y * base.width + from; x < to; x++, at++) {
      const under = heights[x - from] - (bottom - y);
      words[at] = under < 0 || !heights[x - from] ? page : under === 0 ? edge : area;
    }
}

const memoryColours = () => (theme.dark ? [[62, 84, 112], [140, 170, 210]] : [[205, 217, 234], [70, 105, 150]]);

function paintPixels(low, high, mixed) {
  const page = word(channels(theme.paper)), row = word(channels(theme.row));
  const [area, edge] = memoryColours().map(word);
  const [from, to] = columnsOf();
  words.fill(page);
  for (let r = low; r < high; r++) {
    const [top, middle] = rowPixels(r);
    if (mixed) fillMix(r, row);
    else for (let y = top; y < middle; y++) words.fill(row, y * base.width + from, y * base.width + to);
    if (strips()) fillMemory(r, area, edge, page);
  }
  paper.setTransform(1, 0, 0, 1, 0, 0);
  paper.putImageData(image, 0, 0);
  paper.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
}
