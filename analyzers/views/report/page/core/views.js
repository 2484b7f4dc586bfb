/* Views: a class in each file of `views/`. It has a static `id`, a `title`, and a `place` (head, findings, picture,
   details or table); tabs also have an `order`. */

class View {
  static depends = ["run"]; // names in the state for which it is drawn again
  static has = () => true; // whether a run has what it shows; `missing` says why not
  static fits(report) {
    return report.runs.some((run, at) => this.has(run, report.rows(at)));
  }

  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  /** `draw()` returns elements; `changed` is the set of names in the state that changed. */
  render(changed) {
    const { depends, has, missing } = this.constructor;
    if (depends.some((name) => changed.has(name))) {
      this.run = this.report.runs[this.state.run];
      this.rows = this.report.rows(this.state.run);
      this.marks = null;
      const drawn = has(this.run, this.rows) ? this.draw(changed) : [Chart.caption(missing)];
      if (drawn.some((element, at) => element !== this.host.childNodes[at])) this.host.replaceChildren(...drawn);
    }
    this.update(changed);
  }

  update() {
    this.marks?.show();
  }
}

/** A picture in a tab. */
class Chart extends View {
  static place = "picture";
  static most = 50; // marks of a list before its button is pressed

  render(changed) {
    const focus = this.host.querySelector(":focus")?.tagName;
    super.render(changed);
    if (focus && !this.host.contains(document.activeElement)) this.host.querySelector(focus)?.focus();
  }

  mark(root, marks, keys) {
    this.marks = new Marks(root, this.state, keys);
    this.marks.set(marks);
    return root;
  }

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
    return html.p({ class: "caption" }, parts.filter(Boolean).join(" "));
  }

  static choice(label, names, specs, chosen, choose) {
    const options = names.map((name) => html.option({ value: name, selected: name === chosen }, specs[name].header));
    return html.label(label, html.select({ onchange: (event) => choose(event.target.value) }, options));
  }
}

const Views = {
  all: [],
  add: (view) => Views.all.push(view),
  fitting: (report, place) => Views.all.filter((view) => view.place === place && view.fits(report)).sort((a, b) => a.order - b.order),
};
