/* Float accumulators: the relative errors of each node's sums, and the share of its terms that are swamped. */

class Errors extends Chart {
  static id = "errors";
  static title = "Errors";
  static order = 16;
  static line = 22;
  static signs = { rel_error_p50: "half of the sums", rel_error_p99: "99 % of the sums" };
  static kinds = { rel_error_p50: "seen", rel_error_p99: "sure" };
  static range = [1e-18, 1e3]; // float64's own rounding, and sums that are lost
  static missing = "This run has no sums in floats; --accumulator fp16 counts those of a model.";
  static has = (_, rows) => rows.has("rel_error_p99");

  draw() {
    const every = [...this.rows.column("rel_error_p99").keys()].filter((row) => !Number.isNaN(this.rows.value("rel_error_p99", row)));
    const worst = [...every].sort((one, other) => this.rows.value("rel_error_p99", other) - this.rows.value("rel_error_p99", one));
    return [
      this.picture(this.first(worst).sort((one, other) => one - other)),
      Chart.caption(
        "Relative error of a sum, against the same products added in float64: that of one in two, and that of 99 in 100.",
        "Swamped: products other than 0 that do not change their sum. A circle at an end lies beyond it; an error of 0 is at the left one.",
      ),
      this.more(every, "node"),
    ];
  }

  picture(shown) {
    const left = this.host.clientWidth < 480 ? 96 : 150, top = 36;
    const plot = (this.plot = new Plot(this.host, "Relative errors of the sums of each node", top + shown.length * Errors.line + 40, [left, 66, top, 40]));
    plot.across(...this.ends(shown), Draw.log);
    const every = plot.x.ticks(), step = Math.ceil((every.length * 48) / (plot.right - left));
    plot.ticksAcross(every.filter((_, at) => at % step === 0), (tick) => tick.toExponential(0), "relative error");
    this.key(top - 10);
    return this.mark(plot.root, shown.map((row, at) => this.node(row, top + (at + 0.5) * Errors.line)));
  }

  /** Powers of 10 around all errors that are neither 0 nor infinite. */
  ends(shown) {
    const [least, most] = Errors.range;
    const errors = Object.keys(Errors.signs).flatMap((name) => shown.map((row) => this.rows.value(name, row)));
    const inside = errors.filter((error) => error >= least && error <= most);
    const [low, high] = inside.length ? [Math.min(...inside), Math.max(...inside)] : [1e-8, 1];
    return [10 ** (Math.ceil(Math.log10(low)) - 1), 10 ** (Math.floor(Math.log10(high)) + 1)];
  }

  key(y) {
    let x = this.plot.left < 150 ? 0 : this.plot.left;
    for (const [name, text] of Object.entries(Errors.signs)) {
      this.plot.add(Plot.circle(Errors.kinds[name], x + 5, y - 4), Plot.text("faint", x + 13, y, "start", text));
      x += 24 + text.length * Plot.letter;
    }
    this.plot.add(Plot.text("faint", this.plot.width - 4, y, "end", "swamped"));
  }

  node(row, y) {
    const { plot, rows } = this, title = rows.title(row), swamped = rows.value("swamped_share", row);
    const place = (name) => Math.min(Math.max(plot.x(rows.value(name, row)), plot.left), plot.right);
    const names = Object.keys(Errors.signs).reverse(), places = names.map(place);
    const share = swamped > 0 ? (swamped < 0.001 ? "<0.1%" : Format.percent(swamped)) : "";
    const element = svg.g({ class: "node" }, plot.row(y, Errors.line, title),
      Plot.line("range", Math.min(...places), y, Math.max(...places), y), names.map((name, at) => Plot.circle(Errors.kinds[name], places[at], y)),
      Plot.text("share", plot.width - 4, y + 4, "end", share));
    const told = Object.entries(Errors.signs).map(([name, text]) => `${Format.general(rows.value(name, row), 3)} in ${text}`).join(", ");
    return { element: plot.add(element), rows: [row], label: `${title}, relative error: ${told}; ${Format.percent(swamped || 0)} of the terms swamped` };
  }
}

Views.add(Errors);
