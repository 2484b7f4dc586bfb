/* What tune tried: the speed-up of each change with its interval; what may be noise is grey. */

class Trials extends Ratios {
  static id = "trials";
  static title = "Trials";
  static farthest = 4;
  static fits = (report) => report.kind === "tune" && report.runs[0].size > 0;

  draw() {
    const value = (name) => this.rows.column(name) ?? [], [ratio, low, high] = ["speedup", "speedup_low", "speedup_high"].map(value);
    const every = Array.from({ length: this.rows.size }, (_, row) => ({
      name: this.rows.title(row), rows: [row], ratio: ratio[row], low: low[row], high: high[row],
      kind: low[row] > 1 ? "faster" : high[row] < 1 ? "slower" : "noise",
    }));
    const shown = this.first(every), plot = this.frame(shown);
    this.mark(plot.root, shown.map((trial, at) => this.layer(plot, trial, plot.top + (at + 0.5) * Ratios.line)));
    const caption = "Line: interval of the speed-up. Grey: the difference may be noise, or was not measured. Changes that were kept are first.";
    return [plot.root, Chart.caption(caption), this.more(every, "form")];
  }

  words() {
    return { axis: "speed-up: time before ÷ time after", unit: "speed-up", low: ["slower", "slower"], high: ["faster", "faster"] };
  }

  told({ name, ratio, rows: [row] }) {
    const after = ratio > 0 ? `${Format.times(ratio)}×` : "not measured";
    return { after, label: `${name}: ${after}, ${this.rows.text("interval", row) || "no interval"}; ${this.rows.text("verdict", row)}` };
  }
}

Views.add(Trials);
