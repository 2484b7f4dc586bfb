/* Two runs, A and B: the ratio of each layer's times with its interval; what may be noise is grey. */

class Ratios {
  static id = "ratios";
  static title = "A and B";
  static place = "picture";
  static order = 5;
  static leads = "compare";
  static most = 60; // layers drawn at first
  static line = 22;
  static ticks = [0.001, 0.01, 0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 5, 10, 100, 1000];
  static fits = (report) => report.pairs.length > 0;

  constructor(host, report, state) {
    Object.assign(this, { host, report, state, all: false });
  }

  render(changed) {
    if (!changed.has("run")) return this.marks?.show();
    const pair = this.report.pairs.find((each) => each.b === this.state.run) ?? this.report.pairs[0];
    this.side = this.state.run === pair.b ? "rows_b" : "rows_a";
    [this.a, this.b] = [pair.a, pair.b].map((run) => this.report.runs[run].letter);
    const layers = this.layers(pair), shown = this.all ? layers : layers.slice(0, Ratios.most);
    const plot = this.frame(shown);
    this.marks = new Marks(plot.root, this.state);
    this.marks.set(shown.map((layer, at) => this.layer(plot, layer, plot.top + (at + 0.5) * Ratios.line)));
    const hidden = layers.length - shown.length, more = () => { this.all = true; this.render(new Set(["run"])); };
    this.host.replaceChildren(
      Draw.element("p", { class: "words" }, this.sentence(layers)), plot.root,
      Plot.caption("Line: interval of the ratio. Grey: the difference may be noise. The largest change is first."),
      hidden > 0 ? Draw.button(`Show ${Format.plural(hidden, "more layer")}`, more) : "",
    );
  }

  /** The layers with a time on either side, as Python sorted them. */
  layers(pair) {
    const time = (run, rows) => Groups.folds.sum(rows, this.report.rows(run).column("time_us") ?? []);
    const every = pair.names.map((name, at) => ({
      name, rows_a: pair.rows_a[at], rows_b: pair.rows_b[at], ratio: pair.ratio[at], low: pair.low[at], high: pair.high[at],
      isNoise: !pair.significant[at], a: time(pair.a, pair.rows_a[at]), b: time(pair.b, pair.rows_b[at]),
    }));
    return every.filter((layer) => layer.a || layer.b);
  }

  sentence(layers) {
    const told = layers.filter((layer) => !layer.isNoise), slower = told.filter((layer) => layer.ratio > 1).length;
    if (!told.length) return "No layer differs by more than noise.";
    return `${told.length} of ${Format.plural(layers.length, "layer")} differ by more than noise: in ${this.b}, ${slower} are slower and ${told.length - slower} faster.`;
  }

  /** A logarithmic axis of ratios around 1, equally long on both sides. */
  frame(shown) {
    const isNarrow = this.host.clientWidth < 480;
    const plot = new Plot(this.host, "Ratio of the times of each layer", 76 + shown.length * Ratios.line, [isNarrow ? 90 : 150, isNarrow ? 96 : 130, 36, 40]);
    const reach = shown.flatMap(({ ratio }) => [ratio, 1 / ratio]).filter((ratio) => ratio > 0 && Number.isFinite(ratio));
    this.most = Math.min(Math.max(1.25, ...reach) * 1.2, 1000);
    plot.across(1 / this.most, this.most, Draw.log);
    plot.ticksAcross(this.ticks(plot), (tick) => `${tick}×`, `time of ${this.b} ÷ time of ${this.a}`);
    plot.add("line", { class: "even", x1: plot.x(1), x2: plot.x(1), y1: plot.top, y2: plot.bottom });
    plot.text(plot.x(1) - 8, plot.top - 12, "end", `← ${this.b} faster`, "faster");
    plot.text(plot.x(1) + 8, plot.top - 12, "start", `${this.b} slower →`, "slower");
    plot.text(plot.width - 4, plot.top - 12, "end", "µs", "faint");
    return plot;
  }

  /** Those of the round ratios that are on the axis and have room for their numbers. */
  ticks(plot) {
    const inside = Ratios.ticks.filter((tick) => plot.x(tick) > plot.left && plot.x(tick) < plot.right);
    const taken = [];
    for (const tick of inside.sort((one, other) => Ratios.rounder(one) - Ratios.rounder(other))) {
      if (taken.every((other) => Math.abs(plot.x(other) - plot.x(tick)) > 36)) taken.push(tick);
    }
    return taken;
  }

  /** How far down the list of ticks one comes that is as round. */
  static rounder = (tick) => [1, 2, 0.5, 10, 0.1, 5, 0.2].indexOf(tick) + 1 || 99;

  layer(plot, layer, y) {
    const { name, ratio, low, high } = layer, kind = layer.isNoise ? "noise" : ratio > 1 ? "slower" : "faster";
    const [a, b] = [layer.a, layer.b].map((time) => (time ? Format.micros(time) : "–"));
    const x = (value) => Math.min(Math.max(plot.x(value), plot.left), plot.right);
    const element = plot.add("g", { class: `layer ${kind}` },
      Draw.svg("rect", { class: "hit", x: 0, y: y - Ratios.line / 2, width: plot.width, height: Ratios.line, rx: 3 }),
      plot.name(y, name),
      low > 0 && high > 0 ? Draw.svg("line", { class: "interval", x1: x(low), x2: x(high), y1: y, y2: y }) : null,
      ratio > 0 ? Draw.svg("circle", { cx: x(ratio), cy: y, r: 4.5 }) : null,
      Draw.svg("text", { x: plot.width - 4, y: y + 4, "text-anchor": "end" }, `${a} → ${b}`));
    const told = ratio > 0 ? `${Format.general(ratio, 3)} times, ${layer.isNoise ? "may be noise" : kind}` : "in one run alone";
    return { element, rows: layer[this.side], label: `${name}: ${a} µs in ${this.a}, ${b} µs in ${this.b}, ${told}` };
  }
}

Views.add(Ratios);
