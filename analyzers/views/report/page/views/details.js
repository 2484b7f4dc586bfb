/* All that is known of the selected rows: columns with their meaning, kernel, source line, advice. */

class Details extends View {
  static id = "details";
  static title = "Selection";
  static place = "details";
  static depends = ["run", "selected"];
  static most = 12; // names listed of a larger selection
  static told = new Set(["node", "op_type", "module", "source", "bar", "nodes", "kernels"]); // by more than a name and a value

  constructor(host, report, state) {
    super(host, report, state);
    host.setAttribute("aria-live", "polite");
  }

  draw() {
    const { selected } = this.state;
    if (selected.length > 1) return this.several(selected);
    return selected.length ? this.node(selected[0])
      : Details.head(Details.title, "Select a node in a picture or the table; Ctrl adds another, Escape clears.");
  }

  static head = (title, ...lines) => [html.h2(title), ...lines.map((line) => html.p({ class: "quiet" }, line))];

  node(row) {
    const place = ["op_type", "module"].map((name) => this.rows.value(name, row)).filter(Boolean).join(" · ");
    return [
      ...Details.head(this.rows.title(row), place), ...this.source(row), ...this.kernel(row), ...this.advice([row]), this.facts(this.rows, row),
    ];
  }

  several(selected) {
    const whole = this.rows.folded.find((rows) => rows.includes(selected[0])), [first] = whole, others = selected.length - Details.most;
    const isWhole = whole.length === selected.length && selected.every((row) => whole.includes(row)), rows = isWhole ? whole : selected;
    const title = `${this.rows.title(first)} +${selected.length - 1}`, name = this.rows.value("kernels", first);
    const head = isWhole ? [...Details.head(title, name ? `one kernel: ${name}` : "one row"), ...this.source(first)]
      : Details.head(Format.plural(selected.length, "node"));
    return [
      ...head,
      html.p({ class: "nodes" }, this.links(rows.slice(0, Details.most)), others > 0 && html.span(`and ${others} more`)),
      ...this.advice(rows),
      this.facts(new Groups(this.rows, "node", [rows], isWhole), 0),
    ];
  }

  /** The line that created the node, with its text where it was found. */
  source(row) {
    const place = this.rows.value("source", row), text = this.report.sources[place];
    return place ? [html.p({ class: "source" }, html.span(place), text && html.code(text))] : [];
  }

  /** The other nodes of the same kernel; the first has the time. */
  kernel(row) {
    const nodes = this.rows.byKernel.find((rows) => rows.includes(row)), [first, ...others] = nodes;
    if (!others.length) return [];
    const [said, named] = first === row ? ["one kernel with", others] : ["its time is in the kernel of", [first]];
    return [html.p({ class: "nodes" }, html.span(said), this.links(named))];
  }

  links(rows) {
    const link = (row) => Draw.button(this.rows.title(row), (event) => this.state.pick([row], event), { title: this.rows.value("op_type", row) });
    return rows.map(link);
  }

  advice(rows) {
    const about = this.run.findings.filter((finding) => finding.rows.some((row) => rows.includes(row)));
    return about.map(({ text }) => html.p({ class: "advice" }, text));
  }

  /** The columns of the table, then, folded, those that only files have. */
  facts(rows, row) {
    const told = rows.names().filter((name) => !Details.told.has(name) && rows.text(name, row) !== "");
    const list = (names) => html.dl(names.flatMap((name) => {
      const spec = rows.specs[name];
      return [html.dt({ title: spec.sentence }, spec.header ?? name), html.dd(rows.text(name, row, Format.complete))];
    }));
    const others = told.filter((name) => rows.specs[name].header === null);
    const more = others.length > 0 && html.details({ open: this.isMore, ontoggle: ({ target }) => { this.isMore = target.open; } }, html.summary("more"), list(others));
    return html.div(list(told.filter((name) => !others.includes(name))), more);
  }
}

Views.add(Details);
