/* A narrowed model: the width that any input needs of each node, before and after, and the scores by width. */

class Widths extends Overflow {
  static id = "widths";
  static title = "Widths";
  static order = 0;
  static signs = { guaranteed: "any input, after", guaranteed_before: "before" };
  static last = "changed";
  static missing = "This run has no narrowed sums.";
  static has = (_, rows) => rows.has("guaranteed_before");

  draw() {
    const every = Array.from({ length: this.rows.size }, (_, row) => row), needed = every.map((row) => this.rows.value("guaranteed", row));
    this.widths = { rows: every, bits: [Math.min(...needed), this.rows.value("bits", 0)] };
    this.scores();
    return [
      this.picture(this.first(every)),
      Chart.caption("Filled: width that holds the sums of any input, in any order. Line: width of the accumulators.",
        this.accuracy && "Curves: scores on the test data; in the model before, sums saturate."),
      this.more(every, "node"),
    ];
  }

  width() {
    return Math.max(...this.rows.column("bits"));
  }

  /** The accumulators, and what was changed of each node; nothing here slides. */
  count() {
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.plot.x(this.width()));
    for (const { rows: [row], element, share } of this.lines) {
      element.classList.toggle("over", this.rows.value("guaranteed", row) > this.rows.value("bits", row));
      share.setAttribute("class", "faint");
      share.textContent = this.rows.value("measure", row) ?? "";
    }
  }
}

Views.add(Widths);
