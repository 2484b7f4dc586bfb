/* An SVG with two axes: scales from values to pixels, ticks, and labels that do not overlap. */

class Plot {
  static letter = 6.7; // pixels of a letter in a label, whose font has 11 px

  /** `margin` is [left, right, top, bottom] in pixels around the area of the values. */
  constructor(host, name, height, [left, right, top, bottom]) {
    this.width = Math.max(host.clientWidth, 280);
    Object.assign(this, { left, right: this.width - right, top, bottom: height - bottom, taken: [] });
    this.root = svg.svg({ class: "plot", width: this.width, height, "aria-label": name });
  }

  /** The values at both ends of an axis; on a logarithmic axis both are positive. */
  across(low, high, scale = Draw.linear) {
    this.x = scale([low, high], [this.left, this.right]);
  }

  up(low, high, scale = Draw.linear) {
    this.y = scale([low, high], [this.bottom, this.top]);
  }

  add(...children) {
    this.root.append(...children);
    return children[0];
  }

  static line = (kind, x1, y1, x2, y2) => svg.line({ class: kind, x1, y1, x2, y2 });
  static rect = (kind, x, y, width, height, more) => svg.rect({ class: kind, x, y, width, height, ...more });
  static circle = (kind, cx, cy, r = 4.5) => svg.circle({ class: kind, cx, cy, r });
  static text = (kind, x, y, anchor, text, more) => svg.text({ class: kind, x, y, "text-anchor": anchor, ...more }, text);

  ticksAcross(values, write, title) {
    for (const value of values) {
      const x = this.x(value);
      this.add(Plot.line("grid", x, this.top, x, this.bottom), Plot.text("faint", x, this.bottom + 14, "middle", write(value)));
    }
    this.add(Plot.text("faint", this.right, this.bottom + 30, "end", title));
  }

  ticksUp(values, write, title, y = this.y) {
    for (const value of values) {
      this.add(Plot.line("grid", this.left, y(value), this.right, y(value)), Plot.text("faint", this.left - 5, y(value) + 4, "end", write(value)));
    }
    this.add(Plot.text("faint", 2, this.top - 12, "start", title));
  }

  /** A line of a list: where it can be hit, and a name before the values. */
  row(y, height, name) {
    const text = Plot.cut(name, (this.left - 14) / Plot.letter);
    return [Plot.rect("hit", 0, y - height / 2, this.width, height, { rx: 3 }), Plot.text(null, this.left - 10, y + 4, "end", text)];
  }

  label(x, y, distance, text) {
    const wide = text.length * Plot.letter, before = { start: 0, middle: wide / 2, end: wide };
    const places = [
      [x + distance + 3, y + 4, "start"], [x - distance - 3, y + 4, "end"],
      [x, y - distance - 4, "middle"], [x, y + distance + 12, "middle"],
    ].map(([at, base, anchor]) => ({ at, base, anchor, box: [at - before[anchor], base - 11, at - before[anchor] + wide, base + 3] }));
    const isInside = ([left, top, right, bottom]) => left >= this.left && right <= this.width && top >= 0 && bottom <= this.bottom;
    const free = places.find(({ box }) => isInside(box) && !this.taken.some((other) => Plot.meet(other, box)));
    if (!free) return;
    this.taken.push(free.box);
    this.add(Plot.text("label", free.at, free.base, free.anchor, text));
  }

  keepFree(x, y, distance) {
    this.taken.push([x - distance, y - distance, x + distance, y + distance]);
  }

  static meet = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];

  /** A text of so many letters at most; the end of a name tells more than its middle. */
  static cut(text, letters) {
    const most = Math.max(Math.floor(letters), 0), end = Math.floor((most - 1) / 2);
    if (text.length <= most) return text;
    return most > 4 ? `${text.slice(0, most - 1 - end)}…${text.slice(-end)}` : text.slice(0, most);
  }
}
