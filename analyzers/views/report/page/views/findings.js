/* Where to look first: the advice, each line a button that selects its rows. */

class Findings extends View {
  static id = "findings";
  static title = "Where to look first";
  static place = "findings";
  static depends = ["run", "selected"];
  static fits = (report) => report.runs.some((run) => run.findings.length);

  draw() {
    const { findings } = this.run, sorted = (rows) => String([...rows].sort((a, b) => a - b)), chosen = sorted(this.state.selected);
    this.host.parentNode.hidden = !findings.length;
    const items = findings.map(({ text, rows }) => {
      const [, topic, rest] = /^(.{1,39}?:(?= ))?(.*)$/s.exec(text), select = (event) => this.state.pick(rows, event);
      const button = Draw.button(html.b(topic ?? ""), select, { "aria-pressed": String(sorted(rows) === chosen) });
      button.append(rest);
      return html.li(button);
    });
    return [html.h2(Findings.title), html.ol(items)];
  }
}

Views.add(Findings);
