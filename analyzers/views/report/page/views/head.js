/* The head: what ran, how long it took, and whether the times add up to what a clock says. */

class Head extends View {
  static id = "head";
  static title = "Summary";
  static place = "head";
  static fits = () => true;

  draw() {
    const { run, report } = this, sum = run?.sum, sides = report.pairs.length ? report.runs.filter((each) => each.sum) : [];
    const most = Math.max(...sides.map((each) => Math.max(each.sum.high_us, each.sum.nodes_us))), isBusy = (line) => line.startsWith("busy machine");
    return [
      html.h1(run?.title || report.title),
      ...sides.flatMap((side) => [html.p({ class: "side" }, html.b(side.letter), ` ${side.label}`), this.check(side.sum, most)]),
      ...(report.runs.length > 1 ? [this.chooser()] : []),
      ...(run?.lines ?? []).filter(isBusy).map((line) => html.p({ class: "busy" }, line)),
      ...(sum && !sides.length ? [this.check(sum)] : []),
      ...this.lines((run?.lines ?? []).filter((line) => !isBusy(line) && (!sum || !/^(wall|nodes|rest|return) /.test(line)))),
      ...(run?.code.length ? [html.pre(html.code(run.code.join("\n")))] : []),
      ...Head.folded("notes", html.ul, report.notes.map((note) => html.li(note))),
      ...Head.folded("environment", html.dl, Head.facts(report.environment)),
    ];
  }

  chooser() {
    const options = this.report.runs.map(({ letter, label }, index) =>
      html.option({ value: index, selected: index === this.state.run }, letter ? `${letter}: ${label}` : label));
    const choose = (event) => this.state.set({ run: Number(event.target.value) });
    return html.label({ class: "chooser" }, this.report.pairs.length ? "graph and rows of " : "run ", html.select({ onchange: choose }, options));
  }

  /** A bar as long as the wall time: the nodes, a run without nodes, and what is left; `most` fills the width. */
  check({ wall_us, low_us, high_us, nodes_us, rest_us, empty_us, coverage }, most = Math.max(high_us, nodes_us)) {
    const at = (value) => `${(100 * value) / most}%`;
    const empty = Math.max(0, Math.min(empty_us ?? 0, rest_us)), left = Math.max(0, rest_us - empty);
    const [nodes, wall] = [nodes_us, wall_us].map(Format.duration), share = Format.fixed(100 * coverage, 0);
    const drawn = [
      ["nodes", nodes_us, `nodes ${nodes}`],
      ["empty", empty, `run without nodes ${Format.duration(empty_us ?? 0)}`],
      ["left", left, `other ${Format.duration(left)}`],
    ].filter(([, value]) => value > 0.0005 * most);
    const clock = ["wall", 0, `wall ${wall} ± ${Format.duration((high_us - low_us) / 2)}, nodes are ${share}% of it`];
    return html.figure(
      { class: "sum", role: "img", "aria-label": `nodes take ${nodes}, ${share}% of the wall time of ${wall}` },
      html.div({ class: "bar" }, drawn.map(([name, value]) => html.span({ class: name, style: { width: at(value) } })),
        html.span({ class: "interval", style: { left: at(low_us), width: at(high_us - low_us) } }),
        html.span({ class: "wall", style: { left: at(wall_us) } })),
      html.figcaption([...drawn, clock].map(([name, , text]) => html.span(html.i({ class: name }), text))),
    );
  }

  /** What the bar does not say: sentences, then what has a name, as `memory: 31 kB`. */
  lines(lines) {
    const parts = lines.map((line) => (/^(sums(?=  )|also|wall|nodes|rest|return)  ?(.*)$/).exec(line) ?? (/^([^:.]{1,40}): (.*)$/).exec(line));
    const facts = Head.facts(parts.filter(Boolean).map(([, name, text]) => [name, text]));
    return [...lines.filter((_, at) => !parts[at]).map((line) => html.p(line)), ...(facts.length ? [html.dl(facts)] : [])];
  }

  static folded = (title, list, items) => (items.length ? [html.details(html.summary(title), list(items))] : []);

  static facts = (pairs) => pairs.flatMap(([name, value]) => [html.dt(name), html.dd(value)]);
}

Views.add(Head);
