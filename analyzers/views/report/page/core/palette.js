/* The colours of a column: amounts from dark to bright, differences around 0, kinds by number. */

class Palette {
  static blueOrange = [[33, 102, 172], [146, 186, 219], [205, 205, 205], [244, 177, 106], [204, 97, 0]];
  // Colour-blind readers see cividis as others do, and tell the kinds of Okabe and Ito apart.
  static cividis = [
    [0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
    [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56],
  ];
  static okabeIto = [
    "rgb(0, 114, 178)", "rgb(230, 159, 0)", "rgb(0, 158, 115)", "rgb(204, 121, 167)",
    "rgb(86, 180, 233)", "rgb(213, 94, 0)", "rgb(150, 140, 30)", "rgb(120, 120, 120)",
  ];

  /** `values` are those drawn; `column` has all of a text column, so that its colours stay. */
  constructor(spec, values, column) {
    this.spec = spec;
    if (Columns.isText(spec)) {
      const kinds = [...Columns.positions(column)].sort(([, one], [, other]) => other.length - one.length);
      this.kinds = kinds.slice(0, Palette.okabeIto.length).map(([kind]) => kind);
      return;
    }
    const known = values.filter(Number.isFinite), least = Math.min(...known), most = Math.max(...known);
    const isDifference = least < 0 || spec.header.startsWith("Δ");
    this.stops = isDifference ? Palette.blueOrange : Palette.cividis;
    this.low = isDifference ? -Math.max(-least, most) : spec.fold === "sum" ? 0 : least;
    this.high = isDifference ? -this.low : most;
  }

  /** The colour of a value; null for one that is missing or of a rare kind. */
  color(value) {
    if (this.kinds) return Palette.okabeIto[this.kinds.indexOf(value)] ?? null;
    if (!Number.isFinite(value)) return null;
    const { stops, low, high } = this, share = Math.min(Math.max((value - low) / (high - low || 1), 0), 1) * (stops.length - 1);
    const at = Math.min(Math.floor(share), stops.length - 2);
    const mixed = stops[at].map((from, channel) => Math.round(from + (share - at) * (stops[at + 1][channel] - from)));
    return `rgb(${mixed.join(", ")})`;
  }

  /** Black or white, whichever is read better on a colour. */
  static ink(colour) {
    const [r, g, b] = colour.match(/\d+/g);
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
  }

  /** What the colours mean: a strip with its ends, or a patch for each kind. */
  legend() {
    if (this.kinds) return this.kinds.flatMap((kind) => [Palette.patch(this.color(kind), 10), kind, " "]);
    const { low, high, spec } = this;
    return high >= low ? [Format.cell(spec, low) || "0", this.strip(), Format.complete(spec, high)] : ["no box has a value"];
  }

  strip() {
    const steps = Array.from({ length: 24 }, (_, at) => this.low + (at / 23) * (this.high - this.low));
    const strip = steps.map((value, at) => svg.rect({ x: 5 * at, width: 5.5, height: 10, fill: this.color(value) }));
    return svg.svg({ width: 120, height: 10, "aria-hidden": "true" }, strip);
  }

  static patch(fill, size) {
    return svg.svg({ width: size, height: size, "aria-hidden": "true" }, svg.rect({ width: size, height: size, rx: 2, fill }));
  }
}
