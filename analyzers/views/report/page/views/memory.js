/* Bytes alive while each node runs, in the order of the model. */

class Memory extends Chart {
  static id = "memory";
  static title = "Memory";
  static order = 40;
  static visible = 4; // weights are drawn below the tensors up to this multiple of the peak
  static missing = "The sizes of this run's tensors are not known.";
  // A framework's run has the peaks of single operators, which are no course over the run.
  static has = (run, rows) => ["peak_bytes", "output_bytes", "index"].every((name) => rows.has(name));

  draw() {
    this.alive = this.rows.column("peak_bytes");
    const order = this.order(), peak = this.largest(order), most = this.alive[peak];
    const weights = (this.rows.has("param_bytes") && Groups.folds.sum(order, this.rows.column("param_bytes"))) || 0;
    this.below = weights <= Memory.visible * most ? weights : 0;
    const plot = new Plot(this.host, "Bytes alive at each node", 260, [58, 14, 30, 38]);
    this.frame(plot, order.length, most);
    const bars = this.bars(plot, order);
    this.mark(plot.root, bars);
    const x = plot.x(order.indexOf(peak) + 0.5), isLeft = x < (plot.left + plot.right) / 2;
    const text = `${Format.quantity(most, "B")} at ${Plot.cut(this.rows.title(peak), 40)}`;
    plot.add(Plot.text(null, x, plot.y(this.below + most) - 5, isLeft ? "start" : "end", text));
    return [plot.root, Chart.caption(
      "Dark: outputs of the node itself. Light: other tensors that it or a later node reads.",
      weights && !this.below && `Weights take ${Format.quantity(weights, "B")} more all the time; they are not drawn.`,
      bars.length < order.length && `${Format.plural(order.length, "node")} in ${bars.length} bars, each as high as its highest.`,
    )];
  }

  /** Rows of nodes whose bytes are known, by their position in the model. */
  order() {
    const index = this.rows.column("index");
    const known = [...index.keys()].filter((row) => index[row] >= 0 && this.alive[row] >= 0);
    return known.sort((one, other) => index[one] - index[other]);
  }

  largest(rows) {
    return rows.reduce((one, other) => (this.alive[other] > this.alive[one] ? other : one));
  }

  frame(plot, count, most) {
    plot.across(0, count);
    plot.up(0, (this.below + most) * 1.1);
    plot.ticksAcross(plot.x.ticks(6).filter(Number.isInteger), (value) => Format.grouped(value), "position in the model");
    plot.ticksUp(plot.y.ticks(4), (value) => Format.quantity(value, "B"), "bytes alive");
    if (!this.below) return;
    const y = plot.y(this.below), text = `weights ${Format.quantity(this.below, "B")}`;
    plot.add(Plot.rect("weights", plot.left, y, plot.right - plot.left, plot.bottom - y), Plot.text(null, plot.left + 6, plot.bottom - 6, "start", text));
  }

  /** A bar for each node, or for as many nodes as share a pixel. */
  bars(plot, order) {
    const outputs = this.rows.column("output_bytes"), up = (bytes) => plot.y(this.below + bytes);
    const count = Math.min(order.length, Math.floor(plot.right - plot.left)), gap = count < 200 ? 1 : 0;
    return Array.from({ length: count }, (_, bar) => {
      const [from, to] = [bar, bar + 1].map((end) => Math.floor((end * order.length) / count));
      const row = this.largest(order.slice(from, to)), alive = this.alive[row], own = Math.min(outputs[row] || 0, alive);
      const x = plot.x(from), wide = Math.max(plot.x(to) - x - gap, 0.8), heights = { hit: plot.top, alive: up(alive), own: up(own) };
      const element = svg.g({ class: "bar" }, Object.entries(heights).map(([kind, y]) => Plot.rect(kind, x, y, wide, up(0) - y)));
      const label = `${this.rows.title(row)}: ${Format.quantity(alive, "B")} alive, ${Format.quantity(own, "B")} of them its outputs`;
      return { element: plot.add(element), rows: [row], label };
    });
  }
}

Views.add(Memory);
