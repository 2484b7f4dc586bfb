/* Where to look first: the advice, each line a button that selects its rows. */

class Findings extends View {
  static id = "findings";
  static title = "Where to look first";
  static place = "findings";
  static fits = (report) => report.runs.some((run) => run.findings.length);

  render(changed) {
    if (!changed.has("run") && !changed.has("selected")) return;
    const findings = this.run.findings;
    this.host.parentNode.hidden = !findings.length;
    const chosen = String([...this.state.selected].sort((a, b) => a - b));
    const items = findings.map((finding) => {
      const pressed = String([...finding.rows].sort((a, b) => a - b)) === chosen;
      const select = (event) => this.state.pick(finding.rows, event);
      const [topic, rest] = Findings.split(finding.text);
      const button = Draw.button(Draw.element("b", {}, topic), select, { "aria-pressed": String(pressed) });
      button.append(rest);
      return Draw.element("li", {}, button);
    });
    this.host.replaceChildren(Draw.element("h2", {}, Findings.title), Draw.element("ol", {}, items));
  }

  /** The topic before the first colon, and the rest. */
  static split(text) {
    const at = text.indexOf(": ");
    return at > 0 && at < 40 ? [text.slice(0, at + 1), text.slice(at + 1)] : ["", text];
  }
}

Views.add(Findings);
