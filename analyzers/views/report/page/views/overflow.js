/* Which widths the sums of each node need, what overflows at a chosen width, and the accuracy there. */

class Overflow extends Chart {
  static id = "overflow";
  static title = "Overflow";
  static order = 15;
  static line = 22;
  static widest = 64;
  static signs = { bits_observed: "observed", bits_guaranteed: "guaranteed", bits_datatype: "datatype" };
  static last = "overflow"; // the head of what stands after the lines
  static missing = "No sums were counted in this run; --accumulator 16 counts those of a quantised model.";
  static has = (run) => Boolean(run.widths);

  draw() {
    this.widths = this.run.widths;
    this.scores();
    const every = [...this.widths.rows.keys()];
    const widest = [...every].sort((one, other) => this.bits("bits_observed", other) - this.bits("bits_observed", one));
    return [
      ...this.tools(), this.picture(this.first(widest).sort((one, other) => one - other)),
      Chart.caption(
        "Observed: width that this data needs, orange where it overflows. Guaranteed: safe for any input. Datatype: by the types alone.",
        this.rows.has("bits_each") && "C: width of the node in answer C.",
        !this.accuracy && "Overflow at other widths is that of the same terms.",
      ),
      this.more(every, "node"),
    ];
  }

  /** The scores by width of this run, of which the first tells the widths. */
  scores() {
    this.curves = this.report.accuracy.filter((each) => each.run === this.state.run);
    [this.accuracy] = this.curves;
  }

  update() {
    if (this.marks) this.count();
    super.update();
  }

  bits(name, entry) {
    const bits = this.rows.value(name, this.widths.rows[entry]);
    return bits > 0 && bits <= Overflow.widest ? bits : null;
  }

  /** The chosen width: the user's, else the accumulator's own, else answer B, else one that is safe. */
  width() {
    const { bits } = this.widths;
    const width = this.state.width || this.bits("bits", 0) || this.accuracy?.marks.B || Infinity;
    return Math.min(Math.max(width, bits[0]), bits.at(-1));
  }

  tools() {
    const { bits } = this.widths, slide = () => this.state.set({ width: Number(this.slider.value) });
    this.slider = html.input({ type: "range", min: bits[0], max: bits.at(-1), oninput: slide });
    this.output = html.output();
    this.words = html.p({ class: "words", "aria-live": "polite" });
    return [html.div({ class: "tools" }, html.label("Width ", this.slider, this.output)), this.words];
  }

  picture(shown) {
    const top = this.accuracy ? 166 : 36, left = this.host.clientWidth < 480 ? 96 : 150;
    const plot = (this.plot = new Plot(this.host, "Widths of the sums of each node", top + shown.length * Overflow.line + 40, [left, 58, top, 40]));
    const [low, high] = this.ends(shown), step = Math.ceil(((high - low) * 26) / (plot.right - left));
    plot.across(low - 0.5, high + 0.5);
    plot.ticksAcross(Array.from({ length: high - low + 1 }, (_, at) => low + at).filter((bits) => bits % step === 0), String, "bits of the accumulator");
    this.cursor = plot.add(Plot.line("cursor", 0, this.accuracy ? 20 : top - 4, 0, plot.bottom));
    if (this.accuracy) this.curve(top - 44);
    this.key(top - 10);
    this.lines = shown.map((entry, at) => this.node(entry, top + (at + 0.5) * Overflow.line));
    return this.mark(plot.root, this.lines);
  }

  key(y) {
    let x = this.plot.left < 150 ? 0 : this.plot.left;
    for (const [name, text] of Object.entries(this.constructor.signs)) {
      this.plot.add(this.sign(name, x + 5, y - 4), Plot.text("faint label", x + 13, y, "start", text));
      x += 24 + text.length * Plot.letter;
    }
    this.plot.add(Plot.text("faint", this.plot.width - 4, y, "end", this.constructor.last));
  }

  sign(name, x, y) {
    return name === "bits_datatype" ? Plot.line("typed", x, y - 6, x, y + 6) : Plot.circle(Object.keys(this.constructor.signs)[0] === name ? "seen" : "sure", x, y);
  }

  /** The widths on the axis: all that a node needs, and those of the accuracy. */
  ends(shown) {
    const needed = [...Object.keys(this.constructor.signs), "bits", "bits_each"].flatMap((name) => shown.map((entry) => this.bits(name, entry)));
    const every = [...needed.filter(Boolean), ...(this.accuracy?.bits ?? []), this.width()];
    const least = Math.min(...every), { bits } = this.widths; // answer C may go below the sweep
    return [Math.min(least, Math.max(least - 2, bits[0])), Math.max(...every, bits.at(-1)) + 1];
  }

  /** The score at every width, above the nodes, on the same axis. */
  curve(bottom) {
    const { bits, metric, unit, marks } = this.accuracy, plot = this.plot, every = this.curves.flatMap(({ score }) => score);
    const most = unit === "%" ? 100 : Math.max(...every) || 1, up = Draw.linear([Math.min(0, ...every), most], [bottom, 28]);
    plot.ticksUp(up.ticks(3), Format.count, "", up);
    plot.add(Plot.text("faint", 4, 16, "start", `${metric} ${unit}`));
    for (const [at, { score, name }] of this.curves.entries()) {
      const points = bits.map((width, each) => [plot.x(width), up(score[each])]), [x, y] = points.at(-1);
      plot.add(svg.polyline({ class: at ? "curve other" : "curve", points: points.join(" ") }));
      plot.add(...points.map(([left, top]) => Plot.circle("score", left, top, 2.5)), Plot.text("faint", x + 8, y + 4, "start", name));
    }
    const letters = Object.keys(marks), widths = Columns.positions(Object.values(marks));
    for (const [width, named] of widths) plot.add(Plot.text("strong", plot.x(width), 16, "middle", named.map((at) => letters[at]).join(" ")));
  }

  node(entry, y) {
    const row = this.widths.rows[entry], title = this.rows.title(row), each = this.bits("bits_each", entry);
    const known = Object.keys(this.constructor.signs).filter((name) => this.bits(name, entry)).reverse();
    const places = known.map((name) => this.plot.x(this.bits(name, entry)));
    const share = Plot.text("share", this.plot.width - 4, y + 4, "end", "");
    const element = svg.g({ class: "node" }, this.plot.row(y, Overflow.line, title),
      Plot.line("range", Math.min(...places), y, Math.max(...places), y), known.map((name, at) => this.sign(name, places[at], y)),
      each && Plot.text("answer", this.plot.x(each), y - 4, "middle", "C"), share);
    const told = known.map((name) => `${this.bits(name, entry)} ${this.constructor.signs[name]}`).join(", ");
    return { element: this.plot.add(element), rows: [row], label: `${title}, bits: ${told}`, entry, share };
  }

  count() {
    const width = this.width(), at = this.widths.bits.indexOf(width), { overflow, persistent, outputs } = this.widths;
    this.slider.value = width;
    this.output.value = `${width} bits`;
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.plot.x(width));
    for (const { entry, element, share } of this.lines) {
      const part = overflow[entry][at] / outputs[entry];
      element.classList.toggle("over", part > 0);
      share.textContent = part > 0 ? (part < 0.001 ? "<0.1%" : Format.percent(part)) : "";
    }
    const sum = (counts) => Format.grouped(counts.reduce((total, count) => total + count, 0));
    const over = overflow.map((counts) => counts[at]), lasting = persistent.map((counts) => counts[at]), nodes = over.filter(Boolean).length;
    const kinds = `${sum(over.map((count, entry) => count - lasting[entry]))} transient, ${sum(lasting)} persistent`;
    this.words.textContent = nodes
      ? `At ${width} bits, ${nodes} of ${Format.plural(over.length, "node")} overflow, in ${sum(over)} of ${sum(outputs)} sums: ${kinds}.`
      : `Nothing overflows at ${width} bits on this data.`;
    if (this.accuracy) this.words.append(this.scored(width));
  }

  scored(width) {
    const { bits, score, energy, energy_unit, metric, unit } = this.accuracy, at = bits.indexOf(width);
    return ` ${metric} is ${Format.general(score[at], 4)} ${unit}, with ${Format.si(energy[at])} ${energy_unit} of energy per sample.`;
  }
}

Views.add(Overflow);
