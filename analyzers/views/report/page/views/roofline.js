/* The rate of each kernel over its intensity, below the peaks of the machine. Both axes are logarithmic. */

class Roofline {
  static id = "roofline";
  static title = "Roofline";
  static place = "picture";
  static order = 20;
  static most = 2000; // points; the longest kernels come first
  static named = 8;
  static fits = (report) => report.runs.some((run) => run.roofline?.rows.length);

  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  render(changed) {
    if (!changed.has("run")) return this.marks?.show();
    const run = this.report.runs[this.state.run];
    if (!run.roofline?.rows.length) {
      return this.host.replaceChildren(Plot.empty("This run has no times, or no counts of its work; tracer profile measures both."));
    }
    this.rows = this.report.rows(this.state.run);
    const plot = new Plot(this.host, "Roofline of the kernels", 400, [46, 14, 28, 40]);
    const points = this.points(run.roofline);
    this.frame(plot, points, run.roofs);
    if (run.roofs) this.ceilings(plot, run.roofs, run.roofline.integer);
    this.marks = new Marks(plot.root, this.state);
    this.marks.set(points.map((point) => this.point(plot, point)));
    this.labels(plot, points.slice(0, Roofline.named));
    const others = run.roofline.rows.length - points.length;
    this.host.replaceChildren(plot.root, Plot.caption(
      "Area: share of the time. Blue and round: bound by arithmetic. Orange and square: bound by memory. Hollow: uncertain time.",
      run.roofline.hidden && `${run.roofline.hidden}.`,
      others > 0 && `${Format.plural(others, "shorter kernel")} not drawn.`,
    ));
  }

  points({ rows, x, y, sure }) {
    return rows.slice(0, Roofline.most).map((row, at) => {
      const share = this.rows.value("time_share", row) ?? 0;
      return { row, x: x[at], y: y[at], sure: sure[at], share, radius: 2.5 + 26 * Math.sqrt(share || 0) };
    });
  }

  /** The ends of the axes leave room for the points and for the names of the roofs. */
  frame(plot, points, roofs) {
    const xs = points.map((point) => point.x), ys = points.map((point) => point.y);
    const top = roofs ? Math.max(roofs.float32, roofs.int8 ?? 0) / 1e9 : Math.max(...ys);
    const ridge = roofs ? (1e9 * top) / roofs.memory : null;
    plot.low = Math.min(...xs.map((x) => x / 3), ridge ? ridge / 30 : Infinity);
    plot.high = Math.max(...xs.map((x) => x * 3), ridge ? ridge * 10 : 0);
    const least = Math.min(...ys.map((y) => y / 2), ridge ? (plot.low * roofs.memory) / 1e9 : Infinity);
    plot.across(plot.low, plot.high, Draw.log);
    plot.up(least, 2.2 * Math.max(top, ...ys), Draw.log);
    plot.ticksAcross(plot.x.ticks(), Format.count, "intensity, flop/byte");
    plot.ticksUp(plot.y.ticks(), Format.count, "GFLOP/s");
  }

  ceilings(plot, roofs, integer) {
    const slope = roofs.memory / 1e9;
    const ceilings = [["float32", roofs.float32 / 1e9, "FLOP/s"], ...(integer && roofs.int8 ? [["int8", roofs.int8 / 1e9, "OP/s"]] : [])];
    const top = Math.max(...ceilings.map(([, rate]) => rate));
    for (const [name, rate, unit] of ceilings) {
      const y = plot.y(rate);
      plot.add("line", { class: "roof", x1: plot.x(rate / slope), x2: plot.right, y1: y, y2: y });
      const text = `${name} ${Format.si(rate * 1e9)}${unit}`;
      plot.text(plot.right, y - 5, "end", text);
      plot.taken.push([plot.right - text.length * Plot.letter, y - 16, plot.right, y]);
    }
    const [x1, y1, x2, y2] = [plot.left, plot.y(plot.low * slope), plot.x(top / slope), plot.y(top)];
    plot.add("line", { class: "roof", x1, y1, x2, y2 });
    const turn = Math.atan2(y2 - y1, x2 - x1), x = (x1 + x2) / 2;
    const y = (y1 + y2) / 2 - 6 / Math.cos(turn);
    const attributes = { transform: `translate(${x},${y}) rotate(${(turn * 180) / Math.PI})`, "text-anchor": "middle" };
    const text = `memory ${Format.si(roofs.memory)}B/s`;
    plot.add("text", attributes, text);
    for (let step = -text.length / 2; step <= text.length / 2; step += 2) {
      plot.keepFree(x + step * Plot.letter * Math.cos(turn), y + step * Plot.letter * Math.sin(turn) - 4, 8);
    }
  }

  point(plot, point) {
    const bound = this.rows.value("bound", point.row), x = plot.x(point.x), y = plot.y(point.y), r = point.radius;
    const look = { class: `${bound ?? "unknown"} ${point.sure ? "" : "unsure"}` };
    const shape = bound === "memory"
      ? Draw.svg("rect", { ...look, x: x - 0.88 * r, y: y - 0.88 * r, width: 1.76 * r, height: 1.76 * r })
      : Draw.svg("circle", { ...look, cx: x, cy: y, r });
    const label = `${this.rows.title(point.row)}: ${Format.si(point.y)} GFLOP/s at ${Format.si(point.x)} flop/byte, ` +
      `${Format.percent(point.share)} of the time${point.sure ? "" : ", uncertain"}`;
    return { element: plot.add("g", { class: "point" }, shape), rows: [point.row], label };
  }

  labels(plot, points) {
    for (const point of points) plot.keepFree(plot.x(point.x), plot.y(point.y), 0.7 * point.radius);
    for (const point of points) {
      const text = `${Plot.cut(this.rows.title(point.row), 22)} ${Format.percent(point.share)}`;
      plot.label(plot.x(point.x), plot.y(point.y), point.radius, text);
    }
  }
}

Views.add(Roofline);
