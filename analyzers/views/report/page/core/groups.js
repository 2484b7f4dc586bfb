/* Rows folded by kernel, operator, module or source line, as analyzers/grouping.py folds them. */

class Groups extends Columns {
  static unknown = { module: "(no module)", source: "(no source)" };
  static root = "(root)";
  static runtime = "(runtime)";

  /** The rows as `by` names them: node, kernel, op, module or source. */
  static by(rows, by) {
    if (by === "node") return rows;
    if (by === "kernel") return new Groups(rows, "node", rows.byKernel, true);
    if (by === "op") {
      const kernels = Groups.by(rows, "kernel");
      return new Groups(kernels, "op_type", Groups.equal(kernels.column("op_type")));
    }
    const names = Array.from({ length: rows.size }, (_, row) => Groups.named(rows, by, row));
    return new Groups(rows, by, Groups.equal(names), false, names);
  }

  /** Some rows as one. */
  static one(rows, members) {
    return new Groups(rows, "node", [members]);
  }

  static named(rows, by, row) {
    const own = rows.title(row).startsWith("runtime:") && Number.isNaN(rows.value("index", row) ?? NaN);
    if (own) return Groups.runtime;
    const name = rows.value(by, row);
    return name === null ? Groups.unknown[by] : name || Groups.root;
  }

  /** Positions of equal values, in the order in which they appear; missing values are left out. */
  static equal(values) {
    const groups = new Map();
    values.forEach((value, at) => {
      if (value !== null) groups.get(value)?.push(at) ?? groups.set(value, [at]);
    });
    return [...groups.values()];
  }

  constructor(rows, key, groups, isKernel = false, names = null) {
    super({ size: groups.length, columns: rows.data, kernels: [] }, rows.specs);
    Object.assign(this, { rows, key, groups, isKernel, keys: names });
  }

  has(name) {
    if (name === "nodes") return true;
    if (name === this.key || name === "bar") return this.rows.has(name);
    if (name === "also_holds") return Boolean(this.keys);
    const fold = this.specs[name]?.fold;
    if (name === "bytes_moved" || name === "overflow_share") return this.rows.has(name);
    return this.rows.has(name) && (this.isKernel || fold !== "none") && !(this.isKernel && name === "timed_in");
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
    if (name === "nodes") return this.count();
    const values = this.rows.column(name);
    if (name === this.key) return this.groups.map((rows) => (this.keys ?? values)[rows[0]] + this.more(rows));
    if (this.isKernel && name === "op_type") return this.groups.map((rows) => rows.map((row) => values[row]).join("+"));
    const how = Groups.folds[this.isKernel && name === "calls" ? "first" : this.specs[name].fold] ?? Groups.folds.first;
    const time = this.rows.column("time_us") ?? [];
    const folded = this.groups.map((rows) => how(rows, values, time));
    if (name === "bits_guaranteed") this.guarantee(folded);
    return this.isText(name) ? folded : Float64Array.from(folded, (value) => value ?? NaN);
  }

  more(rows) {
    return this.isKernel && rows.length > 1 ? ` +${rows.length - 1}` : "";
  }

  count() {
    const nodes = this.rows instanceof Groups ? this.rows.column("nodes") : null;
    return Float64Array.from(this.groups, (rows) => rows.reduce((sum, row) => sum + (nodes ? nodes[row] : 1), 0));
  }

  /** A group is guaranteed a width only if all its nodes with accumulators are. */
  guarantee(folded) {
    const [widths, bits] = [this.rows.column("bits_guaranteed"), this.rows.column("bits")];
    this.groups.forEach((rows, at) => {
      const present = (values) => rows.filter((row) => !Number.isNaN(values?.[row] ?? NaN)).length;
      if (present(widths) !== present(bits)) folded[at] = NaN;
    });
  }

  /** Joins the numbers among `values` at `rows`; NaN if there are none. */
  static joined(rows, values, join) {
    let all = NaN;
    for (const row of rows) {
      const value = values[row];
      if (!Number.isNaN(value)) all = Number.isNaN(all) ? value : join(all, value);
    }
    return all;
  }

  static folds = {
    sum: (rows, values) => Groups.joined(rows, values, (a, b) => a + b),
    min: (rows, values) => Groups.joined(rows, values, Math.min),
    max: (rows, values) => Groups.joined(rows, values, Math.max),
    first: (rows, values) => values[rows.find((row) => values[row] !== null && !Number.isNaN(values[row]))] ?? null,

    time_mean(rows, values, time) {
      let [sum, total] = [0, 0];
      for (const row of rows) {
        if (Number.isNaN(values[row] + time[row])) continue;
        sum += values[row] * time[row];
        total += time[row];
      }
      return sum / total;
    },

    time_mode(rows, values, time) {
      const totals = new Map();
      for (const row of rows) {
        if (values[row] !== null) totals.set(values[row], (totals.get(values[row]) ?? 0) + (time[row] || 0));
      }
      return [...totals].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
    },
  };

  /** Columns that are computed from folded columns. */
  static derived = {
    bar(groups) {
      const share = groups.column("time_share");
      const most = share?.reduce((most, value) => (value > most ? value : most), 0);
      return share?.map((value) => value / most);
    },
    bytes_moved(groups) {
      const [read, written] = [groups.column("bytes_read"), groups.column("bytes_written")];
      return read && written ? read.map((value, row) => value + written[row]) : undefined;
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
    also_holds: (groups) => groups.held(),
  };

  /** For each group, the groups whose nodes are in its kernels. */
  held() {
    if (!this.keys) return undefined;
    const holds = new Map();
    for (const kernel of this.rows.byKernel) {
      const [first, ...others] = new Set(kernel.map((row) => this.keys[row]));
      for (const other of others) holds.get(first)?.add(other) ?? holds.set(first, new Set([other]));
    }
    return this.groups.map((rows) => [...(holds.get(this.keys[rows[0]]) ?? [])].join("; ") || null);
  }
}
