/* The rows of one run by columns: numbers as Float64Array (missing: NaN), text with codes. */

class Columns {
  constructor(run, specs) {
    this.specs = specs;
    this.size = run.size;
    this.data = run.columns;
    this.kernels = run.kernels;
    this.decoded = new Map();
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
    if (stored === undefined) return undefined;
    if (Array.isArray(stored)) return Float64Array.from(stored, (value) => (value === null ? NaN : value));
    return stored.codes.map((code) => (code < 0 ? null : stored.values[code]));
  }

  /** A number (missing: NaN) or a text (missing: null). */
  value(name, row) {
    return this.column(name)?.[row] ?? null;
  }

  text(name, row) {
    return Format.cell(this.specs[name], this.value(name, row));
  }

  title(row) {
    return this.value("node", row) ?? "";
  }

  /** The rows of the node table that a row stands for. */
  members(row) {
    return [row];
  }

  isText(name) {
    return ["name", "path"].includes(this.specs[name].format);
  }

  get kernelCount() {
    return this.byKernel.length;
  }

  /** Rows by kernel; the row with the time is first. */
  get byKernel() {
    if (!this.kernelRows) {
      const groups = new Map();
      this.kernels.forEach((kernel, row) => groups.get(kernel)?.push(row) ?? groups.set(kernel, [row]));
      const time = this.column("time_us");
      const timed = (row) => (time && !Number.isNaN(time[row]) ? 0 : 1);
      this.kernelRows = [...groups.values()].map((rows) => rows.sort((a, b) => timed(a) - timed(b) || a - b));
    }
    return this.kernelRows;
  }

  /** All rows of the kernel of a row, the one with the time first. */
  kernelOf(row) {
    this.kernelIndex ??= new Map(this.byKernel.map((rows) => [this.kernels[rows[0]], rows]));
    return this.kernelIndex.get(this.kernels[row]);
  }

  /** The row of a node of the model by its position; undefined if there is none. */
  ofNode(index) {
    this.nodeIndex ??= new Map(Array.from(this.column("index") ?? [], (node, row) => [node, row]));
    return this.nodeIndex.get(index);
  }

  /** Which texts of a column hold `word`, as a test of rows. */
  holding(name, word) {
    const stored = this.data[name];
    if (!stored?.codes) return () => false;
    const holds = stored.values.map((text) => text.toLowerCase().includes(word));
    return (row) => stored.codes[row] >= 0 && holds[stored.codes[row]];
  }
}
