/* The head: what ran, how long it took, and whether the times add up to what a clock says. */

class Head extends View {
  static id = "head";
  static title = "Summary";
  static place = "head";
  static fits = () => true;

  render(changed) {
    if (!changed.has("run")) return;
    const { run } = this, sum = run?.sum;
    this.host.replaceChildren(
      Draw.element("h1", {}, run?.title || this.report.title),
      ...(this.report.runs.length > 1 ? [this.chooser()] : []),
      ...(sum ? [this.check(sum)] : []),
      ...this.lines(run, sum),
      ...this.folded("notes", this.report.notes.map((note) => Draw.element("li", {}, note)), "ul"),
      ...this.folded("environment", this.facts(), "dl"),
    );
  }

  chooser() {
    const options = this.report.runs.map((run, index) => {
      const label = run.letter ? `${run.letter}: ${run.label}` : run.label;
      return Draw.element("option", { value: index, selected: index === this.state.run }, label);
    });
    const choose = (event) => this.state.set({ run: Number(event.target.value) });
    return Draw.element("label", { class: "chooser" }, "run ", Draw.element("select", { onchange: choose }, options));
  }

  /** A bar as long as the wall time: the nodes, a run without nodes, and what is left. */
  check(sum) {
    const most = Math.max(sum.high_us, sum.nodes_us);
    const at = (value) => `${(100 * value) / most}%`;
    const empty = Math.max(0, Math.min(sum.empty_us ?? 0, sum.rest_us));
    const left = Math.max(0, sum.rest_us - empty);
    const parts = [
      ["nodes", sum.nodes_us, `nodes ${Format.micros(sum.nodes_us)} µs`],
      ["empty", empty, `run without nodes ${Format.micros(sum.empty_us ?? 0)} µs`],
      ["left", left, `other ${Format.micros(left)} µs`],
    ];
    const drawn = parts.filter(([, value]) => value > 0.0005 * most);
    const bars = drawn.map(([name, value]) => Draw.element("span", { class: name, style: { width: at(value) } }));
    const interval = { class: "interval", style: { left: at(sum.low_us), width: at(sum.high_us - sum.low_us) } };
    const wall = { class: "wall", style: { left: at(sum.wall_us) } };
    return Draw.element(
      "figure", { class: "sum", role: "img", "aria-label": this.sentence(sum) },
      Draw.element("div", { class: "bar" }, bars, Draw.element("span", interval), Draw.element("span", wall)),
      Draw.element("figcaption", {}, this.key(drawn, sum)),
    );
  }

  key(drawn, sum) {
    const swatch = ([name, , text]) => Draw.element("span", {}, Draw.element("i", { class: name }), text);
    const half = Format.micros((sum.high_us - sum.low_us) / 2);
    const wall = `wall ${Format.micros(sum.wall_us)} ± ${half} µs, nodes are ${Format.fixed(100 * sum.coverage, 0)}% of it`;
    return [...drawn.map(swatch), swatch(["wall", 0, wall])];
  }

  sentence(sum) {
    const share = Format.fixed(100 * sum.coverage, 0);
    return `nodes take ${Format.micros(sum.nodes_us)} µs, ${share}% of the wall time of ${Format.micros(sum.wall_us)} µs`;
  }

  /** What the bar does not say: sentences, then what has a name, as `memory: 31 kB`. */
  lines(run, sum) {
    const lines = (run?.lines ?? []).filter((line) => !sum || !/^(wall|nodes|rest) /.test(line));
    const parts = lines.map((line) => /^(sums|also|wall|nodes|rest)  ?(.*)$/.exec(line) ?? /^([^:.]{1,40}): (.*)$/.exec(line));
    const sentences = lines.filter((_, at) => !parts[at]).map((line) => Draw.element("p", {}, line));
    const facts = parts.filter(Boolean).flatMap(([, name, text]) => [Draw.element("dt", {}, name), Draw.element("dd", {}, text)]);
    return [...sentences, ...(facts.length ? [Draw.element("dl", {}, facts)] : [])];
  }

  folded(title, items, list) {
    if (!items.length) return [];
    return [Draw.element("details", {}, Draw.element("summary", {}, title), Draw.element(list, {}, items))];
  }

  facts() {
    return this.report.environment.flatMap(([name, value]) => [
      Draw.element("dt", {}, name), Draw.element("dd", {}, value),
    ]);
  }
}

Views.add(Head);
