"use strict";
// What the page shows: one entry an operation in every column, those of rank r from meta.start[r] to meta.start[r + 1].

const given = window.frameElement?.pipesched; // a page around this one may play an order itself, and hand the columns over
const meta = given?.meta ?? JSON.parse(document.getElementById("meta").textContent);
const ARRAYS = {
  u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array,
};

function column(name) {
  if (given) return given.columns[name];
  const element = document.getElementById("column-" + name);
  if (!element) return undefined;
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const made = new ARRAYS[element.dataset.type](bytes.buffer);
  element.remove(); // the text is as long as the column, and is not needed again
  return made;
}

const kind = column("kind"), second = column("second"), stageOf = column("stage"), microbatch = column("microbatch");
const begin = column("begin"), end = column("end"), needs = column("needs"), cause = column("cause");
const held = column("held"), lineOf = column("line"), columnOf = column("column");
const KINDS = Object.keys(meta.fill);
const steps = new Set(meta.steps); // the operations after which a STEP stands
const ranks = meta.start.length - 1, count = kind.length;

// Operations of a rank that run are a beginning of its list.
const first = (rank) => meta.start[rank], last = (rank) => meta.start[rank] + meta.ran[rank];

const rankColumn = new Uint32Array(count);
for (let r = 0; r < ranks; r++) rankColumn.fill(r, meta.start[r], meta.start[r + 1]);
const rankOf = (index) => rankColumn[index];

const runs = (index) => index >= 0 && index < last(rankOf(index));
const head = (index) => (second[index] ? index - 1 : index); // the first part of its slot
const partner = (index) =>
  second[index] ? index - 1 : index + 1 < count && second[index + 1] ? index + 1 : -1;

// An F and an R take memory at their start, all else frees it at its end: when `held` becomes true. Where no backward follows, an
// F frees at its own end, and `kept` is what is held then.
const kept = column("kept") ?? held;
const heldAt = (index, t) => (end[index] <= t ? kept[index] : held[index]);
const change = new Float64Array(count);
for (let i = 0; i < count; i++) change[i] = meta.takes[kind[i]] ? begin[i] : end[i];

// The last operation from `low` to before `high` whose time is at most t, or low - 1.
function lastAt(times, low, high, t) {
  low -= 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle; else high = middle;
  }
  return low;
}

// Most that is held from operation i to before j: by blocks, so that a pixel over thousands of operations is quick.
const BLOCK = 64;
const blocks = new Float64Array(Math.ceil(count / BLOCK)).fill(-Infinity);
for (let i = 0; i < count; i++) blocks[(i / BLOCK) | 0] = Math.max(blocks[(i / BLOCK) | 0], held[i]);
function mostHeld(i, j) {
  let most = -Infinity;
  while (i < j) {
    if (i % BLOCK === 0 && i + BLOCK <= j) {
      most = Math.max(most, blocks[i / BLOCK]);
      i += BLOCK;
    } else most = Math.max(most, held[i++]);
  }
  return most;
}
const peaks = Array.from({ length: ranks }, (_, r) => Math.max(0, mostHeld(first(r), last(r))));
const peak = Math.max(1e-9, ...peaks);

// A chunk is a stage of a rank on a route; each chunk has its shade.
const chunkTables = meta.chunks.map(
  (chunks) => new Map(chunks.map(([route, stage], i) => [route * meta.stages + stage, i])));
function chunkOf(rank, index) {
  const route = meta.route.length ? meta.route[microbatch[index]] || 0 : 0;
  return chunkTables[rank].get(route * meta.stages + stageOf[index]) || 0;
}
const chunks = Math.max(1, ...meta.chunks.map((list) => list.length));

// What an operation takes: the results of its producers, the nearest first.
const further = new Map();
for (const [from, to] of meta.further) further.set(to, [...(further.get(to) ?? []), from]);
const inputsOf = (index) => [needs[index], ...(further.get(index) ?? [])].filter((from) => from >= 0);

// A number per stage, or a list of one per microbatch.
function latency(from) {
  const late = meta.message[Math.min(Math.max(stageOf[from], 0), meta.stages - 1)];
  return Array.isArray(late) ? late[Math.min(Math.max(microbatch[from], 0), late.length - 1)] : late;
}

// The operations that an operation's start goes back to, from the first to itself; of a pair the first part.
function pathTo(index) {
  const path = [];
  for (let i = index; i >= 0; i = cause[i]) path.push(head(i));
  return path.reverse();
}
const follows = (i) => cause[i] >= 0 && cause[i] === head(i) - 1; // after the slot before it, not after a message

let lastToEnd = -1;
for (let i = 0; i < count; i++) if (runs(i) && (lastToEnd < 0 || end[i] > end[lastToEnd])) lastToEnd = i;
const criticalPath = pathTo(lastToEnd);

// Every operation of a microbatch that runs, by time.
function operationsOf(wanted) {
  const found = [];
  for (let r = 0; r < ranks; r++)
    for (let i = first(r); i < last(r); i++) if (microbatch[i] === wanted) found.push(i);
  return found.sort((a, b) => begin[a] - begin[b] || a - b);
}

// Messages of the cycle that pass each other have lanes of their own, the short ones the first.
let lanes = 0;
for (const x of [...meta.cycle].sort((a, b) => Math.abs(a.from - a.to) - Math.abs(b.from - b.to))) {
  const taken = meta.cycle.filter((y) => y.lane !== undefined &&
    Math.min(x.from, x.to) <= Math.max(y.from, y.to) && Math.min(y.from, y.to) <= Math.max(x.from, x.to));
  for (x.lane = 0; taken.some((y) => y.lane === x.lane); x.lane++);
  lanes = Math.max(lanes, x.lane + 1);
}
