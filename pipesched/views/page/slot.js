// The parts of a chosen operation's slot: a lane an engine, the critical path outlined, and when only other engines run.

const slotOf = meta.slots ? column("slots") : null;
const LANE = 22, LEAD = 76;

function shape(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function drawPart(svg, width, [letter, name, lane, begin, end, leading, times]) {
  const colour = KINDS.indexOf(letter) * SHADES, x = LEAD + begin * width, w = (end - begin) * width;
  const place = { x, y: lane * LANE + 1, width: w, height: LANE - 3 };
  const box = shape("rect", { ...place, fill: css[colour], class: leading ? "leading" : "part" });
  box.append(shape("title", {}, `${letter}.${name}: ${times}`));
  svg.append(box);
  if (w < 7 * (name.length + 2)) return;
  const middle = { x: x + w / 2, y: lane * LANE + 15, "text-anchor": "middle", fill: inks[colour] };
  svg.append(shape("text", middle, `${letter}.${name}`));
}

// Returns the slot of an operation as an element, or null if its parts are not known.
function slotElement(index) {
  const found = slotOf && meta.slots[slotOf[index]];
  if (!found) return null;
  const width = Math.max(300, document.body.clientWidth - 40) - LEAD, lanes = [...found.engines, "exposed"];
  const svg = shape("svg", { width: LEAD + width + 2, height: lanes.length * LANE, role: "img" });
  svg.setAttribute("aria-label", `parts of the slot of ${labelOf(index)}`);
  lanes.forEach((lane, k) => svg.append(shape("text", { x: 0, y: k * LANE + 15, class: "lane" }, lane)));
  const order = [...found.parts].sort((a, b) => a[5] - b[5]); // outlines lie above their neighbours
  for (const part of order) drawPart(svg, width, part);
  for (const [low, high] of found.exposed)
    svg.append(shape("rect", {
      x: LEAD + low * width, y: found.engines.length * LANE + 1, width: (high - low) * width, height: LANE - 3,
      fill: found.colour,
    }));
  const all = document.createElement("div");
  all.id = "slot";
  all.append(`slot ${[head(index), partner(head(index))].filter((i) => i >= 0).map(labelOf).join("+")}: ${found.times}`, svg);
  return all;
}

// The times of slots when only other engines run, as strips along the lower edge of their row.
function paintExposed(low, high) {
  const right = timeOf(view.width), h = Math.max(1, 0.14 * barHeight());
  for (let r = low; r < high; r++) {
    const y = yOf(r) + gap() / 2 + barHeight() - h;
    for (let i = head(Math.max(first(r), lastAt(begin, first(r), last(r), view.left))); i < last(r) && begin[i] < right; i++) {
      const found = second[i] ? null : meta.slots[slotOf[i]], x = xOf(begin[i]), w = xOf(end[i]) - x;
      paper.fillStyle = found?.colour;
      for (const [from, to] of found?.marked ?? []) paper.fillRect(x + from * w, y, (to - from) * w, h);
    }
  }
}
