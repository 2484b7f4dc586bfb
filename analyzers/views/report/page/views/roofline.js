/* The rate of each kernel over its intensity, below the peaks of the machine. Both axes are logarithmic. */

class Roofline extends Chart {
  static id = "roofline";
  static title = "Roofline";
  static order = 20;
  static most = 2000; // points; the longest kernels come first
  static named = 8;
  static missing = "This run has no times, or no counts of its work; tracer profile measures both.";
  static has = (run) => Boolean(run.roofline);

  draw() {
    const { roofline, roofs } = this.run;
    const plot = new Plot(this.host, "Roofline of the kernels", 400, [46, 14, 28, 40]);
    const points = this.points(roofline), others = roofline.rows.length - points.length;
    this.frame(plot, points, roofs);
    if (roofs) this.ceilings(plot, roofs, roofline.integer);
    this.mark(plot.root, points.map((point) => this.point(plot, point)));
    this.labels(plot, points.slice(0, Roofline.named));
    return [plot.root, Chart.caption(
      "Area: share of the time. Blue and round: bound by arithmetic. Orange and square: bound by memory, or data in a cache. Hollow: uncertain time.",
      roofline.hidden && `${roofline.hidden}.`,
      others > 0 && `${Format.plural(others, "shorter kernel")} not drawn.`,
    )];
  }

  points({ rows, x, y, sure }) {
    return this.first(rows).map((row, at) => {
      const share = this.rows.value("time_share", row) || 0;
      return { row, x: x[at], y: y[at], sure: sure[at], share, radius: 2.5 + 26 * Math.sqrt(share), name: this.rows.title(row) };
    });
  }

  /** The ends of the axes leave room for the points and for the names of the roofs. */
  frame(plot, points, roofs) {
    const xs = points.map(({ x }) => x), ys = points.map(({ y }) => y);
    const top = roofs ? Math.max(roofs.float32, roofs.int8 ?? 0, ...Object.values(roofs.others)) / 1e9 : Math.max(...ys);
    const slope = roofs ? roofs.memory / 1e9 : null;
    plot.low = Math.min(...xs.map((x) => x / 3), slope ? top / slope / 30 : Infinity);
    plot.across(plot.low, Math.max(...xs.map((x) => x * 3), slope ? (10 * top) / slope : 0), Draw.log);
    plot.up(Math.min(...ys.map((y) => y / 2), slope ? plot.low * slope : Infinity), 2.2 * Math.max(top, ...ys), Draw.log);
    plot.ticksAcross(plot.x.ticks(), Format.count, "intensity, flop/byte");
    plot.ticksUp(plot.y.ticks(), Format.count, "GFLOP/s");
  }

  ceilings(plot, { float32, int8, memory, others }, integer) {
    const slope = memory / 1e9, rates = [[float32, "FLOP/s", "float32"]];
    if (integer && int8) rates.push([int8, "OP/s", "int8"]);
    for (const [name, rate] of Object.entries(others)) rates.push([rate, "FLOP/s", name]);
    for (const [rate, unit, name] of rates) {
      const y = plot.y(rate / 1e9), text = `${name} ${Format.si(rate)}${unit}`;
      plot.add(Plot.line("roof", plot.x(rate / memory), y, plot.right, y), Plot.text(null, plot.right, y - 5, "end", text));
      plot.taken.push([plot.right - text.length * Plot.letter, y - 16, plot.right, y]);
    }
    const top = Math.max(...rates.map(([rate]) => rate)), [x1, y1] = [plot.left, plot.y(plot.low * slope)];
    const [x2, y2] = [plot.x(top / memory), plot.y(top / 1e9)], turn = Math.atan2(y2 - y1, x2 - x1);
    const text = Plot.text(null, 0, -6, "middle", `memory ${Format.si(memory)}B/s`), [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
    text.setAttribute("transform", `translate(${x},${y}) rotate(${(turn * 180) / Math.PI})`);
    plot.add(Plot.line("roof", x1, y1, x2, y2), text);
    for (let step = -50; step <= 50; step += 10) plot.keepFree(x + step * Math.cos(turn), y + step * Math.sin(turn) - 8, 8);
  }

  point(plot, { row, x, y, radius, sure, share, name }) {
    const bound = this.rows.value("bound", row) ?? "", kind = sure ? bound : `${bound} unsure`;
    const side = 1.76 * radius, [left, top] = [plot.x(x), plot.y(y)];
    const shape = ["memory", "cache"].includes(bound) ? Plot.rect(kind, left - side / 2, top - side / 2, side, side) : Plot.circle(kind, left, top, radius);
    const label = `${name}: ${Format.si(y)} GFLOP/s at ${Format.si(x)} flop/byte, ${Format.percent(share)} of the time${sure ? "" : ", uncertain"}`;
    return { element: plot.add(svg.g({ class: "point" }, shape)), rows: [row], label };
  }

  labels(plot, points) {
    for (const { x, y, radius } of points) plot.keepFree(plot.x(x), plot.y(y), 0.7 * radius);
    for (const { x, y, radius, name, share } of points) {
      plot.label(plot.x(x), plot.y(y), radius, `${Plot.cut(name, 22)} ${Format.percent(share)}`);
    }
  }
}

Views.add(Roofline);
