/* The colours of a column: amounts from dark to bright, differences around 0, kinds by number. */

class Palette {
  /** `values` are those drawn; `column` has all of a text column, so that its colours stay. */
  constructor(spec, values, column) {
    this.spec = spec;
    this.isText = ["name", "path"].includes(spec.format);
    if (this.isText) {
      const counts = new Map();
      for (const value of column) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
      this.kinds = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one)).slice(0, 8);
      return;
    }
    const known = values.filter((value) => typeof value === "number" && Number.isFinite(value));
    const least = Math.min(...known), most = Math.max(...known);
    this.isDifference = least < 0 || spec.header.startsWith("Δ");
    this.low = this.isDifference ? -Math.max(-least, most) : spec.fold === "sum" ? 0 : least;
    this.high = this.isDifference ? -this.low : most;
  }

  /** The colour of a value; null for one that is missing or of a rare kind. */
  color(value) {
    if (this.isText) return this.kinds.includes(value) ? Draw.category(this.kinds.indexOf(value)) : null;
    if (typeof value !== "number" || !Number.isFinite(value)) return null;
    const share = (value - this.low) / (this.high - this.low || 1);
    return this.isDifference ? Draw.difference(2 * share - 1) : Draw.amount(share);
  }

  /** What the colours mean: a strip with its ends, or a patch for each kind. */
  legend() {
    if (this.isText) return this.kinds.flatMap((kind) => [Palette.patch(Draw.category(this.kinds.indexOf(kind)), 10), kind, " "]);
    if (!(this.high >= this.low)) return ["no box has a value"];
    const steps = Array.from({ length: 24 }, (_, at) => this.low + (at / 23) * (this.high - this.low));
    const strip = steps.map((value, at) => Draw.svg("rect", { x: 5 * at, width: 5.5, height: 10, fill: this.color(value) }));
    return [Format.cell(this.spec, this.low) || "0", Draw.svg("svg", { width: 120, height: 10, "aria-hidden": "true" }, strip), Format.whole(this.spec, this.high)];
  }

  static patch(fill, size) {
    return Draw.svg("svg", { width: size, height: size, "aria-hidden": "true" }, Draw.svg("rect", { width: size, height: size, rx: 2, fill }));
  }
}
