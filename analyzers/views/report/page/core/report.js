/* The data of the page: runs, their rows, and what their columns mean. */

class Report {
  constructor(data) {
    Object.assign(this, data); // title, kind, specs, runs, graphs, pairs, accuracy, sources, environment, notes
    this.tables = data.runs.map((run) => new Columns(run, data.specs));
    this.folded = new Map();
  }

  /** Reads the element with the data, which may be compressed. */
  static async read(element) {
    const text = element.textContent;
    if (element.dataset.encoding !== "gzip") return new Report(JSON.parse(text));
    const packed = atob(text);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Report(await new Response(stream).json());
  }

  /** The rows of a run. */
  rows(run) {
    return this.tables[run] ?? this.tables[0];
  }

  /** The rows of a run as groups; computed once. */
  grouped(run, by) {
    const key = `${run} ${by}`;
    if (!this.folded.has(key)) this.folded.set(key, Groups.by(this.rows(run), by));
    return this.folded.get(key);
  }

  /** What a row of the table may be, in a run: the first is what it is at first. */
  groupings(run) {
    const rows = this.rows(run);
    const fused = rows.has("time_us") && rows.kernelCount < rows.size;
    const places = ["module", "source"].filter((name) => rows.has(name));
    return [...(fused ? ["kernel"] : []), "node", "op", ...places];
  }
}
