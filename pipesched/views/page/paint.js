// The picture itself. Operations of a few pixels are drawn one by one, with their numbers; where they are finer, every
// column of pixels is shared among the kinds, and idle time, exactly as its span of time is.

const base = document.getElementById("base"), stageElement = document.getElementById("stage");
const paper = base.getContext("2d", { alpha: false });
const FINEST = 4; // below so many pixels an operation, on average, they are mixed
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
  let i = lastAt(change, low, high, timeOf(from / view.ratio)), level = i >= low ? held[i] : 0;
  for (let x = from; x < to; x++) {
    const next = onward(change, i, high, timeOf((x + 1) / view.ratio) - 1e-9);
    most[x - from] = Math.max(0, next > i ? Math.max(level, mostHeld(i + 1, next + 1)) : level);
    if (next >= low) level = held[next];
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

function finest(low, high) {
  let seen = 0;
  for (let r = low; r < high; r++) {
    const from = lastAt(begin, first(r), last(r), view.left), to = lastAt(begin, first(r), last(r), timeOf(view.width));
    seen = Math.max(seen, to - from + 1);
  }
  return plotWidth() / Math.max(1, seen);
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

// The box of an operation; a pair is one slot, its first part above the second.
function boxOf(index, rank) {
  const x = xOf(begin[index]), other = partner(index), height = barHeight();
  const y = yOf(rank) + gap() / 2 + (second[index] ? height / 2 : 0);
  return [x, y, xOf(end[index]) - x, other >= 0 ? height / 2 : height];
}

function paintBoxes(low, high) {
  const boxes = css.map(() => []), right = timeOf(view.width), letters = [];
  const edge = Math.min(1, 0.12 * finest(low, high));
  for (let r = low; r < high; r++) {
    const from = Math.max(first(r), head(Math.max(first(r), lastAt(begin, first(r), last(r), view.left))));
    for (let i = from; i < last(r) && begin[i] < right; i++) {
      const [x, y, w, h] = boxOf(i, r);
      if (x + w < GUTTER) continue;
      boxes[style[i]].push(x + edge / 2, y, Math.max(w - edge, 0.75), h);
      if (w >= 11 && h >= 8) letters.push(i, x, y, w, h);
    }
  }
  boxes.forEach((list, s) => {
    paper.fillStyle = css[s];
    for (let i = 0; i < list.length; i += 4) paper.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
  });
  paintLetters(letters);
}

// Letters as large as the row allows, and smaller where a number would not fit else.
function paintLetters(letters, context = paper) {
  const size = Math.max(7, Math.min(13, Math.floor(0.72 * barHeight())));
  context.textAlign = "center";
  context.textBaseline = "middle";
  let left = letters;
  for (const px of new Set([size, Math.min(size, 11), Math.min(size, 9)])) {
    context.font = `${px}px ${theme.font}`;
    const digit = context.measureText("0").width, rest = [];
    for (let k = 0; k < left.length; k += 5) {
      const i = left[k], text = letterOf(i, left[k + 3], digit);
      if (!text) rest.push(...left.slice(k, k + 5));
      else if (left[k + 4] >= 0.9 * px) {
        context.fillStyle = inks[style[i]];
        context.fillText(text, left[k + 1] + left[k + 3] / 2, left[k + 2] + left[k + 4] / 2 + 0.5);
      }
    }
    left = rest;
  }
}

// What fits into a box: the whole name, or the microbatch, or nothing.
function letterOf(i, width, digit) {
  const name = labelOf(i), number = String(microbatch[i]);
  return (name.length + 1) * digit <= width ? name : (number.length + 0.6) * digit <= width ? number : "";
}

const labelOf = (i) => `${KINDS[kind[i]]}${stageOf[i]}.${microbatch[i]}`;

// Times at round numbers of the user's unit.
function paintAxis() {
  const unit = meta.scale, least = (70 * view.perPixel) / unit, power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= least);
  paper.fillStyle = theme.paper;
  paper.fillRect(0, 0, view.width, AXIS - 2);
  paper.fillRect(0, view.height - panel(), view.width, panel());
  paper.font = `11px ${theme.font}`;
  paper.textAlign = "center";
  paper.textBaseline = "middle";
  const stop = Math.min(timeOf(view.width), meta.makespan + 0.5 * unit * step) / unit;
  for (let k = Math.max(0, Math.ceil(view.left / unit / step)); k * step <= stop; k++) {
    const x = xOf(k * step * unit);
    if (x < GUTTER - 1) continue;
    paper.fillStyle = theme.line;
    paper.fillRect(x, AXIS - 7, 1, 5);
    paper.fillStyle = theme.quiet;
    paper.fillText(String(Number((k * step).toPrecision(10))), x, AXIS / 2 - 3);
  }
}

function paintRanks(low, high) {
  paper.fillStyle = theme.paper;
  paper.fillRect(0, 0, GUTTER, view.height);
  const every = Math.max(1, Math.ceil(11 / view.row));
  paper.font = `${Math.min(12, every * view.row + 1)}px ${theme.font}`;
  paper.textAlign = "right";
  paper.textBaseline = "middle";
  paper.fillStyle = theme.quiet;
  for (let r = low; r < high; r++) {
    const y = yOf(r) + gap() / 2 + barHeight() / 2;
    if (r % every === 0 && y > AXIS) paper.fillText(`rank ${r}`, GUTTER - 6, y);
    const below = yOf(r) + barHeight() + (view.row - barHeight()) / 2;
    if (strips() && view.row - barHeight() >= 14 && below > AXIS)
      paper.fillText(`peak ${amount(peaks[r])}`, GUTTER - 6, below);
  }
}

function paint() {
  const [low, high] = visibleRanks(), mixed = finest(low, high) < FINEST;
  paintPixels(low, high, mixed);
  if (!mixed) {
    paper.save();
    paper.beginPath();
    paper.rect(GUTTER, AXIS, view.width, view.height);
    paper.clip();
    paintBoxes(low, high);
    paper.restore();
  }
  paintRanks(low, high);
  paintAxis();
}
