/* Bytes alive while each node runs, in the order of the model. */

class Memory {
  static id = "memory";
  static title = "Memory";
  static place = "picture";
  static order = 40;
  static visible = 4; // weights are drawn below the tensors up to this multiple of the peak
  static fits = (report) => report.tables.some(Memory.known);

  /** A framework's run has the peaks of single operators, which are no course over the run. */
  static known(rows) {
    return rows.has("peak_bytes") && rows.has("output_bytes") && rows.has("index");
  }

  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  render(changed) {
    if (!changed.has("run")) return this.marks?.show();
    this.rows = this.report.rows(this.state.run);
    if (!Memory.known(this.rows)) return this.host.replaceChildren(Plot.empty("The sizes of this run's tensors are not known."));
    this.alive = this.rows.column("peak_bytes");
    const order = this.order();
    const peak = this.largest(order), most = this.alive[peak];
    const weights = this.rows.has("param_bytes") ? Groups.folds.sum(order, this.rows.column("param_bytes")) ?? 0 : 0;
    this.below = weights <= Memory.visible * most ? weights : 0;
    const plot = new Plot(this.host, "Bytes alive at each node", 260, [58, 14, 30, 38]);
    this.frame(plot, order.length, most);
    const bars = this.bars(plot, order);
    this.marks = new Marks(plot.root, this.state);
    this.marks.set(bars);
    const x = plot.x(order.indexOf(peak) + 0.5), isLeft = x < (plot.left + plot.right) / 2;
    const text = `${Format.quantity(most, "B")} at ${Plot.cut(this.rows.title(peak), 40)}`;
    plot.text(isLeft ? x - 4 : x + 4, plot.y(this.below + most) - 5, isLeft ? "start" : "end", text);
    this.host.replaceChildren(plot.root, Plot.caption(
      "Dark: outputs of the node itself. Light: other tensors that it or a later node reads.",
      weights && !this.below && `Weights take ${Format.quantity(weights, "B")} more all the time; they are not drawn.`,
      bars.length < order.length && `${Format.plural(order.length, "node")} in ${bars.length} bars, each as high as its highest.`,
    ));
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
    plot.ticksAcross(plot.x.ticks(6).filter(Number.isInteger), (value) => Format.grouped(String(value)), "position in the model");
    plot.ticksUp(plot.y.ticks(4), (value) => Format.quantity(value, "B"), "bytes alive");
    if (!this.below) return;
    const y = plot.y(this.below);
    plot.add("rect", { class: "weights", x: plot.left, y, width: plot.right - plot.left, height: plot.bottom - y });
    plot.text(plot.left + 6, plot.bottom - 6, "start", `weights ${Format.quantity(this.below, "B")}`);
  }

  /** A bar for each node, or for as many nodes as share a pixel. */
  bars(plot, order) {
    const outputs = this.rows.column("output_bytes"), ground = plot.y(this.below);
    const count = Math.min(order.length, Math.floor(plot.right - plot.left));
    const gap = count < 200 ? 1 : 0;
    return Array.from({ length: count }, (_, bar) => {
      const [from, to] = [bar, bar + 1].map((end) => Math.floor((end * order.length) / count));
      const row = this.largest(order.slice(from, to)), alive = this.alive[row];
      const own = Math.min(outputs[row] || 0, alive), top = plot.y(this.below + alive), x = plot.x(from);
      const part = (kind, y, end) => Draw.svg("rect", { class: kind, x, y, width: Math.max(plot.x(to) - x - gap, 0.8), height: Math.max(end - y, 0) });
      const element = plot.add("g", { class: "bar" }, part("hit", plot.top, ground), part("alive", top, ground), part("own", plot.y(this.below + own), ground));
      const label = `${this.rows.title(row)}: ${Format.quantity(alive, "B")} alive, ${Format.quantity(own, "B")} of them its outputs`;
      return { element, rows: [row], label };
    });
  }
}

Views.add(Memory);
