// What lies over the picture: the operation under the pointer, the operations of a microbatch, the critical path, messages.

const over = document.getElementById("over");
const glass = over.getContext("2d");
const MESSAGES = 4000; // more arrows than this look all the same
const marked = { hover: -1, rank: -1, chosen: -1, operations: [], path: [], critical: false };

// Where an arrow leaves or reaches a box: at the edge that faces the other end, next to the number.
function edgeOf(i, t, towards) {
  const [, y, , h] = boxOf(i, rankOf(i));
  return [xOf(t), y + (towards === 0 ? h / 2 : towards > 0 ? h : 0)];
}
const seen = (i) => xOf(end[i]) >= GUTTER && xOf(begin[i]) <= view.width;

function outline(i, colour, width, whole = false) {
  if (!seen(i)) return;
  const [x, y, w, part] = boxOf(i, rankOf(i)), h = whole ? barHeight() : part;
  glass.strokeStyle = colour;
  glass.lineWidth = width;
  glass.strokeRect(x, y, Math.max(w, 1), h);
}

function box(i) {
  if (!seen(i)) return;
  const [x, y, w, h] = boxOf(i, rankOf(i));
  glass.fillStyle = css[style[i]];
  glass.fillRect(x, y, Math.max(w, 2), h);
  paintLetters([i, x, y, w, h], glass);
}

function arrow(from, to, colour, width) {
  const down = Math.sign(rankOf(to) - rankOf(from));
  const [x0, y0] = edgeOf(from, end[from], down), [x1, y1] = edgeOf(to, begin[to], -down);
  if (Math.max(x0, x1) < GUTTER || Math.min(x0, x1) > view.width) return;
  glass.strokeStyle = glass.fillStyle = colour;
  glass.lineWidth = width;
  const length = Math.hypot(x1 - x0, y1 - y0), size = Math.min(6, 0.4 * length);
  glass.beginPath();
  glass.moveTo(x0, y0);
  glass.lineTo(x1, y1);
  glass.stroke();
  if (length < 4) return;
  const ux = (x1 - x0) / length, uy = (y1 - y0) / length;
  glass.beginPath();
  glass.moveTo(x1, y1);
  glass.lineTo(x1 - size * ux + 0.5 * size * uy, y1 - size * uy - 0.5 * size * ux);
  glass.lineTo(x1 - size * ux - 0.5 * size * uy, y1 - size * uy + 0.5 * size * ux);
  glass.fill();
}

function drawMessages() {
  const found = [];
  for (let r = 0; r < ranks; r++) {
    const from = Math.max(first(r), lastAt(begin, first(r), last(r), view.left));
    for (let i = from; i < last(r) && begin[i] <= timeOf(view.width); i++) {
      for (const from of inputsOf(i)) if (runs(from) && rankOf(from) !== r) found.push([from, i]);
      if (found.length > MESSAGES) return false;
    }
  }
  for (const [source, i] of found) arrow(source, i, theme.ink, 0.8);
  return true;
}

function drawMicrobatch() {
  if (!marked.operations.length) return;
  glass.globalAlpha = 0.72;
  glass.fillStyle = theme.paper;
  glass.fillRect(GUTTER, AXIS, view.width, view.height);
  glass.globalAlpha = 1;
  marked.operations.forEach(box);
  for (const i of marked.operations)
    for (const from of inputsOf(i)) if (rankOf(from) !== rankOf(i)) arrow(from, i, theme.ink, 1);
}

// The path runs along the feet of its operations, so that their numbers stay readable: from leg to leg, each on a rank.
function drawPath() {
  if (!marked.critical) return;
  for (const i of marked.path) if ((end[i] - begin[i]) / view.perPixel >= 4) outline(i, theme.path, 2, true);
  glass.strokeStyle = theme.path;
  glass.lineWidth = 2;
  glass.beginPath();
  const turns = (k) => k < 0 || k + 1 === marked.path.length || rankOf(marked.path[k]) !== rankOf(marked.path[k + 1]);
  marked.path.forEach((i, k) => {
    const foot = yOf(rankOf(i)) + gap() / 2 + barHeight() - 1;
    if (turns(k - 1)) glass[k ? "lineTo" : "moveTo"](xOf(begin[i]), foot);
    if (turns(k)) glass.lineTo(xOf(end[i]), foot);
  });
  glass.stroke();
}

// The memory of one rank, large: of the rank under the pointer, else of the chosen operation, else the fullest.
function drawMemory() {
  const height = panel(), rank = marked.rank >= 0 ? marked.rank : marked.chosen >= 0 ? rankOf(marked.chosen) : fullest;
  if (height < 30 || rank >= ranks) return;
  const top = view.height - height + 18, bottom = view.height - 6, [from, to] = columnsOf();
  const y = (level) => bottom - (level / peak) * (bottom - top), most = levels(rank), [area, edge] = memoryColours();
  glass.beginPath();
  glass.moveTo(from / view.ratio, bottom);
  most.forEach((level, k) => {
    glass.lineTo((from + k) / view.ratio, y(level));
    glass.lineTo((from + k + 1) / view.ratio, y(level));
  });
  glass.lineTo(to / view.ratio, bottom);
  glass.fillStyle = `rgb(${area})`;
  glass.strokeStyle = `rgb(${edge})`;
  glass.lineWidth = 1;
  glass.fill();
  glass.stroke();
  glass.fillStyle = theme.quiet;
  glass.font = `11px ${theme.font}`;
  glass.textBaseline = "middle";
  glass.textAlign = "right";
  glass.fillText(amount(peaks[rank]), GUTTER - 6, y(peaks[rank]));
  glass.fillText("0", GUTTER - 6, bottom);
  glass.textAlign = "left";
  glass.fillText(`activations held by rank ${rank}, peak ${amount(peaks[rank])}`, GUTTER, view.height - height + 8);
}
const fullest = peaks.indexOf(Math.max(...peaks));

function drawOver() {
  glass.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  glass.clearRect(0, 0, view.width, view.height);
  glass.save();
  glass.beginPath();
  glass.rect(GUTTER, AXIS, view.width, rowsHeight());
  glass.clip();
  drawMicrobatch();
  const all = !view.messages || drawMessages();
  drawPath();
  if (marked.chosen >= 0) outline(marked.chosen, theme.ink, 3);
  if (marked.hover >= 0) {
    outline(marked.hover, theme.ink, 1.5);
    for (const from of inputsOf(marked.hover)) if (runs(from)) arrow(from, marked.hover, theme.ink, 1.5);
  }
  glass.restore();
  drawMemory();
  document.getElementById("messages").textContent = all ? "messages" : "messages: zoom in";
}
