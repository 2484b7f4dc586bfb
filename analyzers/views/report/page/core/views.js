/* The registry of views: each file of `views/` adds one class. It has a static `id`, a `title`, a `place` (head,
   findings, picture, details or table), an `order` among the tabs, `leads` (the kind of
   report in which its tab is in front at first), and `fits(report)`. Its `render(changed)` draws;
   `changed` is the set of names in the state that changed. */

class View {
  static fits = (report) => report.runs.length > 0;

  /** `host` is the empty element of the view. */
  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  get run() {
    return this.report.runs[this.state.run] ?? this.report.runs[0];
  }
}

const Views = {
  all: [],

  add(view) {
    Views.all.push(view);
  },

  fitting(report, place) {
    const chosen = Views.all.filter((view) => view.place === place && view.fits(report));
    return chosen.sort((a, b) => (a.order ?? 50) - (b.order ?? 50));
  },
};
