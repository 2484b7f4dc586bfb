/* Rows folded by kernel, operator, module or source line, as analyzers/grouping.py folds them. */

class Groups extends Columns {
  static serving = ["Constant", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"];
  static unknown = { module: "(no module)", source: "(no source)" };

  /** The rows as `by` names them: node, kernel, op, module or source. */
  static by(rows, by) {
    if (by === "node") return rows;
    if (by === "kernel" || by === "folded node") return new Groups(rows, "node", rows.folded, true);
    const [key, folded] = by === "op" ? ["op_type", new Groups(rows, "node", rows.byKernel, true)] : [by, rows];
    const keys = by === "op" ? folded.column(key) : Array.from({ length: rows.size }, (_, row) => Groups.named(rows, by, row));
    return new Groups(folded, key, [...Columns.positions(keys).values()], false, by === "op" ? null : keys);
  }

  /** Whether a row is a kernel of the runtime's own, and no node of the model. */
  static ofRuntime = (rows, row) => rows.title(row).startsWith("runtime:") && Number.isNaN(rows.value("index", row) ?? NaN);

  static named(rows, by, row) {
    if (Groups.ofRuntime(rows, row)) return "(runtime)";
    const name = rows.value(by, row);
    return name === null ? Groups.unknown[by] : name || "(root)";
  }

  constructor(rows, key, groups, isKernel = false, keys = null) {
    super({ size: groups.length, columns: rows.data, prefix: rows.prefix }, rows.specs);
    Object.assign(this, { rows, key, groups, isKernel, keys });
  }

  has(name) {
    if (name === "nodes") return true;
    if (name === "also_holds") return this.keys !== null;
    if (!this.rows.has(name) || (this.isKernel && name === "timed_in")) return false;
    return this.isKernel || [this.key, "bar", "bytes_moved", "overflow_share", "time_us_plus_minus"].includes(name) || this.specs[name]?.fold !== "none";
  }

  title(row) {
    return this.column(this.key)[row];
  }

  members(row) {
    return this.groups[row].flatMap((each) => this.rows.members(each));
  }

  make(name) {
    const derived = Groups.derived[name];
    if (derived) return derived(this);
    if (!this.has(name)) return undefined;
    const values = this.rows.column(name), { isKernel, groups } = this;
    if (name === this.key) return groups.map((rows) => (this.keys ?? values)[rows[0]] + (isKernel ? this.more(rows) : ""));
    if (isKernel && name === "op_type") return groups.map((rows) => this.telling(rows).map((row) => values[row]).join("+"));
    const how = Groups.folds[isKernel && ["calls", "roof_fraction"].includes(name) ? "first" : this.specs[name].fold] ?? Groups.folds.first;
    const weight = this.rows.column(this.specs[name].fold === "terms_mean" ? "terms" : "time_us") ?? [];
    const folded = groups.map((rows) => how(rows, values, weight));
    if (name === "bits_guaranteed") this.guarantee(folded, values);
    if (name === "time_share" && !isKernel) this.share(folded);
    return this.isText(name) ? folded : Float64Array.from(folded, (value) => value ?? NaN);
  }

  /** The rows of a group without constants and conversions, unless there are no others. */
  telling(rows) {
    const operators = this.rows.column("op_type"), computing = rows.filter((row) => !Groups.serving.includes(operators?.[row]));
    return computing.length ? computing : rows;
  }

  more(rows) {
    const others = this.telling(rows).length - 1;
    return others ? ` +${others}` : "";
  }

  /** A group is guaranteed a width only if all its nodes with accumulators are. */
  guarantee(folded, widths) {
    const bits = this.rows.column("bits"), known = (values, rows) => rows.filter((row) => !Number.isNaN(values?.[row] ?? NaN)).length;
    this.groups.forEach((rows, at) => {
      if (known(widths, rows) !== known(bits, rows)) folded[at] = NaN;
    });
  }

  /** A time that is only a bound has no share. */
  share(folded) {
    const times = this.column("time_us"), total = this.rows.totalTime;
    times.forEach((time, at) => (folded[at] = total && !this.isBound(at) ? time / total : NaN));
  }

  /** NaN if none of the numbers is known. */
  static joined = (join) => (rows, values) =>
    rows.reduce((all, row) => (Number.isNaN(values[row]) ? all : Number.isNaN(all) ? values[row] : join(all, values[row])), NaN);

  /** The mean of the values that are known, weighted. */
  static mean(rows, values, weight, of = (value) => value) {
    const known = rows.filter((row) => !Number.isNaN(values[row] + weight[row]));
    const total = (part) => known.reduce((sum, row) => sum + part(row), 0);
    return total((row) => of(values[row]) * weight[row]) / total((row) => weight[row]);
  }

  static folds = {
    sum: Groups.joined((a, b) => a + b),
    min: Groups.joined(Math.min),
    max: Groups.joined(Math.max),
    first: (rows, values) => values[rows.find((row) => values[row] !== null && !Number.isNaN(values[row]))] ?? null,

    time_mean: Groups.mean,
    roof_mean: (rows, values, weight) => Groups.mean(rows, values, weight, (value) => Math.min(value, 1)),
    terms_mean: Groups.mean,

    common(rows, values) {
      const known = new Set(rows.map((row) => values[row]).filter((value) => value !== null && !Number.isNaN(value)));
      return known.size === 1 ? [...known][0] : null;
    },

    time_mode(rows, values, time) {
      const totals = new Map();
      for (const row of rows) if (values[row] !== null) totals.set(values[row], (totals.get(values[row]) ?? 0) + (time[row] || 0));
      return [...totals].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
    },
  };

  static derived = {
    nodes({ rows, groups }) {
      const counts = rows.column("nodes") ?? Array.from({ length: rows.size }, (_, row) => Number(!Groups.ofRuntime(rows, row)));
      return Float64Array.from(groups, (group) => Groups.folds.sum(group, counts));
    },
    bar(groups) {
      const share = groups.column("time_share"), most = share?.reduce((most, value) => (value > most ? value : most), 0);
      return share?.map((value) => value / most);
    },
    time_us_plus_minus(groups) {
      const [low, high] = ["low", "high"].map((end) => groups.column(`time_us_ci95_${end}`));
      return low?.map((value, row) => (value > 0 ? (high[row] - value) / 2 : NaN));
    },
    bytes_moved(groups) {
      const [read, written] = [groups.column("bytes_read"), groups.column("bytes_written")];
      return read && written?.map((value, row) => read[row] + value);
    },
    overflow_share(groups) {
      const [over, outputs] = [groups.column("overflow_outputs"), groups.column("outputs")];
      return over && outputs?.map((value, row) => (value > 0 ? over[row] / value : NaN));
    },
    partial_sums(groups) {
      const [low, high] = [groups.column("acc_min"), groups.column("acc_max")];
      const range = (row) => `${Format.number(low[row])} … ${Format.number(high[row])}`;
      return low && groups.groups.map((_, row) => (Number.isNaN(low[row]) ? null : range(row)));
    },

    /** For each group, the groups whose nodes are in its kernels. */
    also_holds({ keys, rows, groups }) {
      const holds = new Map();
      for (const kernel of keys ? rows.byKernel : []) {
        const [first, ...others] = new Set(kernel.map((row) => keys[row]));
        holds.set(first, [...(holds.get(first) ?? []), ...others]);
      }
      return keys && groups.map((group) => [...new Set(holds.get(keys[group[0]]))].join("; ") || null);
    },
  };
}
