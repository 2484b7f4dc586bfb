/* All that is known of the selected rows: columns with their meaning, kernel, source line, advice. */

class Details extends View {
  static id = "details";
  static title = "Selection";
  static place = "details";
  static most = 12; // names listed of a larger selection

  constructor(host, report, state) {
    super(host, report, state);
    host.setAttribute("aria-live", "polite");
  }

  render(changed) {
    if (!changed.has("run") && !changed.has("selected")) return;
    this.rows = this.report.rows(this.state.run);
    const selected = this.state.selected;
    const content = selected.length === 0 ? this.none() : selected.length === 1 ? this.node(selected[0]) : this.several(selected);
    this.host.replaceChildren(...content);
  }

  static quiet = (text) => Draw.element("p", { class: "quiet" }, text);

  none() {
    const hint = "Select a node in a picture or the table; Ctrl adds another, Escape clears.";
    return [Draw.element("h2", {}, Details.title), Details.quiet(hint)];
  }

  node(row) {
    const place = ["op_type", "module"].map((name) => this.rows.value(name, row)).filter(Boolean).join(" · ");
    return [
      Draw.element("h2", {}, this.rows.title(row)),
      Details.quiet(place),
      ...this.source(row),
      ...this.kernel(row),
      ...this.advice([row]),
      this.facts(this.rows, row),
    ];
  }

  several(selected) {
    const kernels = new Set(selected.map((row) => this.rows.kernels[row]));
    const whole = kernels.size === 1 && this.rows.kernelOf(selected[0]).length === selected.length;
    const first = this.rows.kernelOf(selected[0])[0];
    const title = whole ? `${this.rows.title(first)} +${selected.length - 1}` : Format.plural(selected.length, "node");
    const rows = whole ? this.rows.kernelOf(first) : selected;
    const others = selected.length - Details.most;
    return [
      Draw.element("h2", {}, title),
      ...(whole ? [Details.quiet(`one kernel: ${this.rows.value("kernels", first) ?? ""}`), ...this.source(first)] : []),
      Draw.element("p", { class: "nodes" }, this.links(rows.slice(0, Details.most)), others > 0 ? ` and ${others} more` : ""),
      ...this.advice(rows),
      whole ? this.facts(this.report.grouped(this.state.run, "kernel"), this.rows.byKernel.indexOf(rows)) : this.facts(Groups.one(this.rows, selected), 0),
    ];
  }

  /** The line that created the node, with its text where it was found. */
  source(row) {
    const place = this.rows.value("source", row);
    if (!place) return [];
    const text = this.report.sources[place];
    return [Draw.element("p", { class: "source" }, Draw.element("span", {}, place), text ? Draw.element("code", {}, text) : null)];
  }

  /** The other nodes of the same kernel; the first has the time. */
  kernel(row) {
    const nodes = this.rows.kernelOf(row);
    if (nodes.length < 2) return [];
    const others = nodes.filter((each) => each !== row);
    const said = nodes[0] === row ? "one kernel with " : "its time is in the kernel of ";
    return [Draw.element("p", { class: "nodes" }, said, this.links(nodes[0] === row ? others : [nodes[0]]))];
  }

  links(rows) {
    const link = (row) => Draw.button(this.rows.title(row), (event) => this.state.pick([row], event), { title: this.rows.value("op_type", row) ?? false });
    return rows.flatMap((row, at) => (at ? [", ", link(row)] : [link(row)]));
  }

  advice(rows) {
    const about = this.run.findings.filter((finding) => finding.rows.some((row) => rows.includes(row)));
    return about.map((finding) => Draw.element("p", { class: "advice" }, finding.text));
  }

  /** Every column with a value. */
  facts(rows, row) {
    const hidden = new Set(["node", "op_type", "module", "source", "bar", "nodes", "kernels"]);
    const told = rows.names().filter((name) => !hidden.has(name) && rows.text(name, row) !== "");
    const items = told.flatMap((name) => {
      const spec = rows.specs[name];
      const text = Format.whole(spec, rows.value(name, row));
      return [Draw.element("dt", { title: spec.sentence }, spec.header ?? name), Draw.element("dd", {}, text)];
    });
    return Draw.element("dl", {}, items);
  }
}

Views.add(Details);
