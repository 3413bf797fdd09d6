"use strict";
// Plays an order of computes: when each operation runs, what each rank holds, and who waits for whom.
//
//   order   ranks, stages, microbatches; start: where each rank's list begins; route: of each microbatch
//           place[route][stage]: its rank; kind, second, stage, microbatch, line: one entry an operation
//           steps: the places in the lists after which a STEP stands; an operation that is moved leaves them where they are
//           reads: the stages that each stage reads, if they are no chain; trained, kept: by stage, if not all are
//   costs   of F, I, W, B, R and C, in ticks; FB: of an overlap pair of these two, in place of their sum
//
//   end = cost + max(end of the slot before, end of each producer + C if it is on another rank)

const KINDS = "FIWBROL";
const [F, I, W, B, R] = KINDS;
const MOST = 1 << 20; // operations of a file

// The list of an entry of the gallery: words of 16 bits, gzipped, in base64: kind + 128 if second; stage; microbatch less
// the one that the kind would take next; line.
async function decode(entry) {
  const packed = Uint8Array.from(atob(entry.columns), (c) => c.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const words = new Int16Array(await new Response(plain).arrayBuffer()), count = words.length / 4;
  const order = { ...entry, kind: new Uint8Array(count), second: new Uint8Array(count) };
  for (let i = 0; i < count; i++) [order.kind[i], order.second[i]] = [words[i] & 127, words[i] >> 7];
  order.stage = words.slice(count, 2 * count);
  order.line = words.slice(3 * count);
  order.microbatch = new Int16Array(count);
  for (let r = 0; r < order.ranks; r++) {
    const next = new Int16Array(KINDS.length * order.stages);
    for (let i = order.start[r]; i < order.start[r + 1]; i++) {
      const own = order.kind[i] * order.stages + order.stage[i];
      order.microbatch[i] = next[own] + words[2 * count + i];
      next[own] = order.microbatch[i] + 1;
    }
  }
  return order;
}

// A CSV of computes, a row a rank: 0F1, 3B0, or a pair as (0F1;3B0)OVERLAP_F_B. Throws a sentence that says what is wrong.
function readCsv(text) {
  const rows = text.replace(/^\ufeff/, "").split(/\r?\n/);
  while (rows.length && !rows[rows.length - 1].trim()) rows.pop();
  const found = [], start = [0], place = [], refuse = (rank, cell, why) => {
    throw new Error(`rank ${rank}: ${cell.slice(0, 40)} ${why}`);
  };
  rows.forEach((row, rank) => {
    for (const cell of row.split(",").map((x) => x.trim()).filter(Boolean)) {
      const pair = /^\(([^;]+);([^;]+)\)OVERLAP_[FIB]_[FIBW]$/.exec(cell);
      (pair ? pair.slice(1) : [cell]).forEach((word, second) => {
        const match = /^(\d{1,4})([FIWBR])(\d{1,5})$/.exec(word.trim());
        if (!match) refuse(rank, cell, /[;\t]/.test(cell) && !/[,(]/.test(row) ? "is not one cell: put commas between cells"
          : "is no compute such as 0F1: `pipesched verify` reads whole programs");
        const [stage, kind, microbatch] = [Number(match[1]), KINDS.indexOf(match[2]), Number(match[3])];
        if ((place[stage] ??= rank) !== rank) refuse(rank, cell, `is of stage ${stage}, which is on rank ${place[stage]}`);
        if (found.push([kind, second, stage, microbatch]) > MOST) refuse(rank, cell, `is beyond ${MOST} operations`);
      });
    }
    start.push(found.length);
  });
  if (!found.length) throw new Error("no row has an operation");
  const [kind, second, stage, microbatch] = [0, 1, 2, 3].map((k) => Int32Array.from(found, (x) => x[k]));
  const gap = Array.from(place).findIndex((rank) => rank === undefined);
  if (gap >= 0) throw new Error(`stage ${gap} is on no rank, though stage ${place.length - 1} is on rank ${place[place.length - 1]}`);
  const line = new Int32Array(found.length);
  for (let r = 0; r < rows.length; r++) line.fill(r + 1, start[r], start[r + 1]);
  return { ranks: rows.length, torch: true, stages: place.length, microbatches: microbatch.reduce((a, b) => Math.max(a, b)) + 1,
    start, place: [place], kind, second, stage, microbatch, line };
}

const word = (order, i) => `${order.stage[i]}${KINDS[order.kind[i]]}${order.microbatch[i]}`;
const label = (order, i) => `${KINDS[order.kind[i]]}${order.stage[i]}.${order.microbatch[i]}`;

function writeCsv(order) {
  const cells = (rank) => {
    const made = [];
    for (let i = order.start[rank]; i < order.start[rank + 1]; i++) {
      if (!order.second[i]) made.push(word(order, i));
      else made.push(`(${made.pop()};${word(order, i)})OVERLAP_${KINDS[order.kind[i - 1]]}_${KINDS[order.kind[i]]}`);
    }
    return made.join(",");
  };
  return Array.from({ length: order.ranks }, (_, rank) => cells(rank) + "\n").join("");
}

// The order in which a slot of a rank comes before another one of its slots, or last: `to` is then the end of its list.
function moved(order, from, to) {
  const wide = order.second[from + 1] && from + 1 < order.kind.length ? 2 : 1;
  const list = Array.from(order.kind, (_, i) => i), slot = list.splice(from, wide);
  list.splice(to > from ? to - wide : to, 0, ...slot);
  const take = (column) => column.map((_, i) => column[list[i]]);
  const { kind, second, stage, microbatch, line } = order;
  return { ...order, kind: take(kind), second: take(second), stage: take(stage), microbatch: take(microbatch), line: take(line) };
}

const rankColumn = (order) => {
  const column = new Int32Array(order.kind.length);
  for (let r = 0; r < order.ranks; r++) column.fill(r, order.start[r], order.start[r + 1]);
  return column;
};

// The producer of each operation, -1 if it has none; `further` has the others, where stages are no chain.
function dependencies(order) {
  const { stages, microbatches, kind, stage, microbatch, reads } = order, count = kind.length;
  const table = () => new Int32Array(stages * microbatches).fill(-1), activation = table(), gradient = table();
  for (let i = count - 1; i >= 0; i--) {
    const key = stage[i] * microbatches + microbatch[i], letter = KINDS[kind[i]];
    if (letter === F) activation[key] = i;
    else if (letter === I || letter === B) gradient[key] = i;
  }
  const readers = reads && reads.map((_, s) => reads.flatMap((of, t) => (of.includes(s) ? [t] : [])));
  const before = (s) => (reads ? reads[s] : s ? [s - 1] : []);
  const behind = (s) => (reads ? readers[s] : s + 1 < stages ? [s + 1] : []);
  const needs = new Int32Array(count).fill(-1), further = [];
  for (let i = 0; i < count; i++) {
    const letter = KINDS[kind[i]], s = stage[i], at = (made, of) => made[of * microbatches + microbatch[i]];
    if (letter === W) needs[i] = at(gradient, s);
    else if (letter === R) needs[i] = at(activation, s);
    else {
      const made = letter === F ? activation : gradient, of = letter === F ? before(s) : behind(s);
      needs[i] = of.length ? at(made, of[0]) : letter === F ? -1 : at(activation, s);
      for (const other of of.slice(1)) if (at(made, other) >= 0) further.push([at(made, other), i]);
    }
  }
  return { needs, further };
}

function slotCost(order, costs, i, pair) {
  const [one, two] = [KINDS[order.kind[i]], pair ? KINDS[order.kind[i + 1]] : ""];
  if (pair && costs[one + two] !== undefined) return costs[one + two];
  return costs[one] + (pair ? costs[two] : 0);
}

// Runs every rank as far as it goes. stuck: by rank the operation that never runs, or -1; cause: what a start waited for.
function play(order, costs) {
  const { ranks, start, second } = order, count = order.kind.length, rank = rankColumn(order);
  const { needs, further } = dependencies(order), also = new Map();
  for (const [from, to] of further) also.set(to, [...(also.get(to) ?? []), from]);
  const inputs = (i) => [needs[i], ...(also.get(i) ?? [])].filter((from) => from >= 0 && rank[from] !== rank[i]);
  const begin = new Float64Array(count).fill(-1), end = new Float64Array(count).fill(-1);
  const cause = new Int32Array(count).fill(-1), at = start.slice(0, ranks), waiting = new Map();
  const ready = at.map((_, r) => ranks - 1 - r);
  const run = (r) => {
    const i = at[r], pair = i + 1 < start[r + 1] && second[i + 1] === 1, before = i > start[r] ? end[i - 1] : 0;
    let time = before, why = i > start[r] ? i - 1 : -1;
    for (let k = i; k <= i + pair; k++)
      for (const from of inputs(k)) {
        if (end[from] < 0) return waiting.set(from, [...(waiting.get(from) ?? []), r]), false;
        if (end[from] + costs.C > time) [time, why] = [end[from] + costs.C, from];
      }
    for (let k = i; k <= i + pair; k++)
      [begin[k], end[k], cause[k]] = [time, time + slotCost(order, costs, i, pair), why];
    at[r] += 1 + pair;
    for (let k = i; k <= i + pair; k++) {
      ready.push(...(waiting.get(k) ?? []));
      waiting.delete(k);
    }
    return true;
  };
  while (ready.length) for (const r = ready.pop(); at[r] < start[r + 1] && run(r); );
  const stuck = at.map((i, r) => (i < start[r + 1] ? i : -1));
  let makespan = 0;
  for (const x of end) makespan = Math.max(makespan, x);
  return { begin, end, cause, needs, further, stuck, rank, makespan, cycle: cycleOf(order, stuck, end, inputs, rank) };
}

// A shortest cycle of ranks that wait for each other: for each the operation at which it stops and the one that it needs.
function cycleOf(order, stuck, end, inputs, rank) {
  const awaited = stuck.map((i) => {
    if (i < 0) return [];
    const parts = order.second[i + 1] && i + 1 < order.start[rank[i] + 1] ? [i, i + 1] : [i];
    return parts.flatMap(inputs).filter((from) => end[from] < 0);
  });
  let best = [];
  for (let home = 0; home < stuck.length; home++) {
    const came = new Map(), queue = awaited[home].length ? [home] : [];
    for (const r of queue)
      for (const from of awaited[r]) if (!came.has(rank[from])) came.set(rank[from], [r, from]), queue.push(rank[from]);
    if (!came.has(home)) continue;
    const cycle = [];
    for (let r = home, first = true; first || r !== home; first = false) {
      const [waiter, from] = came.get(r);
      cycle.unshift({ rank: waiter, at: stuck[waiter], needs: from });
      r = waiter;
    }
    if (!best.length || cycle.length < best.length) best = cycle;
  }
  return best;
}

// What each rank holds after each operation, in stages, and while it runs if it takes memory; released at W, as `verify` does.
// Where no backward follows, nothing is kept.
const forwardOnly = (order) => !order.kind.some((k) => KINDS[k] === I || KINDS[k] === B);

function memory(order) {
  const { kind, stage, microbatch, trained } = order, count = kind.length;
  const keeps = forwardOnly(order) ? [] : order.kept;
  const held = new Int32Array(count), kept = new Int32Array(count), again = new Set();
  const key = (i) => stage[i] * order.microbatches + microbatch[i];
  for (let i = 0; i < count; i++) if (KINDS[kind[i]] === R) again.add(key(i));
  for (let r = 0; r < order.ranks; r++)
    for (let i = order.start[r], now = 0; i < order.start[r + 1]; i++) {
      const letter = KINDS[kind[i]], all = !trained || trained[stage[i]];
      if (keeps && !keeps[stage[i]]) held[i] = now + (letter === F);
      else if (letter === F || letter === R) {
        held[i] = now + 1;
        now += letter === R || !again.has(key(i)) ? 1 : 0;
      } else held[i] = now -= letter === B || letter === (all ? W : I) ? 1 : 0;
      kept[i] = now;
    }
  const peaks = Array.from({ length: order.ranks }, (_, r) => held.subarray(order.start[r], order.start[r + 1]).reduce((a, b) => Math.max(a, b), 0));
  return { held, kept, peaks };
}

// By rank: the time at work; idle before an input of which rank; idle after its last operation. They add up to the makespan.
function waits(order, times) {
  return Array.from({ length: order.ranks }, (_, r) => {
    const found = { work: 0, idle: 0, after: 0, waits: {} };
    let now = 0;
    for (let i = order.start[r]; i < order.start[r + 1] && times.end[i] >= 0; i++) {
      if (order.second[i]) continue;
      if (times.begin[i] > now) {
        const other = times.rank[times.cause[i]];
        found.waits[other] = (found.waits[other] ?? 0) + times.begin[i] - now;
      }
      found.work += times.end[i] - times.begin[i];
      now = times.end[i];
    }
    found.after = times.makespan - now;
    found.idle = times.makespan - found.work;
    return found;
  });
}

// What is wrong with an order that no waiting shows: results that are missing or made twice, or used before they are made.
function faults(order, times) {
  const { stages, microbatches, kind, stage, microbatch, trained, kept } = order, found = [], forward = forwardOnly(order);
  const results = [F, I, W, R], made = results.map(() => new Int32Array(stages * microbatches).fill(-1));
  const key = (i) => stage[i] * microbatches + microbatch[i];
  for (let i = 0; i < kind.length; i++)
    for (const result of KINDS[kind[i]] === B ? [I, W] : [KINDS[kind[i]]]) {
      const table = made[results.indexOf(result)], first = table[key(i)];
      if (first < 0) table[key(i)] = i;
      else found.push(`${label(order, i)} on rank ${times.rank[i]} comes after ${label(order, first)}, which did the same`);
    }
  for (let s = 0; s < stages; s++) {
    const wanted = forward || (kept && !kept[s]) ? [F] : trained && !trained[s] ? [F, I] : [F, I, W];
    for (let m = 0; m < microbatches; m++)
      for (const result of wanted) if (made[results.indexOf(result)][s * microbatches + m] < 0)
        found.push(`stage ${s} never runs ${result} of microbatch ${m}`);
  }
  for (let i = 0; i < kind.length; i++)
    for (const early of [times.needs[i], made[0][key(i)]]) if (early > i && times.rank[early] === times.rank[i])
      found.push(`${label(order, i)} on rank ${times.rank[i]} comes before ${label(order, early)}, whose result it uses`);
  for (let i = 0, last = -1; order.torch && i < kind.length; i++) if (stage[i] === stages - 1 && KINDS[kind[i]] === F) {
    if (last > microbatch[i]) found.push(`${label(order, i)} comes after F${stage[i]}.${last}: torch pairs losses with microbatches by position, so gradients are wrong`);
    last = microbatch[i];
  }
  return [...new Set(found)];
}
