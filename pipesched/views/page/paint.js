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
  for (const px of new Set([13, 11, 9, 7].map((px) => Math.min(px, size)))) {
    context.font = `${px}px ${theme.font}`;
    const digit = context.measureText("0").width, rest = [];
    for (let k = 0; k < left.length; k += 5) {
      const i = left[k], text = letterOf(i, left[k + 3], digit);
      if (!text || left[k + 4] < 0.9 * px) rest.push(...left.slice(k, k + 5));
      else {
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
