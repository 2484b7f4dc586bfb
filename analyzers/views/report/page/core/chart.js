/* A picture in a tab: drawn again when what it depends on changes, else only marked anew. */

class Chart {
  static place = "picture";
  static depends = ["run"]; // names in the state
  static most = 50; // marks of a list before its button is pressed
  static fits(report) {
    return report.runs.some((run, at) => this.has(run, report.rows(at)));
  }

  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  /** `draw()` returns the elements of a chart; `missing` says why a run has none. */
  render(changed) {
    const { depends, has, missing } = this.constructor;
    if (!depends.some((name) => changed.has(name))) return this.update(changed);
    this.run = this.report.runs[this.state.run];
    this.rows = this.report.rows(this.state.run);
    this.marks = null;
    const focus = this.host.querySelector(":focus")?.tagName;
    const drawn = has(this.run, this.rows) ? this.draw() : [Chart.caption(missing)];
    if (drawn.some((element, at) => element !== this.host.childNodes[at])) this.host.replaceChildren(...drawn);
    if (focus) this.host.querySelector(focus)?.focus();
    return this.update(changed);
  }

  update() {
    this.marks?.show();
  }

  /** Shows the marks of a picture. */
  mark(root, marks, keys) {
    this.marks = new Marks(root, this.state, keys);
    this.marks.set(marks);
    return root;
  }

  /** The first of many, and a button that shows the others. */
  first(list) {
    return this.all ? list : list.slice(0, this.constructor.most);
  }

  more(list, noun) {
    const hidden = list.length - this.first(list).length;
    const show = () => {
      this.all = true;
      this.render(new Set(["run"]));
    };
    return hidden ? Draw.button(`Show ${Format.plural(hidden, `more ${noun}`)}`, show) : "";
  }

  static caption(...parts) {
    return Draw.element("p", { class: "caption" }, parts.filter(Boolean).join(" "));
  }

  static choice(label, names, specs, chosen, choose) {
    const options = names.map((name) => Draw.element("option", { value: name, selected: name === chosen }, specs[name].header));
    return Draw.element("label", {}, label, Draw.element("select", { onchange: (event) => choose(event.target.value) }, options));
  }
}
