// Puts the page together. `pipesched` is for tools that drive it.

const pipesched = { view, marked, meta, frames: [], criticalPath, fit, under, xOf, yOf, rankAt, barHeight, boxOf, labelOf, columns: {
  kind, second, stageOf, microbatch, begin, end, needs, cause, held } };
pipesched.name = (index) => (called ? called.form(index) : ""); // as boxes are called at this zoom
pipesched.goTo = (index) => { goTo(index); redraw(); };
pipesched.middle = (index) => {
  const [x, y, w, h] = boxOf(index, rankOf(index)), box = stageElement.getBoundingClientRect();
  return [box.left + x + w / 2, box.top + y + h / 2];
};
window.pipesched = pipesched;

function describeTitle() {
  const sizes = Object.entries(meta.sizes).map(([name, value]) => `${name}=${value}`).join(" ");
  element("title").textContent = `${meta.title}  ${sizes}`;
  element("facts").textContent = meta.facts.join(" · ");
  element("trouble").textContent = meta.trouble;
  element("trouble").hidden = !meta.trouble;
}

function describeLegend() {
  const shown = KINDS.filter((_, k) => kind.includes(k));
  element("legend").replaceChildren(...shown.map((name) => {
    const item = document.createElement("span"), patch = document.createElement("i");
    patch.style.background = css[KINDS.indexOf(name) * SHADES];
    item.append(patch, meta.words[name]);
    return item;
  }));
  const exposed = slotOf && meta.slots.find((slot) => slot.marked.length);
  if (exposed) {
    const item = document.createElement("span"), patch = document.createElement("i");
    patch.style.background = exposed.colour;
    item.append(patch, "exposed");
    element("legend").append(item);
  }
  if (SHADES > 1) element("legend").append(`paler: ${meta.later}`);
  if (steps.size) element("legend").append("triangles: STEP");
}

function describeKeys() {
  const table = document.createElement("table");
  for (const [keys, meaning] of KEYS) {
    const row = table.insertRow(), name = document.createElement("kbd");
    name.textContent = keys;
    row.insertCell().append(name);
    row.insertCell().append(meaning);
  }
  element("keys").append(table);
}

for (const id of Object.keys(toggles)) element(id).addEventListener("click", () => { toggles[id](); redraw(); });
for (const id of ["messages", "critical", "theme", "help"]) press(id, false);
press("memory", true);
element("find").addEventListener("change", (event) => find(event.target.value));
stageElement.addEventListener("wheel", wheel, { passive: false });
stageElement.addEventListener("pointerdown", down);
stageElement.addEventListener("pointermove", move);
stageElement.addEventListener("pointerup", up);
stageElement.addEventListener("pointercancel", up);
stageElement.addEventListener("pointerleave", hideTip);
document.addEventListener("keydown", key);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); redraw(); });

describeTitle();
describeLegend();
describeKeys();
marked.path = criticalPath;
describeChosen();
readTheme();
new ResizeObserver(() => {
  resize();
  refit();
  redraw();
}).observe(stageElement);
pipesched.ready = true;
