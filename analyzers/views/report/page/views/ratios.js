/* Two runs, A and B: the ratio of each layer's times with its interval; what may be noise is grey. */

class Ratios extends Chart {
  static id = "ratios";
  static title = "A and B";
  static order = 5;
  static line = 22;
  static farthest = 1000; // a ratio beyond it is drawn at the end of the axis
  static ticks = [1, 2, 0.5, 10, 0.1, 5, 0.2, 1.25, 0.8, 100, 0.01, 1.1, 0.9, 1000, 0.001]; // the roundest first
  static fits = (report) => report.pairs.length > 0;

  draw() {
    const pair = this.report.pairs.find((each) => each.b === this.state.run) ?? this.report.pairs[0];
    this.side = this.state.run === pair.b ? "rows_b" : "rows_a";
    [this.a, this.b] = [pair.a, pair.b].map((run) => this.report.runs[run].letter);
    const layers = this.layers(pair), shown = this.first(layers), plot = this.frame(shown);
    this.mark(plot.root, shown.map((layer, at) => this.layer(plot, layer, plot.top + (at + 0.5) * Ratios.line)));
    return [
      html.p({ class: "words" }, this.sentence(layers)), plot.root,
      Chart.caption("Line: interval of the ratio. Grey: the difference may be noise. The largest change is first."),
      this.more(layers, "layer"),
    ];
  }

  /** The layers with a time on either side, as Python sorted them. */
  layers(pair) {
    const time = (run, rows) => Groups.folds.sum(rows, this.report.rows(run).column("time_us") ?? []);
    const every = pair.names.map((name, at) => ({
      name, rows: pair[this.side][at], ratio: pair.ratio[at], low: pair.low[at], high: pair.high[at],
      kind: !pair.significant[at] ? "noise" : pair.ratio[at] > 1 ? "slower" : "faster",
      times: [time(pair.a, pair.rows_a[at]), time(pair.b, pair.rows_b[at])],
    }));
    return every.filter(({ times }) => times.some(Boolean));
  }

  sentence(layers) {
    const [slower, faster] = ["slower", "faster"].map((kind) => layers.filter((layer) => layer.kind === kind).length);
    if (!slower && !faster) return "No layer differs by more than noise.";
    return `${slower + faster} of ${Format.plural(layers.length, "layer")} differ by more than noise; slower in ${this.b}: ${slower}, faster: ${faster}.`;
  }

  /** A logarithmic axis of ratios around 1, equally long on both sides. */
  frame(shown) {
    const margin = this.host.clientWidth < 480 ? [90, 96, 36, 40] : [150, 130, 36, 40];
    const plot = new Plot(this.host, "Ratio of the times of each layer", 76 + shown.length * Ratios.line, margin);
    const reach = shown.flatMap(({ ratio }) => (ratio > 0 ? [ratio, 1 / ratio] : []));
    const most = Math.min(Math.max(1.25, ...reach) * 1.2, this.constructor.farthest), y = plot.top - 12;
    plot.across(1 / most, most, Draw.log);
    const { axis, unit, low, high } = this.words();
    plot.ticksAcross(this.ticks(plot), (tick) => `${tick}×`, axis);
    const x = plot.x(1);
    plot.add(
      Plot.line("even", x, plot.top, x, plot.bottom), Plot.text("faint", plot.width - 4, y, "end", unit),
      Plot.text(low[0], x - 8, y, "end", `← ${low[1]}`), Plot.text(high[0], x + 8, y, "start", `${high[1]} →`),
    );
    return plot;
  }

  /** What the axis, what stands after the lines, and both directions are called. */
  words() {
    return { axis: `time of ${this.b} ÷ time of ${this.a}`, unit: Format.time[1], low: ["faster", `${this.b} faster`], high: ["slower", `${this.b} slower`] };
  }

  ticks(plot) {
    const taken = [];
    for (const tick of Ratios.ticks) {
      const x = plot.x(tick), isInside = x > plot.left && x < plot.right;
      if (isInside && taken.every((other) => Math.abs(plot.x(other) - x) > 36)) taken.push(tick);
    }
    return taken;
  }

  layer(plot, layer, y) {
    const { name, kind, ratio, low, high } = layer, { after, label } = this.told(layer);
    const x = (value) => Math.min(Math.max(plot.x(value), plot.left), plot.right);
    const element = svg.g({ class: `layer ${kind}` }, plot.row(y, Ratios.line, name),
      low > 0 && high > 0 && Plot.line("interval", x(low), y, x(high), y),
      ratio > 0 && Plot.circle(null, x(ratio), y),
      Plot.text(null, plot.width - 4, y + 4, "end", after));
    return { element: plot.add(element), rows: layer.rows, label };
  }

  /** What stands after the line of a layer, and what a reader of the screen hears. */
  told({ name, kind, ratio, times }) {
    const [a, b] = times.map((time) => (time ? Format.micros(time) : "–"));
    const told = ratio > 0 ? `${Format.general(ratio, 3)} times, ${kind === "noise" ? "may be noise" : kind}` : "in one run alone";
    return { after: `${a} → ${b}`, label: `${name}: ${a} ${Format.time[1]} in ${this.a}, ${b} ${Format.time[1]} in ${this.b}, ${told}` };
  }
}

Views.add(Ratios);
