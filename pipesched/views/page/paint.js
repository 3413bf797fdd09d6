// The picture: operations of a few pixels are drawn one by one, with their numbers; finer ones are left to the pixels.

const FINEST = 4; // below so many pixels an operation, on average, they are mixed

function finest(low, high) {
  let seen = 0;
  for (let r = low; r < high; r++) {
    const from = lastAt(begin, first(r), last(r), view.left), to = lastAt(begin, first(r), last(r), timeOf(view.width));
    seen = Math.max(seen, to - from + 1);
  }
  return plotWidth() / Math.max(1, seen);
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
      if (w >= 9 && h >= 8) letters.push(i, x, y, w, h);
    }
  }
  boxes.forEach((list, s) => {
    paper.fillStyle = css[s];
    for (let i = 0; i < list.length; i += 4) paper.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
  });
  paintLetters(letters);
  for (const i of meta.steps ?? []) if (rankOf(i) >= low && rankOf(i) < high && runs(i)) paintStep(i);
}

// A STEP is a triangle below the end of the operation that it follows.
function paintStep(i) {
  const x = xOf(end[i]), y = yOf(rankOf(i)) + gap() / 2 + barHeight(), size = Math.min(5, 0.3 * barHeight());
  if (x < GUTTER || x > view.width) return;
  paper.fillStyle = theme.ink;
  paper.beginPath();
  paper.moveTo(x, y - size);
  paper.lineTo(x - size, y + 0.5 * size);
  paper.lineTo(x + size, y + 0.5 * size);
  paper.fill();
}

// Copies to host memory and back, as bars along the lower edge of the row of their rank: those out above those in.
function paintCopies(low, high) {
  const right = timeOf(view.width), h = Math.max(1, 0.14 * barHeight());
  for (const [rank, i, from, to] of meta.copies) {
    if (rank < low || rank >= high || to <= view.left || from >= right) continue;
    const back = meta.takes[kind[i]] ? 1 : 2;
    paper.fillStyle = css[style[i]];
    paper.fillRect(xOf(from), yOf(rank) + gap() / 2 + barHeight() - back * h, Math.max(xOf(to) - xOf(from), 0.75), h);
  }
}

// Letters as large as the row allows, and smaller where nearly all would not fit else; what boxes bear, all of them bear.
let called = null;
function paintLetters(letters, context = paper) {
  const size = Math.max(7, Math.min(13, Math.floor(0.72 * barHeight())));
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (context === paper) called = formOf(letters, size);
  if (!called) return;
  context.font = `${called.px}px ${theme.font}`;
  for (let k = 0; k < letters.length; k += 5) {
    const i = letters[k], text = called.form(i);
    if ((text.length + 0.6) * called.digit > letters[k + 3] || letters[k + 4] < 0.9 * called.px) continue;
    context.fillStyle = inks[style[i]];
    context.fillText(text, letters[k + 1] + letters[k + 3] / 2, letters[k + 2] + letters[k + 4] / 2 + 0.5);
  }
}

// The form of name that nine boxes of ten can hold, and its size: the whole name, or the microbatch, or none.
function formOf(letters, size) {
  const sizes = [...new Set([13, 11, 9, 7].map((px) => Math.min(px, size)))], boxes = letters.length / 5;
  for (const form of [labelOf, (i) => String(microbatch[i])])
    for (const px of sizes) {
      paper.font = `${px}px ${theme.font}`;
      const digit = paper.measureText("0").width;
      let fits = 0;
      for (let k = 0; k < letters.length; k += 5)
        if ((form(letters[k]).length + 0.6) * digit <= letters[k + 3] && letters[k + 4] >= 0.9 * px) fits++;
      if (10 * fits >= 9 * boxes) return { form, px, digit };
    }
  return null;
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
    paper.fillText(meta.unit ? timed(k * step * meta.seconds, 10) : String(Number((k * step).toPrecision(10))), x, AXIS / 2 - 3);
  }
}

function paintRanks(low, high) {
  paper.fillStyle = theme.paper;
  paper.fillRect(0, 0, GUTTER, view.height);
  const every = Math.max(1, Math.ceil(11 / view.row)), size = Math.min(12, every * view.row + 1);
  paper.textAlign = "right";
  paper.textBaseline = "middle";
  paper.fillStyle = theme.quiet;
  for (let r = low; r < high; r++) {
    const middle = yOf(r) + gap() / 2 + barHeight() / 2, below = yOf(r) + barHeight() + (view.row - barHeight()) / 2;
    paper.font = `${size}px ${theme.font}`;
    if (r % every === 0 && middle > AXIS) paper.fillText(`rank ${r}`, GUTTER - 6, middle);
    if (!strips() || view.row - barHeight() < 14 || below <= AXIS) continue;
    paper.font = `10px ${theme.font}`;
    paper.fillText(`peak ${amount(peaks[r])}`, GUTTER - 6, below);
  }
}

// A rank that never goes on: hatched from its last operation on where it is of the cycle, with a cross and its words.
function paintStops() {
  const right = Math.min(xOf(meta.makespan) + stopWidth() - 10 * lanes - 4, view.width);
  for (const x of meta.stops) {
    const done = last(x.rank) > first(x.rank) ? end[last(x.rank) - 1] : 0;
    const left = Math.max(xOf(done), GUTTER), y = yOf(x.rank) + gap() / 2, h = barHeight();
    if (right <= left || y + h < AXIS) continue;
    paper.save();
    paper.beginPath();
    paper.rect(left, y, right - left, h);
    paper.clip();
    paper.fillStyle = theme.paper;
    paper.fillRect(left, y, right - left, h);
    paper.strokeStyle = x.cycle ? theme.alarm : theme.quiet;
    paper.lineWidth = x.cycle ? 1.2 : 1;
    if (x.cycle) hatch(left, y, right, y + h);
    if (h >= 9) describeStop(x, left, right, y, h);
    paper.lineWidth = x.cycle ? 4 : 2; // half of it is outside
    if (!x.cycle) paper.setLineDash([4, 3]);
    paper.strokeRect(left, y, right - left, h);
    paper.restore();
  }
  for (const x of meta.cycle) paintWait(x, right);
}

function hatch(left, top, right, bottom) {
  paper.beginPath();
  for (let x = left - (bottom - top); x < right; x += 8) {
    paper.moveTo(x, bottom);
    paper.lineTo(x + bottom - top, top);
  }
  paper.stroke();
}

function describeStop(x, left, right, y, h) {
  const size = Math.min(13, Math.floor(0.72 * h)), middle = y + h / 2;
  paper.font = `${x.cycle ? "bold " : ""}${size}px ${theme.font}`;
  paper.textAlign = "left";
  paper.textBaseline = "middle";
  const at = left + (x.cycle ? size + 8 : 6), most = right - at - 4;
  const words = [x.words, x.at].find((text) => paper.measureText(text).width <= most) ?? "";
  const wide = paper.measureText(words).width;
  paper.fillStyle = theme.paper;
  paper.fillRect(left + 3, middle - 0.6 * size, at + wide - left, 1.2 * size);
  paper.fillStyle = paper.strokeStyle;
  paper.fillText(words, at, middle + 0.5);
  if (!x.cycle) return;
  const r = 0.32 * size, c = left + 5 + r;
  const width = paper.lineWidth;
  paper.lineWidth = 2.5;
  paper.beginPath();
  paper.moveTo(c - r, middle - r);
  paper.lineTo(c + r, middle + r);
  paper.moveTo(c + r, middle - r);
  paper.lineTo(c - r, middle + r);
  paper.stroke();
  paper.lineWidth = width;
}

// A message of the cycle, from the row of its sender to that of its receiver.
function paintWait(x, right) {
  const y0 = yOf(x.from) + gap() / 2 + 0.7 * barHeight(), y1 = yOf(x.to) + gap() / 2 + 0.3 * barHeight();
  const lane = right + 6 + 10 * x.lane, size = Math.min(6, 0.3 * barHeight());
  paper.strokeStyle = paper.fillStyle = theme.alarm;
  paper.lineWidth = 2;
  paper.beginPath();
  paper.moveTo(right, y0);
  paper.lineTo(lane, y0);
  paper.lineTo(lane, y1);
  paper.lineTo(right + 1, y1);
  paper.stroke();
  if (!x.sent) return;
  paper.beginPath();
  paper.moveTo(right + 1, y1);
  paper.lineTo(right + 1 + size, y1 - 0.7 * size);
  paper.lineTo(right + 1 + size, y1 + 0.7 * size);
  paper.fill();
}

function paint() {
  const [low, high] = visibleRanks(), mixed = finest(low, high) < FINEST;
  paintPixels(low, high, mixed);
  paper.save();
  paper.beginPath();
  paper.rect(GUTTER, AXIS, view.width, view.height);
  paper.clip();
  if (!mixed) paintBoxes(low, high);
  if (!mixed && slotOf) paintExposed(low, high);
  paintCopies(low, high);
  if (meta.stops.length) paintStops();
  paper.restore();
  paintRanks(low, high);
  paintAxis();
}
