/* Reads the data and shows the page; what is readable without scripts gives way to it. */

(async () => {
  const report = await Report.read(document.getElementById("data"));
  const state = new State({ ...report.first, selected: report.leading(State.read(location.hash).run) });
  const rows = report.rows(state.run);
  state.selected = state.selected.filter((row) => Number.isInteger(row) && row >= 0 && row < (rows?.size ?? 0));
  new Page(document.getElementById("report"), report, state);
  document.getElementById("static").hidden = report.runs.length > 0;
})();
