// What is said of an operation, a microbatch and the critical path; times without a unit are exact.

function divisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return Math.abs(a);
}

// A fraction as 3, 5.5 or 16/3.
function exact(numerator, denominator) {
  const d = divisor(numerator, denominator) || 1, n = numerator / d, m = denominator / d;
  return m === 1 ? String(n) : 10000 % m === 0 ? String(n / m) : `${n}/${m}`;
}

// So many significant digits in the largest unit of which there is one.
function timed(seconds, digits) {
  const [name, size] = [["s", 1], ["ms", 1e-3], ["us", 1e-6]].find(([, size]) => Math.abs(seconds) >= 0.9995 * size) || ["us", 1e-6];
  return seconds ? `${Number((seconds / size).toPrecision(digits))} ${name}` : `0 ${meta.unit}`;
}

const time = (ticks) => meta.unit ? timed(ticks / meta.scale * meta.seconds, 3) : exact(ticks, meta.scale);
const amount = (parts) => exact(parts * meta.part[0], meta.part[1]);

function placeOf(i) {
  if (!lineOf[i]) return "";
  const bound = meta.bindings.length ? meta.bindings[i] : "";
  return `${meta.source}:${lineOf[i]}:${columnOf[i]}${bound ? `  with ${bound}` : ""}`;
}

// What an operation needs of a producer, and when that is there.
function needOf(i, from = needs[i]) {
  if (from < 0) return `waits for nothing: ${stageOf[i] ? "it reads the input of the model" : "the first stage"}`;
  const here = rankOf(i), there = rankOf(from);
  if (!runs(from)) return `waits for ${labelOf(from)} on rank ${there}, which never runs`;
  if (here === there) return `waits for ${labelOf(from)} on this rank, done at ${time(end[from])}`;
  const late = latency(from);
  return `waits for ${labelOf(from)} on rank ${there}, ` +
    (late ? `sent at ${time(end[from])}, arrives at ${time(end[from] + late)}` : `done at ${time(end[from])}`);
}

function causeOf(i) {
  if (cause[i] < 0) return "starts at once";
  if (follows(i)) return `starts right after ${labelOf(cause[i])}, the one before it`;
  return inputsOf(i).includes(cause[i]) ? "starts when its input arrives" : `starts when the input of ${labelOf(partner(i))} arrives`;
}

function describeOperation(i) {
  const rank = rankOf(i), other = partner(i), place = placeOf(i);
  const text = (meta.lines[lineOf[i]] || "").replace(/\s+/g, " ");
  return [
    ["b", `${labelOf(i)}   ${meta.words[KINDS[kind[i]]]}`],
    ["", `stage ${stageOf[i]}, microbatch ${microbatch[i]}, rank ${rank}, step ${i - meta.start[rank] + 1}` +
      (other >= 0 ? `; one slot with ${labelOf(other)}` : "")],
    ["", `start ${time(begin[i])}, end ${time(end[i])}`],
    ...(inputsOf(i).length ? inputsOf(i) : [-1]).map((from) => ["", needOf(i, from)]),
    ["", causeOf(i)],
    ...(steps.has(i) ? [["", "a STEP follows it"]] : []),
    ["", `rank ${rank} holds ${amount(held[i])} ${kept[i] < held[i] ? "while it runs" : meta.takes[kind[i]] ? "from its start on" : "after it"}; its peak is ${amount(peaks[rank])}`],
    ...(place ? [["code", place]] : []),
    ...(text ? [["code", text]] : []),
  ];
}

// An idle gap, and what ends it.
function describeIdle(rank, before) {
  const next = before + 1, from = before >= first(rank) ? end[before] : 0;
  if (next >= last(rank)) {
    const stop = meta.stops.find((x) => x.rank === rank);
    return [["b", `rank ${rank} ${stop ? "waits forever" : "is done"}`],
      ["", stop ? `from ${time(from)} on: ${stop.sentence}` : `idle from ${time(from)} to ${time(meta.makespan)}`]];
  }
  const late = !follows(next) && !inputsOf(next).includes(cause[next]) && partner(next) >= 0 ? partner(next) : next;
  const awaited = inputsOf(late).includes(cause[next]) ? cause[next] : needs[late];
  return [["b", `rank ${rank} idles ${time(begin[next] - from)}`],
    ["", `from ${time(from)} to ${time(begin[next])}, when ${labelOf(next)} can start`],
    ["", `${labelOf(late)} ${needOf(late, awaited)}`]];
}

function describeMicrobatch(wanted, found) {
  if (!found.length) return `microbatch ${wanted} never runs`;
  const where = new Set(found.map(rankOf)), to = Math.max(...found.map((i) => end[i]));
  return `microbatch ${wanted}: ${found.length} operations on ${where.size} ranks, from ${time(begin[found[0]])} to ${time(to)}`;
}

function describePath(path, what) {
  if (!path.length) return "";
  const where = new Set(path.map(rankOf)), work = path.reduce((sum, i) => sum + end[i] - begin[i], 0);
  const length = end[path[path.length - 1]];
  const late = length - begin[path[0]] - work;
  return `${what}: ${path.length} operations on ${where.size} ranks, length ${time(length)} = ${time(work)} work` +
    (late ? ` + ${time(late)} messages` : "");
}

function show(element, lines) {
  element.replaceChildren(...lines.flatMap(([tag, text], i) => {
    const node = tag ? document.createElement(tag) : document.createTextNode(text);
    if (tag) node.textContent = text;
    return i ? [document.createTextNode("\n"), node] : [node];
  }));
}
