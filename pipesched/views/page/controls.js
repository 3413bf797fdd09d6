// Wheel, pointer, touch and keys.

const TOUCH = matchMedia("(hover: none) and (pointer: coarse)").matches; // a phone: nothing hovers, and there are no keys
const CLICKED = "all operations of a microbatch, and the critical path";
const KEYS = TOUCH ? [
  ["pinch, + −", "zoom in time"], ["drag", "move"], ["fit", "whole schedule"], ["tap", CLICKED],
  ["tap elsewhere", "clear the selection"], ["find", "F3.12, or microbatch 12"],
] : [
  ["wheel, + −, pinch", "zoom in time"], ["alt + wheel, { }", "zoom the rows"], ["drag, arrows, shift + wheel", "move"],
  ["0", "whole schedule"], ["click", CLICKED],
  ["shift + click", "the microbatch, and the path that leads to this operation"], ["[ ]", "previous, next operation on the rank"],
  ["b", "to the operation that the chosen one starts after"], ["m, a, c, d", "memory, messages, critical path, dark"],
  ["/", "find F3.12, or microbatch 12"], ["escape", "clear the selection"],
];
const INVITATION = TOUCH ? "tap an operation to see its inputs, its microbatch and the critical path · ? for more"
  : "hover over an operation · click for its microbatch and the critical path · ? for the keys";

let dirty = { base: true, over: true }, waiting = false;
function redraw(all = true) {
  dirty.base ||= all;
  dirty.over = true;
  if (!waiting) requestAnimationFrame(frame);
  waiting = true;
}

function frame() {
  waiting = false;
  const began = performance.now();
  if (dirty.base) paint();
  drawOver();
  dirty = { base: false, over: false };
  pipesched.frames.push(performance.now() - began);
  if (pipesched.frames.length > 1000) pipesched.frames.shift();
}

const element = (id) => document.getElementById(id);
const point = (event) => {
  const box = stageElement.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

function wheel(event) {
  event.preventDefault();
  const [x, y] = point(event), unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? view.height : 1;
  const dx = event.deltaX * unit, dy = event.deltaY * unit;
  if (event.altKey) zoomRows(Math.exp(-dy / 400), y);
  else if (event.shiftKey) pan(dx || dy);
  else if (Math.abs(dx) > Math.abs(dy)) pan(dx);
  else zoom(Math.exp(-dy / (event.ctrlKey ? 100 : 400)), x);
  hover(x, y);
  redraw();
}

// One finger or a button moves; two fingers zoom about their middle.
const pointers = new Map();
let travelled = 0;

function down(event) {
  pointers.set(event.pointerId, point(event));
  stageElement.setPointerCapture(event.pointerId);
  if (pointers.size === 1) travelled = 0;
}

function middle() {
  const all = [...pointers.values()], n = all.length;
  const x = all.reduce((sum, p) => sum + p[0], 0) / n, y = all.reduce((sum, p) => sum + p[1], 0) / n;
  return [x, y, n > 1 ? Math.hypot(all[0][0] - all[1][0], all[0][1] - all[1][1]) : 0];
}

function move(event) {
  const [x, y] = point(event);
  if (!pointers.has(event.pointerId)) return hover(x, y);
  const [x0, y0, wide0] = middle();
  pointers.set(event.pointerId, [x, y]);
  const [x1, y1, wide1] = middle();
  travelled += Math.hypot(x1 - x0, y1 - y0) + Math.abs(wide1 - wide0);
  if (travelled < 4) return;
  stageElement.classList.add("dragged");
  hideTip();
  pan(x0 - x1, y0 - y1);
  if (wide0 > 0 && wide1 > 0) zoom(wide1 / wide0, x1);
  redraw();
}

function up(event) {
  if (!pointers.delete(event.pointerId)) return;
  stageElement.classList.remove("dragged");
  if (pointers.size || travelled >= 4 || event.type === "pointercancel") return;
  choose(under(...point(event)).index, event.shiftKey);
}

function hideTip() {
  element("tip").hidden = true;
  if (marked.hover >= 0 || marked.rank >= 0) { marked.hover = marked.rank = -1; redraw(false); }
}

function hover(x, y) {
  const at = under(x, y), tip = element("tip");
  const beyond = at.time > meta.makespan && !meta.stops.some((stop) => stop.rank === at.rank);
  if (at.rank < 0 || at.time < 0 || beyond) return hideTip();
  if (at.index !== marked.hover || at.rank !== marked.rank) redraw(false);
  [marked.hover, marked.rank] = [at.index, at.rank];
  show(tip, at.index >= 0 ? describeOperation(at.index) : describeIdle(at.rank, at.before));
  tip.hidden = false;
  const left = x + 16 + tip.offsetWidth > view.width ? x - 12 - tip.offsetWidth : x + 16;
  const top = y + 16 + tip.offsetHeight > view.height ? y - 12 - tip.offsetHeight : y + 16;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${Math.max(0, top)}px`;
}

// An operation is chosen: its microbatch's path and a critical path are shown, and described below.
function choose(index, leading = false) {
  marked.chosen = index;
  marked.operations = index < 0 ? [] : operationsOf(microbatch[index]);
  marked.path = index >= 0 && leading ? pathTo(index) : criticalPath;
  press("critical", (marked.critical = index >= 0));
  describeChosen();
  redraw(false);
}

function describeChosen() {
  const lines = [];
  if (marked.chosen >= 0) {
    const [[, title], ...rest] = describeOperation(marked.chosen).filter(([tag]) => tag !== "code");
    lines.push(["p", [title, ...rest.map(([, text]) => text), placeOf(marked.chosen)].filter(Boolean).join(" · ")]);
    lines.push(["p", describeMicrobatch(microbatch[marked.chosen], marked.operations)]);
  }
  const leading = marked.path !== criticalPath ? `path to ${labelOf(marked.chosen)}` : "critical path";
  if (marked.critical) lines.push(["p", describePath(marked.path, leading)]);
  if (!lines.length) lines.push(["p", INVITATION]);
  show(element("detail"), lines);
  const slot = marked.chosen >= 0 && slotElement(marked.chosen);
  if (slot) element("detail").prepend(slot);
}

const press = (id, on) => element(id).setAttribute("aria-pressed", String(on));

function find(text) {
  const match = new RegExp(`^\\s*(?:([${KINDS.join("")}])(\\d+)\\.)?(\\d+)\\s*$`, "i").exec(text);
  const wanted = match ? Number(match[3]) : -1;
  const named = (i) => !match[1] || (KINDS[kind[i]] === match[1].toUpperCase() && stageOf[i] === Number(match[2]));
  const index = !match ? -1 : operationsOf(wanted).find(named) ?? -1;
  const unknown = index < 0 && text.trim() !== "";
  element("find").classList.toggle("unknown", unknown);
  element("find").setAttribute("aria-invalid", String(unknown));
  if (unknown) return describeUnknown(text.trim(), match, match && microbatch.some((x, i) => x === wanted && named(i)));
  if (index < 0) return describeChosen();
  goTo(index);
  choose(index);
  redraw();
}

// A search without a result says so, and what there is to find.
function describeUnknown(text, match, known) {
  const kinds = KINDS.filter((_, k) => kind.includes(k)).join(", ");
  const lines = [["p", known ? `${text} never runs` : match ? `there is no ${text} here` : `${text} is not the name of an operation`],
    ["p", `operations are ${kinds} of stages 0 to ${meta.stages - 1}, microbatches 0 to ${meta.microbatches - 1}: F0.0, or only 0`]];
  show(element("detail"), lines);
  element("detail").firstElementChild.id = "said";
}

function step(by) {
  const rank = marked.chosen < 0 ? 0 : rankOf(marked.chosen);
  const index = marked.chosen < 0 ? first(0) : marked.chosen + by;
  if (index < first(rank) || index >= last(rank)) return;
  goTo(index);
  choose(index);
  redraw();
}

function back() {
  const path = marked.chosen < 0 ? criticalPath : pathTo(marked.chosen);
  const index = marked.chosen < 0 ? path[path.length - 1] : path[path.length - 2];
  if (index === undefined) return;
  goTo(index);
  choose(index);
  redraw();
}

const toggles = {
  memory: () => { press("memory", (view.memory = !view.memory)); refit(); },
  messages: () => press("messages", (view.messages = !view.messages)),
  critical: () => { marked.path = criticalPath; press("critical", (marked.critical = !marked.critical)); describeChosen(); },
  theme: () => {
    document.documentElement.dataset.theme = theme.dark ? "light" : "dark";
    readTheme();
    press("theme", theme.dark);
  },
  help: () => { hideTip(); element("keys").hidden = !element("keys").hidden; press("help", !element("keys").hidden); },
  fit, in: () => zoom(1.5), out: () => zoom(1 / 1.5),
};

const clear = () => { element("keys").hidden = true; press("help", false); hideTip(); choose(-1); };
const actions = {
  "+": toggles.in, "=": toggles.in, "-": toggles.out, 0: fit, m: toggles.memory, a: toggles.messages,
  c: toggles.critical, d: toggles.theme, "?": toggles.help, b: back, Escape: clear,
  "[": () => step(-1), "]": () => step(1), "{": () => zoomRows(1 / 1.2), "}": () => zoomRows(1.2),
  ArrowLeft: () => pan(-0.15 * plotWidth()), ArrowRight: () => pan(0.15 * plotWidth()),
  ArrowUp: () => pan(0, -2 * view.row), ArrowDown: () => pan(0, 2 * view.row),
  Home: () => { view.left = 0; keepInSight(); }, End: () => { view.left = meta.makespan; keepInSight(); pan(-0.5 * plotWidth()); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === element("find")) {
    if (event.key === "Escape") stageElement.focus();
    return;
  }
  if (event.key === "/") element("find").focus();
  else if (actions[event.key]) actions[event.key]();
  else return;
  event.preventDefault();
  redraw();
}
