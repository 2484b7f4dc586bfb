/* Elements and scales. Text goes through textContent alone: a name is never markup. */

const Draw = {
  /** Makes elements by their tag: `html.p({ class: "quiet" }, text, child)`; a child that is false or missing is left out. */
  elements: (space) => new Proxy({}, {
    get: (_, tag) => (first, ...rest) => {
      const node = document.createElementNS(`http://www.w3.org/${space}`, tag), hasAttributes = first?.constructor === Object;
      if (hasAttributes) Draw.set(node, first);
      node.append(...[hasAttributes ? [] : first, ...rest].flat().filter((child) => child || child === 0));
      return node;
    },
  }),

  /** Attributes with `on` are handlers, `style` is an object; one that is false or missing is left out. */
  set(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false && (value ?? null) !== null) node.setAttribute(name, value === true ? "" : value);
    }
  },

  button: (text, onclick, attributes) => html.button({ type: "button", onclick, ...attributes }, text),

  /** A function from values between `low` and `high` to pixels, with `ticks`. */
  linear([low, high], [from, to]) {
    const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
    scale.ticks = (count = 5) => Draw.steps(low, high, count);
    return scale;
  },

  log([low, high], pixels) {
    const ends = [Math.log10(low), Math.log10(high)], linear = Draw.linear(ends, pixels);
    const scale = (value) => linear(Math.log10(value));
    scale.ticks = () => Draw.multiples(ends[0] - 1e-9, ends[1] + 1e-9, 1).map((power) => 10 ** power);
    return scale;
  },

  steps(low, high, count) {
    if (!(high > low)) return [low];
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    return Draw.multiples(low, high, power * ([1, 2, 5].find((each) => each * power >= rough) ?? 10));
  },

  multiples(low, high, step) {
    const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
    return Array.from({ length: Math.max(0, count) }, (_, at) => (first + at) * step);
  },
};

const html = Draw.elements("1999/xhtml");
const svg = Draw.elements("2000/svg");
