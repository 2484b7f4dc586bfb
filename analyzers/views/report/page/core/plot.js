/* An SVG with two axes: scales from values to pixels, ticks, and labels that do not overlap. */

class Plot {
  static letter = 6.2; // pixels of a letter in a label, whose font has 11 px
  static line = 14;

  /** `margin` is [left, right, top, bottom] in pixels around the area of the values. */
  constructor(host, name, height, [left, right, top, bottom]) {
    this.width = Math.max(host.clientWidth, 280);
    Object.assign(this, { left, right: this.width - right, top, bottom: height - bottom, taken: [] });
    const box = `0 0 ${this.width} ${height}`;
    this.root = Draw.svg("svg", { class: "plot", width: this.width, height, viewBox: box, "aria-label": name });
  }

  /** Sets the values at both ends of an axis; on a logarithmic axis both are positive. */
  across(low, high, scale = Draw.linear) {
    this.x = scale([low, high], [this.left, this.right]);
  }

  up(low, high, scale = Draw.linear) {
    this.y = scale([low, high], [this.bottom, this.top]);
  }

  add(tag, attributes, ...children) {
    const child = Draw.svg(tag, attributes, ...children);
    this.root.append(child);
    return child;
  }

  text(x, y, anchor, text, kind = null) {
    return this.add("text", { x, y, "text-anchor": anchor, class: kind }, text);
  }

  /** Ticks below the values, and what they mean at the end of the axis. */
  ticksAcross(values, write, title) {
    for (const value of values) {
      const x = this.x(value);
      this.add("line", { x1: x, x2: x, y1: this.top, y2: this.bottom, class: "grid" });
      this.text(x, this.bottom + Plot.line, "middle", write(value), "faint");
    }
    this.text(this.right, this.bottom + 2.2 * Plot.line, "end", title, "faint");
  }

  /** Ticks on the left, and what they mean above the axis. */
  ticksUp(values, write, title) {
    for (const value of values) {
      const y = this.y(value);
      this.add("line", { x1: this.left, x2: this.right, y1: y, y2: y, class: "grid" });
      this.text(this.left - 5, y + 4, "end", write(value), "faint");
    }
    this.text(2, this.top - 10, "start", title, "faint");
  }

  /** A text that ends before the values, cut to the room there. */
  name(y, text) {
    const room = Math.floor((this.left - 14) / Plot.letter);
    return Draw.svg("text", { x: this.left - 10, y: y + 4, "text-anchor": "end" }, Plot.cut(text, room));
  }

  /** Writes a label beside a point, where it covers no other; whether there was room. */
  label(x, y, distance, text, kind = "") {
    const wide = text.length * Plot.letter;
    const places = [
      [x + distance + 3, y + 4, "start"], [x - distance - 3, y + 4, "end"],
      [x, y - distance - 4, "middle"], [x, y + distance + 12, "middle"],
    ];
    for (const [at, base, anchor] of places) {
      const start = at - { start: 0, middle: wide / 2, end: wide }[anchor];
      const box = [start, base - 11, start + wide, base + 3];
      const inside = start >= this.left && box[2] <= this.width && box[1] >= 0 && box[3] <= this.bottom;
      if (!inside || this.taken.some((other) => Plot.meet(other, box))) continue;
      this.taken.push(box);
      this.text(at, base, anchor, text, `label ${kind}`);
      return true;
    }
    return false;
  }

  /** Keeps labels away from a disc. */
  keepFree(x, y, distance) {
    this.taken.push([x - distance, y - distance, x + distance, y + distance]);
  }

  static meet(one, other) {
    return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
  }

  /** A text of so many letters at most; the end of a name tells more than its middle. */
  static cut(text, letters) {
    if (text.length <= letters) return text;
    const end = Math.floor((letters - 1) / 2);
    return letters > 4 ? `${text.slice(0, letters - 1 - end)}…${text.slice(-end)}` : text.slice(0, Math.max(letters, 0));
  }

  /** What a view shows that has nothing to draw. */
  static empty(sentence) {
    return Draw.element("p", { class: "none" }, sentence);
  }

  static caption(...parts) {
    return Draw.element("p", { class: "caption" }, parts.filter(Boolean).join(" "));
  }
}
