// Which part of the schedule is seen: times and ranks to pixels and back.

const GUTTER = 66, AXIS = 24, LEAST_ROW = 5, MOST_ROW = 240;
const view = {
  left: 0, perPixel: 1, top: 0, row: 20, width: 0, height: 0, ratio: 1, memory: true, messages: false, fitted: true,
};

const xOf = (t) => GUTTER + (t - view.left) / view.perPixel;
const timeOf = (x) => view.left + (x - GUTTER) * view.perPixel;
const yOf = (rank) => AXIS + rank * view.row - view.top;
const rankAt = (y) => Math.floor((y - AXIS + view.top) / view.row);
const gap = () => (view.row > 14 ? 2 : 1);
const strips = () => view.memory && view.row >= 14; // a lower strip would say nothing
const barHeight = () => Math.max(3, (strips() ? 0.66 * view.row : view.row) - gap());
// The memory of one rank, at the bottom, where rows are too low for a strip under each.
const panel = () => (view.memory && !strips() ? Math.min(84, 0.25 * view.height) : 0);
const rowsHeight = () => Math.max(1, view.height - AXIS - panel() - 2);

// What stops for good is drawn in its row after all that runs, with its words where they fit in half of the width.
const stopWidth = () => meta.stops.length
  ? Math.min(40 + 8.6 * Math.max(...meta.stops.map((x) => x.words.length)) + 10 * lanes, 0.5 * view.width) : 0;

function plotWidth() {
  return Math.max(1, view.width - GUTTER - 12 - stopWidth());
}

function fit() {
  view.left = 0;
  view.perPixel = Math.max(given?.span ?? meta.makespan, 1) / plotWidth();
  view.row = Math.min(96, (view.height - AXIS - 2) / ranks); // which tells whether a panel takes some of the height
  view.row = Math.min(view.row, Math.max(LEAST_ROW, rowsHeight() / ranks));
  view.top = 0;
  view.fitted = true; // and stays so when the window changes
}

// Nobody gets lost: some of the schedule stays in sight, and an operation of one tick never fills the page.
function keepInSight() {
  view.fitted = false;
  const whole = Math.max(meta.makespan, 1);
  view.perPixel = Math.min(Math.max(view.perPixel, 0.002), (2 * whole) / plotWidth());
  const seen = plotWidth() * view.perPixel, slack = 0.5 * seen;
  view.left = Math.min(Math.max(view.left, -slack), Math.max(whole - slack, -slack));
  view.row = Math.min(Math.max(view.row, LEAST_ROW), MOST_ROW);
  view.top = Math.min(Math.max(view.top, 0), Math.max(0, ranks * view.row - rowsHeight()));
}

function zoom(factor, x = GUTTER + plotWidth() / 2) {
  const t = timeOf(x);
  view.perPixel /= factor;
  keepInSight();
  view.left = t - (x - GUTTER) * view.perPixel;
  keepInSight();
}

function zoomRows(factor, y = AXIS) {
  const at = (y - AXIS + view.top) / view.row;
  view.row = Math.min(Math.max(view.row * factor, LEAST_ROW), MOST_ROW);
  view.top = at * view.row - (y - AXIS);
  keepInSight();
}

function pan(dx, dy = 0) {
  view.left += dx * view.perPixel;
  view.top += dy;
  keepInSight();
}

const refit = () => (view.fitted ? fit() : keepInSight());

// Brings an operation into sight, large enough to be seen.
function goTo(index) {
  const rank = rankOf(index), wide = (end[index] - begin[index]) / view.perPixel;
  if (wide < 6) view.perPixel = Math.max(end[index] - begin[index], 1) / 24;
  const x = xOf(begin[index]), y = yOf(rank);
  if (wide < 6 || x < GUTTER || x > view.width - 40)
    view.left = begin[index] - 0.5 * plotWidth() * view.perPixel;
  if (y < AXIS || y + view.row > AXIS + rowsHeight()) view.top = rank * view.row - 0.5 * rowsHeight();
  keepInSight();
}

// The operation under a point, or -1; with the `rank` and the `time` there.
function under(x, y) {
  const rank = rankAt(y), time = timeOf(x);
  if (x < GUTTER || y < AXIS || y > AXIS + rowsHeight() || rank < 0 || rank >= ranks) return { rank: -1, time, index: -1 };
  const index = lastAt(begin, first(rank), last(rank), time);
  if (index < first(rank) || time >= end[index]) return { rank, time, index: -1, before: index };
  const other = partner(index);
  const upper = y - yOf(rank) < barHeight() / 2 + gap() / 2;
  if (other >= 0 && upper === Boolean(second[index])) return { rank, time, index: other };
  return { rank, time, index };
}

const visibleRanks = () => [
  Math.max(0, rankAt(AXIS)), Math.min(ranks, rankAt(AXIS + rowsHeight()) + 1)];
