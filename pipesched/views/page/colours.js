// Colour by kind, from a palette that the colour-blind can tell apart; later chunks of a rank are paler.

const SHADES = Math.min(chunks, 8);

// chunk: from 0 to SHADES - 1, fractions allowed: a mean of chunks has a colour too.
function shadeOf(kindIndex, chunk) {
  const fill = meta.fill[KINDS[kindIndex]], whole = [1, 3, 5].map((i) => parseInt(fill.slice(i, i + 2), 16));
  const part = SHADES > 1 ? (meta.lighten * chunk) / (SHADES - 1) : 0;
  return whole.map((x) => Math.round(x + (255 - x) * part));
}

// Black or white, whichever has more contrast (relative luminance, WCAG 2.2).
function inkOn(colour) {
  const [r, g, b] = colour.map((x) => (x <= 10 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) ? "#000" : "#fff";
}

// style[i] names the colour of an operation: kind * SHADES + shade.
const style = new Uint8Array(count);
for (let r = 0; r < ranks; r++)
  for (let i = meta.start[r]; i < meta.start[r + 1]; i++)
    style[i] = kind[i] * SHADES + Math.min(chunkOf(r, i), SHADES - 1);

const rgb = Array.from({ length: KINDS.length * SHADES }, (_, s) => shadeOf(Math.floor(s / SHADES), s % SHADES));
const css = rgb.map(([r, g, b]) => `rgb(${r},${g},${b})`);
const inks = rgb.map(inkOn);

let theme = {};
function readTheme() {
  const all = getComputedStyle(document.body);
  const probe = document.createElement("span");
  document.body.append(probe);
  for (const name of ["paper", "ink", "quiet", "line", "row", "path", "alarm"]) {
    probe.style.color = `var(--${name})`;
    theme[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  theme.font = all.fontFamily;
  theme.dark = channels(theme.paper)[0] < 128;
}
const channels = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);

// Time spent on each kind before each operation of a rank, and that time multiplied by the shade: differences are the
// exact shares, and the mean shades, of any span of time. The parts of a pair run at once, and count half each.
const used = [...new Set([0, 1, 3, 2, ...KINDS.keys()])].filter((k) => kind.includes(k)); // backward next to forward, the weights last
function sumOf(k, weigh) {
  const sums = new Float64Array(count + 1);
  for (let i = 0; i < count; i++)
    sums[i + 1] = sums[i] + (kind[i] === k ? (end[i] - begin[i]) * weigh(i) * (partner(i) >= 0 ? 0.5 : 1) : 0);
  return sums;
}
const spent = used.map((k) => sumOf(k, () => 1));
const shaded = SHADES > 1 ? used.map((k) => sumOf(k, (i) => style[i] % SHADES)) : [];

const word = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // a pixel as one number
const TINTS = 8; // steps from shade to shade
const tints = used.map((k) => Uint32Array.from(
  { length: (SHADES - 1) * TINTS + 1 }, (_, step) => word(shadeOf(k, step / TINTS))));
