// The page: schedules one under the other, at sizes, costs and orders of the reader's choice, and as a link.

const { catalogue, look, frame } = JSON.parse(document.getElementById("gallery").textContent);
const COSTS = [["F", "1"], ["I", "1"], ["W", "1"], ["B", ""], ["C", "0"], ["FB", ""]];
const SIZES = ["p", "v", "m"], EDITED = 6000; // operations, of which each is an element of the list
const element = (id) => document.getElementById(id);
const panels = [], files = new Map();

// What a schedule's file has, fetched once.
const fileOf = (name) => {
  if (!files.has(name)) files.set(name, fetch(`orders/${name}.json`).then((found) => {
    if (!found.ok) throw new Error(`orders/${name}.json is missing`);
    return found.json();
  }));
  return files.get(name);
};

const divisor = (a, b) => { while (b) [a, b] = [b, a % b]; return Math.abs(a) || 1; };
function fraction(n, d) {
  const by = divisor(n, d);
  return d / by === 1 ? String(n / by) : 10000 % (d / by) === 0 ? String(n / d) : `${n / by}/${d / by}`;
}

// Costs in whole ticks, and how many make one unit: inputs have at most three decimals.
function costsNow() {
  const values = new Map(COSTS.map(([name]) => [name, element(`cost-${name}`).value.trim()]));
  const whole = (text) => Math.round(Number(text) * 1000), ticks = {};
  for (const name of ["F", "I", "W", "C"]) ticks[name] = whole(values.get(name) || "0");
  ticks.B = values.get("B") === "" ? ticks.I + ticks.W : whole(values.get("B"));
  if (values.get("FB") !== "") ticks.FB = ticks.BF = whole(values.get("FB"));
  ticks.R = ticks.F;
  const by = Object.values(ticks).reduce(divisor, 1000);
  for (const name of Object.keys(ticks)) ticks[name] /= by;
  return { ticks, scale: 1000 / by };
}

// The sizes that the gallery has nearest to those wanted: p first, then v, then m.
function nearest(entries, wanted) {
  let left = entries;
  const offered = {};
  for (const name of SIZES) {
    const values = [...new Set(left.map((x) => x.sizes[name]))].filter((x) => x !== undefined).sort((a, b) => a - b);
    if (!values.length) continue;
    const value = values.reduce((a, b) => (Math.abs(b - (wanted[name] ?? b)) < Math.abs(a - (wanted[name] ?? a)) ? b : a));
    offered[name] = { values, value };
    left = left.filter((x) => x.sizes[name] === value);
  }
  return { entry: left[0], offered };
}

class Panel {
  constructor(state) {
    this.state = { name: "1f1b", sizes: { p: 4, v: 2, m: 8 }, moves: [], csv: null, file: "", ...state };
    this.root = element("panel").content.firstElementChild.cloneNode(true);
    element("panels").append(this.root);
    const on = (name, event, then) => this.part(name).addEventListener(event, then);
    this.part("name").add(new Option("", ""));
    for (const x of catalogue) if (!x.refused) this.part("name").add(new Option(`${x.title}  (${x.name})`, x.name));
    on("name", "change", (event) => this.change({ name: event.target.value, moves: [], csv: null }));
    on("edit", "click", () => this.edit(this.part("lists").hidden));
    on("save", "click", () => this.save());
    on("close", "click", () => { panels.splice(panels.indexOf(this), 1); this.root.remove(); drawAll(); });
    on("open", "change", (event) => this.read(event.target.files[0]));
    on("overview", "click", (event) => this.goTo(event.offsetX / this.part("overview").clientWidth));
    on("frame", "load", () => this.shown());
    on("lists", "pointerdown", (event) => this.grab(event));
    on("lists", "keydown", (event) => this.nudge(event));
    for (const kind of ["dragover", "dragleave", "drop"]) this.root.addEventListener(kind, (event) => {
      event.preventDefault();
      this.root.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) this.read(event.dataTransfer.files[0]);
    });
  }

  part(name) { return this.root.querySelector(`.${name}`); }

  async read(file) {
    if (!file) return;
    if (file.size > 2 ** 25) return this.refuse(`${file.name} holds more than 32 MiB`);
    await this.change({ csv: await file.text(), file: file.name, moves: [] });
  }

  async change(state) {
    this.state = { ...this.state, ...state };
    await this.load();
    drawAll();
  }

  // The order that is asked for, with its moves.
  async load() {
    const { name, csv, sizes, moves } = this.state;
    this.order = null;
    try {
      const file = csv === null ? await fileOf(name) : null;
      const at = file ? nearest(file.entries, sizes) : null;
      const order = file ? await decode(at.entry) : readCsv(csv);
      if (at) for (const [size, { value }] of Object.entries(at.offered)) this.state.sizes[size] = value;
      this.sliders(at ? at.offered : {});
      this.texts = file ? file.text.split("\n") : csv.split("\n").map((line) => (line.length > 200 ? "" : line));
      this.about = file ? catalogue.find((x) => x.name === name) : { title: this.state.file, documentation: "computes of a CSV" };
      this.sizes = at ? at.entry.sizes : { p: order.ranks, m: order.microbatches };
      this.order = moves.reduce((all, [from, to]) => moved(all, from, to), order);
    } catch (error) {
      this.refuse(error instanceof TypeError ? "the orders cannot be loaded: serve this folder, as with python -m http.server" : error.message);
    }
  }

  refuse(sentence) {
    this.order = null;
    this.part("verdict").textContent = `refused: ${sentence}`;
    this.part("verdict").className = "verdict wrong";
    for (const name of ["lists", "overview", "frame", "why"]) this.part(name).hidden = true;
  }

  sliders(offered) {
    this.part("sizes").replaceChildren(...Object.entries(offered).map(([name, { values, value }]) => {
      const label = document.createElement("label"), slider = document.createElement("input"), said = document.createElement("output");
      Object.assign(slider, { type: "range", min: 0, max: values.length - 1, step: 1, value: values.indexOf(value), className: name });
      slider.disabled = values.length < 2;
      said.textContent = value;
      slider.addEventListener("input", () => {
        this.change({ sizes: { ...this.state.sizes, [name]: values[slider.value] }, moves: [] }).then(() => this.part(name)?.focus());
      });
      label.append(`${name} `, slider, " ", said);
      return label;
    }));
  }

  play(costs) {
    if (!this.order) return;
    this.costs = costs;
    this.times = play(this.order, costs.ticks);
    this.memory = memory(this.order);
    this.waits = waits(this.order, this.times);
    this.faults = faults(this.order, this.times);
  }

  time(ticks) { return fraction(ticks, this.costs.scale); }
  amount(stages) { return fraction(stages * this.order.ranks, this.order.stages); }

  draw(span) {
    this.part("name").options[0].text = this.state.file;
    this.part("name").options[0].hidden = this.state.csv === null;
    this.part("name").value = this.state.csv === null ? this.state.name : "";
    if (!this.order) return;
    for (const name of ["overview", "frame", "why"]) this.part(name).hidden = false;
    this.part("about").textContent = [this.about.title, this.about.documentation,
      this.state.moves.length ? `${this.state.moves.length} moved` : ""].filter(Boolean).join(" · ");
    this.part("save").disabled = this.order.place.length > 1;
    this.describe();
    this.table();
    if (!this.part("lists").hidden) this.edit(true);
    const view = this.part("frame"), old = view.contentWindow?.pipesched?.view;
    this.kept = old && !old.fitted && old.ranks === this.order.ranks ? { ...old } : null;
    view.style.height ||= `${Math.min(720, Math.max(330, 190 + 46 * this.order.ranks))}px`;
    view.pipesched = { ...this.columns(), span };
    view.srcdoc = frame;
  }

  describe() {
    const { order, times, memory: { peaks } } = this, verdict = this.part("verdict");
    const idle = this.waits.reduce((sum, x) => sum + x.idle, 0), whole = order.ranks * times.makespan;
    const top = Math.max(0, ...peaks), bubble = whole ? `${(100 * idle / whole).toFixed(1)} % (${idle / divisor(idle, whole)}/${whole / divisor(idle, whole)})` : "none";
    const said = `makespan ${this.time(times.makespan)} · bubble ${bubble} · peak ${this.amount(top)} on rank ${peaks.indexOf(top)}`;
    const [first, ...rest] = this.faults, stopped = times.stuck.some((i) => i >= 0);
    verdict.className = `verdict ${stopped || first ? "wrong" : "ok"}`;
    verdict.textContent = stopped ? this.deadlock() : first ? `wrong: ${first}${rest.length ? `; and ${rest.length} more` : ""}` : `ok · ${said}`;
  }

  deadlock() {
    const { order, times } = this, ranks = times.cycle.map((x) => x.rank).sort((a, b) => a - b);
    const names = ranks.length ? `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks[ranks.length - 1]} wait for each other` :
      `ranks ${times.stuck.flatMap((i, r) => (i < 0 ? [] : [r])).slice(0, 8).join(", ")} wait for operations that no rank runs`;
    return [`deadlock: ${names}`, ...times.cycle.slice(0, 6).map((x) => this.sentence(x))].join("\n");
  }

  sentence({ rank, at, needs }) {
    const { order, times } = this, step = (i) => i - order.start[times.rank[i]] + 1;
    return `rank ${rank} stops at ${label(order, at)} (step ${step(at)}): waits until rank ${times.rank[needs]} reaches ${label(order, needs)} (step ${step(needs)})`;
  }

  table() {
    const rows = [["rank", "work", "idle", "waits for", "after its last", "peak"]];
    this.waits.forEach((x, rank) => {
      const others = Object.entries(x.waits).sort((a, b) => b[1] - a[1]).map(([other, ticks]) => `rank ${other}: ${this.time(ticks)}`);
      rows.push([rank, this.time(x.work), this.time(x.idle), others.slice(0, 4).join(", ") + (others.length > 4 ? ", …" : ""), this.time(x.after), this.amount(this.memory.peaks[rank])]);
    });
    const table = this.root.querySelector("table");
    table.replaceChildren(...rows.map((row, k) => {
      const line = document.createElement("tr");
      line.append(...row.map((text) => Object.assign(document.createElement(k ? "td" : "th"), { textContent: text })));
      return line;
    }));
  }

  // All that the picture reads: see views/page/data.js.
  columns() {
    const { order, times, memory: { held, kept } } = this, count = order.kind.length;
    const cycle = new Map(times.cycle.map((x) => [x.rank, x]));
    const stops = times.stuck.flatMap((i, rank) => {
      if (i < 0) return [];
      const at = label(order, i), x = cycle.get(rank);
      const words = x ? `${at} waits for ${label(order, x.needs)}` : at;
      return [{ rank, words, at, sentence: x ? this.sentence(x) : `rank ${rank} stops at ${at}`, cycle: Boolean(x) }];
    });
    const chunks = Array.from({ length: order.ranks }, (_, rank) =>
      order.place.flatMap((place, route) => place.flatMap((at, stage) => (at === rank ? [[route, stage]] : []))));
    const meta = {
      title: this.about.title, sizes: this.sizes, facts: [`${count} operations`], trouble: "", stops,
      cycle: times.cycle.map((x) => ({ from: times.rank[x.needs], to: x.rank, sent: true })),
      scale: this.costs.scale, makespan: times.makespan, start: order.start, stages: order.stages, microbatches: order.microbatches,
      ran: times.stuck.map((i, r) => (i < 0 ? order.start[r + 1] : i) - order.start[r]), chunks, route: order.route ?? [],
      message: Array(order.stages).fill(this.costs.ticks.C), further: times.further, part: [order.ranks, order.stages], copies: [],
      steps: order.steps ?? [],
      later: order.place.length > 1 ? "later chunks, route by route" : "later chunks", bindings: [],
      source: this.state.csv === null ? `${this.state.name}.ps` : this.state.file,
      lines: Object.fromEntries(this.texts.map((text, k) => [k + 1, text.trim()])), ...look,
    };
    const from = (column) => column.map((x) => Math.max(x, 0));
    return { meta, columns: { kind: order.kind, second: order.second, stage: order.stage, microbatch: order.microbatch,
      begin: from(times.begin), end: from(times.end), needs: times.needs, cause: times.cause, held, kept, line: order.line,
      column: new Uint8Array(count).fill(1) } };
  }

  // The picture is there: at the place that was looked at before, with its part marked in the overview.
  shown() {
    const inner = this.part("frame").contentWindow;
    if (!inner?.pipesched) return;
    if (this.kept) Object.assign(inner.pipesched.view, this.kept), inner.dispatchEvent(new Event("resize"));
    inner.pipesched.view.ranks = this.order.ranks;
    const begun = () => (inner.pipesched?.view.width ? this.overview() : requestAnimationFrame(begun));
    begun();
    for (const kind of ["wheel", "pointermove", "keyup", "click"])
      inner.addEventListener(kind, () => requestAnimationFrame(() => this.overview()), { passive: true });
  }

  // Every rank over the whole time, a pixel a span, and what the picture shows of it.
  overview() {
    const canvas = this.part("overview"), paper = canvas.getContext("2d"), { order, times } = this;
    const wide = (canvas.width = canvas.clientWidth || 800), high = canvas.height, span = this.part("frame").pipesched?.span || 1;
    const fill = Object.values(look.fill), row = high / order.ranks;
    for (let r = 0; r < order.ranks; r++)
      for (let x = 0, i = order.start[r]; x < wide; x++) {
        const t = ((x + 0.5) / wide) * span;
        while (i < order.start[r + 1] && times.end[i] >= 0 && times.end[i] <= t) i++;
        if (i === order.start[r + 1] || times.end[i] < 0) break;
        if (times.begin[i] > t) continue;
        paper.fillStyle = fill[order.kind[i]];
        paper.fillRect(x, r * row, 1, Math.max(1, row - 0.5));
      }
    const view = this.part("frame").contentWindow?.pipesched?.view;
    if (!view) return;
    const left = (view.left / span) * wide, right = ((view.left + view.perPixel * (view.width - 66)) / span) * wide;
    paper.strokeStyle = getComputedStyle(canvas).color;
    paper.lineWidth = 2;
    paper.strokeRect(Math.max(1, left), 1, Math.min(wide - 1, right) - Math.max(1, left), high - 2);
  }

  goTo(share) {
    const inner = this.part("frame").contentWindow, span = this.part("frame").pipesched.span;
    let best = -1;
    for (let i = 0; i < this.order.kind.length; i++)
      if (this.times.end[i] >= 0 && (best < 0 || Math.abs(this.times.begin[i] - share * span) < Math.abs(this.times.begin[best] - share * span))) best = i;
    if (best >= 0) inner.pipesched.goTo(best);
    this.overview();
  }

  // The list of each rank, an operation a chip: those that never run are pale, and where a rank stops is outlined.
  edit(on) {
    const { order, times } = this, lists = this.part("lists");
    lists.hidden = !on;
    this.part("edit").setAttribute("aria-pressed", String(on));
    if (!on) return;
    if (order.kind.length > EDITED) return lists.replaceChildren(`${order.kind.length} operations: orders of up to ${EDITED} can be edited here`);
    const [left, top] = [lists.scrollLeft, lists.scrollTop];
    lists.replaceChildren(...times.stuck.map((stop, rank) => {
      const list = document.createElement("div");
      list.className = "list";
      list.append(Object.assign(document.createElement("b"), { textContent: `rank ${rank}` }));
      for (let i = order.start[rank]; i < order.start[rank + 1]; i++) {
        const chip = document.createElement("span");
        chip.className = `chip${order.second[i] ? " second" : ""}${stop >= 0 && i >= stop ? " never" : ""}${i === stop ? " stuck" : ""}`;
        chip.textContent = label(order, i);
        chip.style.background = Object.values(look.fill)[order.kind[i]];
        chip.dataset.at = order.second[i] ? i - 1 : i;
        chip.tabIndex = order.second[i] ? -1 : 0;
        list.append(chip);
      }
      list.append(Object.assign(document.createElement("span"), { className: "chip", textContent: " " }));
      list.lastChild.dataset.at = order.start[rank + 1];
      return list;
    }));
    [lists.scrollLeft, lists.scrollTop] = [left, top];
  }

  move(from, to) {
    const wide = this.order.second[from + 1] ? 2 : 1;
    if (to >= from && to <= from + wide) return;
    this.order = moved(this.order, from, to);
    this.state.moves.push([from, to]);
    drawAll();
  }

  grab(event) {
    const chip = event.target.closest(".chip"), list = chip?.parentElement;
    if (!chip || Number(chip.dataset.at) === this.order.start[this.times.rank[chip.dataset.at] + 1] || !chip.textContent.trim()) return;
    event.preventDefault();
    chip.classList.add("held");
    let target = null;
    const over = (at) => {
      target?.classList.remove("target");
      const found = document.elementFromPoint(at.clientX, at.clientY)?.closest(".chip");
      target = found && found.parentElement === list ? found : null;
      target?.classList.add("target");
    };
    const drop = (at) => {
      over(at);
      removeEventListener("pointermove", over);
      chip.classList.remove("held");
      target?.classList.remove("target");
      if (target) this.move(Number(chip.dataset.at), Number(target.dataset.at));
    };
    addEventListener("pointermove", over);
    addEventListener("pointerup", drop, { once: true });
  }

  // Alt and an arrow move the focused operation by a slot.
  nudge(event) {
    const chip = event.target.closest(".chip"), by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chip || !by || !event.altKey) return;
    event.preventDefault();
    const slots = [...new Set([...chip.parentElement.querySelectorAll(".chip")].map((x) => Number(x.dataset.at)))];
    const from = Number(chip.dataset.at), k = slots.indexOf(from), to = by < 0 ? slots[k - 1] : slots[k + 2];
    if (to === undefined) return;
    const wide = this.order.second[from + 1] ? 2 : 1;
    this.move(from, to);
    this.part("lists").querySelector(`.chip[data-at="${to > from ? to - wide : to}"]`)?.focus();
  }

  save() {
    const link = document.createElement("a"), name = this.state.csv === null ? `${this.state.name}.csv` : this.state.file;
    link.href = URL.createObjectURL(new Blob([writeCsv(this.order)], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

function drawAll() {
  const costs = costsNow();
  for (const panel of panels) panel.play(costs);
  const span = Math.max(1, ...panels.filter((x) => x.order).map((x) => x.times.makespan));
  for (const panel of panels) panel.draw(span);
  element("second").hidden = panels.length > 1;
  for (const panel of panels) panel.part("close").hidden = panels.length < 2;
}

// What is shown, in the fragment of the address: no server sees it.
async function deflate(text, Stream) {
  const bytes = Stream === CompressionStream ? new TextEncoder().encode(text) :
    Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const made = new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new Stream("deflate-raw"))).arrayBuffer());
  if (Stream === DecompressionStream) return new TextDecoder().decode(made);
  let text64 = "";
  for (const byte of made) text64 += String.fromCharCode(byte);
  return btoa(text64).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function fragment() {
  const found = new URLSearchParams(COSTS.map(([name]) => [name, element(`cost-${name}`).value]).filter(([, x]) => x !== ""));
  for (const [k, { state }] of panels.entries()) {
    const key = "ab"[k];
    if (state.csv === null) found.set(key, [state.name, ...SIZES.map((x) => state.sizes[x] ?? "")].join(","));
    else found.set(`${key}.csv`, `${state.file}|${await deflate(state.csv, CompressionStream)}`);
    if (state.moves.length) found.set(`${key}.moves`, state.moves.map((x) => x.join("-")).join("_"));
  }
  return `#${found}`;
}

async function open() {
  const asked = new URLSearchParams(location.hash.slice(1));
  panels.splice(0).forEach((panel) => panel.root.remove());
  for (const [name, usual] of COSTS) {
    const input = element(`cost-${name}`);
    input.value = asked.get(name) ?? usual;
    if (input.validity.valid && (input.value !== "" || usual === "")) continue;
    input.value = usual;
    element("said").textContent = `the link's cost of ${name} is not a number from 0 to 1000000 with three decimals: ${usual || "the default"} is used`;
  }
  for (const key of ["a", "b"]) {
    const csv = asked.get(`${key}.csv`), named = asked.get(key) ?? (key === "a" && csv === null ? "1f1b,4,2,8" : null);
    if (csv === null && named === null) continue;
    const moves = (asked.get(`${key}.moves`) ?? "").split("_").filter(Boolean).map((x) => x.split("-").map(Number));
    const state = { moves };
    try {
      if (csv !== null) Object.assign(state, { file: csv.split("|")[0], csv: await deflate(csv.slice(csv.indexOf("|") + 1), DecompressionStream) });
      else {
        const [name, ...sizes] = named.split(",");
        if (!catalogue.some((x) => x.name === name && !x.refused)) throw new Error(`this page has no schedule ${name}`);
        Object.assign(state, { name, sizes: Object.fromEntries(SIZES.map((x, k) => [x, Number(sizes[k]) || undefined])) });
      }
      const panel = new Panel(state);
      panels.push(panel);
      await panel.load();
    } catch (error) {
      element("said").textContent = `the link is damaged: ${error.message}`;
    }
  }
  if (!panels.length) { panels.push(new Panel({})); await panels[0].load(); }
  drawAll();
  document.body.dataset.ready = "yes";
}

for (const [name, usual] of COSTS) {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { id: `cost-${name}`, type: "number", min: 0, max: 1e6, step: 0.001, value: usual,
    placeholder: { B: "I + W", FB: "F + B" }[name] ?? "" });
  input.addEventListener("input", () => { if (input.validity.valid) drawAll(); });
  label.append(`${name} `, input);
  element("costs").append(label);
}
element("second").addEventListener("click", async () => {
  panels.push(new Panel({ ...structuredClone(panels[0].state), name: "zb_h1", csv: null, moves: [] }));
  await panels[panels.length - 1].load();
  drawAll();
});
element("link").addEventListener("click", async () => {
  const hash = await fragment();
  history.replaceState(null, "", hash);
  await navigator.clipboard?.writeText(location.href).catch(() => {});
  element("said").textContent = "the address of this page is the link";
});
element("absent").textContent = catalogue.filter((x) => x.refused).map((x) => `${x.title} is not here: ${x.refused}`).join("; ");
addEventListener("hashchange", open);
addEventListener("resize", () => panels.forEach((panel) => panel.order && panel.overview()));
open();
window.playground = { panels, costsNow, decode, readCsv, writeCsv, moved, play, memory, waits, faults };
