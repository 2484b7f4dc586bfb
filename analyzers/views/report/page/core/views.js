/* The registry of views: each file of `views/` adds one class.

   static id       name in the fragment and of its element
   static title    what its tab or heading says
   static place    "head", "findings", "picture" (a tab), "details" or "table"
   static leads    kind of report in which it is in front at first
   static fits(report)           whether the report has what it shows
   constructor(host, report, state)   `host` is its empty element
   render(changed)               draws; `changed` is the set of names in the state that changed */

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
