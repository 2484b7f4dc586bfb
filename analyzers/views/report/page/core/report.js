/* The data of the page: runs, their rows, and what their columns mean. */

class Report {
  constructor(data) {
    Object.assign(this, data, { folded: new Map() }); // title, kind, first, specs, runs, graphs, pairs, accuracy, sources, environment, notes
    Format.fitTime(Math.max(0, ...data.runs.map(({ columns }) => (columns.time_us ?? []).reduce((most, value) => (value > most ? value : most), 0))));
    for (const spec of Object.values(data.specs)) if (spec.format === "micros") spec.header = spec.header?.replace("µs", Format.time[1]) ?? null;
    this.tables = data.runs.map((run) => new Columns(run, data.specs));
  }

  static async read({ textContent, dataset }) {
    if (dataset.encoding !== "gzip") return new Report(JSON.parse(textContent));
    const bytes = Uint8Array.from(atob(textContent), (letter) => letter.charCodeAt());
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Report(await new Response(stream).json());
  }

  /** The column by which rows are sorted at first. */
  sortedBy(rows, chosen = "") {
    return [chosen, this.first.sort, "time_us", "macs"].find((name) => rows.has(name)) ?? "";
  }

  /** The rows selected at first: those of the first line of the table. */
  leading(run) {
    if (!this.rows(run)) return [];
    const rows = this.grouped(run, this.groupings(run)[0]), [row] = rows.ordered(this.sortedBy(rows));
    return row === undefined ? [] : rows.members(row);
  }

  rows(run) {
    return this.tables[run] ?? this.tables[0];
  }

  grouped(run, by) {
    const key = `${run} ${by}`;
    if (!this.folded.has(key)) this.folded.set(key, Groups.by(this.rows(run), by));
    return this.folded.get(key);
  }

  /** What a row of the table may be, in a run: the first is what it is at first. */
  groupings(run) {
    const rows = this.rows(run), folded = rows.has("time_us") ? "kernel" : "folded node";
    const others = { op_type: "op", module: "module", source: "source" };
    return [...(rows.folded.length < rows.size ? [folded] : []), "node", ...Object.keys(others).filter((name) => rows.has(name)).map((name) => others[name])];
  }
}
