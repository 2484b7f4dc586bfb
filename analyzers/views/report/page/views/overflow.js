/* Which widths the sums of each node need, what overflows at a chosen width, and the accuracy there. */

class Overflow {
  static id = "overflow";
  static title = "Overflow";
  static place = "picture";
  static order = 15;
  static leads = "whatif";
  static most = 40; // nodes drawn at first: those that need the widest accumulators
  static line = 22;
  static widest = 64;
  static signs = { bits_observed: "observed", bits_guaranteed: "guaranteed", bits_datatype: "datatype" };
  static fits = (report) => report.runs.some((run) => run.widths?.rows.length);

  constructor(host, report, state) {
    Object.assign(this, { host, report, state, all: false });
  }

  render(changed) {
    const run = this.report.runs[this.state.run];
    if (!run.widths?.rows.length) {
      return this.host.replaceChildren(Plot.empty("No sums were counted in this run; --accumulator 16 counts those of a quantised model."));
    }
    if (changed.has("run")) this.build(run);
    if (changed.has("run") || changed.has("width")) this.count();
    this.marks.show();
  }

  build(run) {
    this.widths = run.widths;
    this.rows = this.report.rows(this.state.run);
    this.accuracy = this.report.accuracy.find((each) => each.run === this.state.run) ?? null;
    const shown = this.chosen(), hidden = this.widths.rows.length - shown.length;
    const more = () => { this.all = true; this.render(new Set(["run"])); };
    this.host.replaceChildren(
      this.tools(), this.picture(shown),
      Plot.caption(
        "Observed: width that this data needs, orange where it overflows. Guaranteed: safe for any input. Datatype: by the types alone.",
        this.rows.has("bits_each") && "C: width of the node in answer C.",
        !this.accuracy && "Overflow at other widths is that of the same terms.",
      ),
      hidden > 0 ? Draw.button(`Show ${Format.plural(hidden, "more node")}`, more) : "",
    );
  }

  bits(name, entry) {
    const bits = this.rows.value(name, this.widths.rows[entry]);
    return bits > 0 && bits <= Overflow.widest ? bits : null;
  }

  /** Entries of the widths: all, or those that need most bits, in the order of the model. */
  chosen() {
    const every = [...this.widths.rows.keys()];
    if (this.all || every.length <= Overflow.most) return every;
    const widest = every.sort((one, other) => this.bits("bits_observed", other) - this.bits("bits_observed", one));
    return widest.slice(0, Overflow.most).sort((one, other) => one - other);
  }

  /** The chosen width: the user's, else the accumulator's own, else answer B, else one that is safe. */
  width() {
    const { bits } = this.widths, [least, most] = [bits[0], bits.at(-1)];
    const width = this.state.width || this.bits("bits", 0) || this.accuracy?.marks.B || most;
    return Math.min(Math.max(width, least), most);
  }

  tools() {
    const { bits } = this.widths, slide = () => this.state.set({ width: Number(this.slider.value) });
    this.slider = Draw.element("input", { type: "range", min: bits[0], max: bits.at(-1), step: 1, oninput: slide });
    this.output = Draw.element("output");
    this.words = Draw.element("p", { class: "words", "aria-live": "polite" });
    const label = Draw.element("label", {}, "Width ", this.slider, this.output);
    return Draw.element("div", {}, Draw.element("div", { class: "tools" }, label), this.words);
  }

  picture(shown) {
    const top = (this.accuracy ? 130 : 0) + 36, isNarrow = this.host.clientWidth < 480;
    const plot = new Plot(this.host, "Widths of the sums of each node", top + shown.length * Overflow.line + 40, [isNarrow ? 96 : 150, 58, top, 40]);
    const [low, high] = this.ends(shown), step = high - low > 24 ? 4 : high - low > 12 ? 2 : 1;
    plot.across(low - 0.5, high + 0.5);
    const ticks = Array.from({ length: high - low + 1 }, (_, at) => low + at).filter((bits) => bits % step === 0);
    plot.ticksAcross(ticks, String, "bits of the accumulator");
    plot.text(plot.width - 4, top - 10, "end", "overflow", "faint");
    this.plot = plot;
    this.cursor = plot.add("line", { class: "cursor", y1: this.accuracy ? 20 : top - 4, y2: plot.bottom });
    if (this.accuracy) this.curve(top - 44);
    this.lines = shown.map((entry, at) => this.node(entry, top + (at + 0.5) * Overflow.line));
    this.key(top - 10);
    this.marks = new Marks(plot.root, this.state);
    this.marks.set(this.lines);
    return plot.root;
  }

  /** The signs with their names, in a line above the nodes. */
  key(y) {
    let x = this.plot.left;
    for (const [name, text] of Object.entries(Overflow.signs)) {
      this.plot.root.append(this.sign(name, x + 5, y - 4));
      this.plot.text(x + 13, y, "start", text, "faint");
      x += 24 + text.length * Plot.letter;
    }
  }

  sign(name, x, y) {
    if (name === "bits_datatype") return Draw.svg("line", { class: "typed", x1: x, x2: x, y1: y - 6, y2: y + 6 });
    return Draw.svg("circle", { class: name === "bits_observed" ? "seen" : "sure", cx: x, cy: y, r: 4.5 });
  }

  /** The widths on the axis: all that a node needs, and those of the accuracy. */
  ends(shown) {
    const names = [...Object.keys(Overflow.signs), "bits", "bits_each"];
    const needed = names.flatMap((name) => shown.map((entry) => this.bits(name, entry))).filter(Boolean);
    const every = [...needed, ...(this.accuracy?.bits ?? []), this.width()];
    return [Math.max(Math.min(...every) - 2, this.widths.bits[0]), Math.max(...every, this.widths.bits.at(-1)) + 1];
  }

  /** The score at every width, above the nodes, on the same axis. */
  curve(bottom) {
    const { bits, score, metric, unit, marks } = this.accuracy, plot = this.plot;
    const known = bits.map((width, at) => [plot.x(width), score[at]]).filter(([, value]) => value !== null);
    const values = known.map(([, value]) => value);
    const most = unit === "%" ? 100 : Math.max(...values) || 1;
    const up = Draw.linear([Math.min(0, ...values), most], [bottom, 28]);
    plot.text(4, 16, "start", `${metric} ${unit}`, "faint");
    for (const value of up.ticks(3)) {
      plot.add("line", { class: "grid", x1: plot.left, x2: plot.right, y1: up(value), y2: up(value) });
      plot.text(plot.left - 6, up(value) + 4, "end", Format.count(value), "faint");
    }
    plot.add("polyline", { class: "curve", points: known.map(([x, value]) => `${x},${up(value)}`).join(" ") });
    for (const [x, value] of known) plot.add("circle", { class: "score", cx: x, cy: up(value), r: 2.5 });
    for (const [letter, width] of Object.entries(marks)) {
      const others = Object.keys(marks).filter((other) => other < letter && marks[other] === width).length;
      plot.text(plot.x(width) + 10 * others, 16, "middle", letter, "strong");
    }
  }

  node(entry, y) {
    const plot = this.plot, [seen, sure, typed] = Object.keys(Overflow.signs).map((name) => this.bits(name, entry));
    const each = this.bits("bits_each", entry), title = this.rows.title(this.widths.rows[entry]);
    const told = [`${seen} bits observed`, sure && `${sure} guaranteed`, typed && `${typed} by its types`, each && `${each} in answer C`];
    const known = Object.keys(Overflow.signs).filter((name) => this.bits(name, entry)).reverse();
    const places = known.map((name) => plot.x(this.bits(name, entry)));
    const share = Draw.svg("text", { class: "share", x: plot.width - 4, y: y + 4, "text-anchor": "end" });
    const parts = [
      Draw.svg("rect", { class: "hit", x: 0, y: y - Overflow.line / 2, width: plot.width, height: Overflow.line, rx: 3 }),
      plot.name(y, title),
      Draw.svg("line", { class: "range", x1: Math.min(...places), x2: Math.max(...places), y1: y, y2: y }),
      known.map((name, at) => this.sign(name, places[at], y)),
      each && Draw.svg("text", { class: "answer", x: plot.x(each), y: y - 4, "text-anchor": "middle" }, "C"),
      share,
    ];
    const element = plot.add("g", { class: "node" }, parts.flat());
    return { element, rows: [this.widths.rows[entry]], label: `${title}: ${told.filter(Boolean).join(", ")}`, entry, share };
  }

  /** Tells what overflows at the chosen width. */
  count() {
    const width = this.width(), at = this.widths.bits.indexOf(width);
    const { overflow, persistent, outputs } = this.widths;
    this.slider.value = width;
    this.output.value = `${width} bits`;
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.plot.x(width));
    for (const line of this.lines) {
      const count = overflow[line.entry][at];
      line.element.classList.toggle("over", count > 0);
      line.share.textContent = count ? this.share(count / outputs[line.entry]) : "";
    }
    const sum = (counts) => Format.grouped(String(counts.reduce((total, count) => total + count, 0)));
    const over = overflow.map((counts) => counts[at]), lasting = persistent.map((counts) => counts[at]);
    const nodes = over.filter((count) => count > 0).length, short = over.map((count, entry) => count - lasting[entry]);
    this.words.textContent = nodes
      ? `At ${width} bits, ${nodes} of ${Format.plural(over.length, "node")} overflow, in ${sum(over)} of ${sum(outputs)} sums: ${sum(short)} transient, ${sum(lasting)} persistent.`
      : `Nothing overflows at ${width} bits on this data.`;
    if (this.accuracy) this.words.append(this.scored(width));
  }

  share(value) {
    return value < 0.001 ? "<0.1%" : Format.percent(value);
  }

  scored(width) {
    const { bits, score, energy, energy_unit, metric, unit } = this.accuracy, at = bits.indexOf(width);
    if (at < 0) return ` The sweep did not try ${width} bits.`;
    return ` ${metric} is ${Format.general(score[at], 4)} ${unit}, with ${Format.si(energy[at])} ${energy_unit} of energy per sample.`.replaceAll("  ", " ");
  }
}

Views.add(Overflow);
