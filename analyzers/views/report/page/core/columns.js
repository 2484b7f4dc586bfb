/* The rows of one run by columns: numbers as Float64Array (missing: NaN), text with codes. */

class Columns {
  constructor({ size, columns, kernels, prefix, folded }, specs) {
    Object.assign(this, { size, data: columns, kernels, prefix, served: folded ?? kernels, specs, decoded: new Map() });
  }

  /** Positions of equal values, in the order in which they appear; missing values are left out. */
  static positions(values) {
    const places = new Map();
    values.forEach((value, at) => value !== null && (places.get(value)?.push(at) ?? places.set(value, [at])));
    return places;
  }

  static isText = ({ format }) => format === "name" || format === "path";

  isText(name) {
    return Columns.isText(this.specs[name]);
  }

  names() {
    return Object.keys(this.specs).filter((name) => this.has(name));
  }

  has(name) {
    return name in this.data;
  }

  /** A Float64Array, or an array of texts (missing: null), or undefined. */
  column(name) {
    if (!this.decoded.has(name)) this.decoded.set(name, this.make(name));
    return this.decoded.get(name);
  }

  make(name) {
    const stored = this.data[name];
    if (stored?.codes) return stored.codes.map((code) => stored.values[code] ?? null);
    return stored && Float64Array.from(stored, (value) => value ?? NaN);
  }

  value(name, row) {
    return this.column(name)?.[row] ?? null;
  }

  /** Whether less than the end of its interval is all that is known of a row's time. */
  isBound(row) {
    return this.value("time_us_ci95_low", row) === 0 && this.value("time_us", row) < this.value("time_us_ci95_high", row);
  }

  text(name, row, write = Format.cell) {
    const isBound = name === "time_us" && this.isBound(row);
    return (isBound ? "< " : "") + write(this.specs[name], this.value(isBound ? "time_us_ci95_high" : name, row));
  }

  title(row) {
    return this.value("node", row) ?? "";
  }

  /** The rows of the node table that a row stands for. */
  members(row) {
    return [row];
  }

  /** Rows with equal `keys`: the one with the time first, those that only serve it last. */
  by(keys) {
    const time = this.column("time_us"), last = (row) => (!time || Number.isNaN(time[row])) + (keys[row] !== this.kernels[row]);
    return [...Columns.positions(keys).values()].map((rows) => rows.sort((a, b) => last(a) - last(b) || a - b));
  }

  /** All rows by a column, those without a value last; of differences the largest change is first. */
  ordered(name, isDescending = true) {
    const values = this.column(name), rows = Array.from({ length: this.size }, (_, row) => row), sign = isDescending ? -1 : 1;
    if (!values) return rows;
    const isChange = isDescending && this.specs[name]?.header?.startsWith("Δ"), key = (row) => (isChange ? Math.abs(values[row]) : values[row]);
    const missing = (row) => values[row] === null || Number.isNaN(values[row]);
    const compare = (a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : a - b);
    return [...rows.filter((row) => !missing(row)).sort(compare), ...rows.filter(missing)];
  }

  get totalTime() {
    const times = this.column("time_us");
    return (this.total ??= Groups.folds.sum([...times.keys()], times));
  }

  get byKernel() {
    return (this.kernelRows ??= this.by(this.kernels));
  }

  /** The same, constants and conversions beside the node they serve. */
  get folded() {
    return (this.foldedRows ??= this.by(this.served));
  }

  ofNode(index) {
    this.nodeIndex ??= new Map(Array.from(this.column("index") ?? [], (node, row) => [node, row]));
    return this.nodeIndex.get(index);
  }

  /** Which texts of a column hold `word`, as a test of rows. */
  holding(name, word) {
    const { codes, values } = this.data[name] ?? {}, holds = values?.map((text) => text.toLowerCase().includes(word));
    return (row) => holds?.[codes?.[row]] ?? false;
  }
}
