/* Elements, scales and colours. Text goes through textContent alone: a name is never markup. */

const Draw = {
  /** An HTML element. Attributes with `on` are handlers, `style` is an object, false leaves one out. */
  element(tag, attributes = {}, ...children) {
    return Draw.filled(document.createElement(tag), attributes, children);
  },

  /** The same for SVG. */
  svg(tag, attributes = {}, ...children) {
    return Draw.filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  },

  filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  },

  button(text, onclick, attributes = {}) {
    return Draw.element("button", { type: "button", onclick, ...attributes }, text);
  },

  /** A function from `[low, high]` to `[from, to]`, with `ticks` and `text`. */
  linear([low, high], [from, to]) {
    const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
    scale.ticks = (count = 5) => Draw.steps(low, high, count);
    return scale;
  },

  /** The same on a logarithmic axis. */
  log([low, high], [from, to]) {
    const linear = Draw.linear([Math.log10(low), Math.log10(high)], [from, to]);
    const scale = (value) => linear(Math.log10(value));
    scale.ticks = () => {
      const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => 10 ** (first + at));
    };
    return scale;
  },

  /** Round numbers between two ends. */
  steps(low, high, count) {
    if (!(high > low)) return [low];
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step);
  },

  /** The colour of an amount from 0 to 1: cividis, which colour-blind readers see alike. */
  amount(share) {
    return Draw.between(Draw.cividis, Math.min(Math.max(share, 0), 1));
  },

  /** The colour of a difference from -1 (blue) over 0 (grey) to 1 (orange). */
  difference(value) {
    return Draw.between(Draw.blueOrange, (Math.min(Math.max(value, -1), 1) + 1) / 2);
  },

  /** The colour of a kind of thing, by its number; after eight they repeat. */
  category: (index) => Draw.okabeIto[index % Draw.okabeIto.length],

  /** Black or white, whichever is read better on a colour `rgb(r, g, b)`. */
  ink(colour) {
    const [r, g, b] = colour.match(/\d+/g).map(Number);
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
  },

  between(stops, share) {
    const place = share * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    const mix = (channel) => stops[at][channel] + (place - at) * (stops[at + 1][channel] - stops[at][channel]);
    return `rgb(${[0, 1, 2].map((channel) => Math.round(mix(channel))).join(", ")})`;
  },

  cividis: [
    [0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
    [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56],
  ],
  blueOrange: [[33, 102, 172], [146, 186, 219], [205, 205, 205], [244, 177, 106], [204, 97, 0]],
  okabeIto: [
    "rgb(0, 114, 178)", "rgb(230, 159, 0)", "rgb(0, 158, 115)", "rgb(204, 121, 167)",
    "rgb(86, 180, 233)", "rgb(213, 94, 0)", "rgb(150, 140, 30)", "rgb(120, 120, 120)",
  ],
};
