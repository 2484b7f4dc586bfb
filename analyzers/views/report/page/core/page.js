/* The page: a place for every view, the tabs of the pictures, and who hears of a change. */

class Page {
  static places = ["head", "findings", "picture", "details", "table"];

  constructor(main, report, state) {
    this.chooseRun(report, state);
    Object.assign(this, { main, report, state, run: state.run, shown: [] });
    for (const place of Page.places) this.build(place);
    main.hidden = false;
    this.front();
    for (const each of this.shown) this.draw(each, new Set(Object.keys(State.first)));
    state.addEventListener("change", (event) => this.changed(event.detail));
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** A fragment may name a run of another report. */
  chooseRun(report, state) {
    if (!(state.run in report.runs)) state.run = 0;
  }

  build(place) {
    const views = Views.fitting(this.report, place);
    if (!views.length) return;
    const region = Draw.element("section", { class: place, "aria-label": place });
    this.main.append(region);
    if (place === "picture") {
      region.append(this.tabs(views));
      new ResizeObserver(([entry]) => this.fit(entry.contentRect.width)).observe(region);
    }
    for (const view of views) {
      const host = Draw.element("div", { class: `view ${view.id}`, id: `view-${view.id}` });
      region.append(host);
      const each = { view, host, stale: new Set() };
      each.drawn = new view(host, this.report, this.state);
      if (place === "picture") this.asPanel(each);
      this.shown.push(each);
    }
  }

  tabs(views) {
    this.tabList = Draw.element("div", { class: "tabs", role: "tablist", onkeydown: (event) => this.alongTabs(event) });
    for (const view of views) {
      const open = () => this.state.set({ view: view.id });
      const attributes = { role: "tab", id: `tab-${view.id}`, "aria-controls": `view-${view.id}` };
      this.tabList.append(Draw.button(view.title, open, attributes));
    }
    return this.tabList;
  }

  asPanel({ view, host }) {
    host.setAttribute("role", "tabpanel");
    host.setAttribute("aria-labelledby", `tab-${view.id}`);
  }

  /** Shows the picture that the state names, or the first. */
  front() {
    const pictures = this.shown.filter(({ view }) => view.place === "picture");
    const chosen = pictures.find(({ view }) => view.id === this.state.view) ??
      pictures.find(({ view }) => view.leads === this.report.kind) ?? pictures[0];
    for (const each of pictures) {
      each.host.hidden = each !== chosen;
      const tab = document.getElementById(`tab-${each.view.id}`);
      tab.setAttribute("aria-selected", String(each === chosen));
      tab.tabIndex = each === chosen ? 0 : -1;
    }
  }

  /** Draws the pictures again where they have more or less room than before. */
  fit(width) {
    const before = this.width;
    this.width = width;
    if (!before || before === width) return;
    for (const each of this.shown.filter(({ view }) => view.place === "picture")) this.draw(each, new Set(["run"]));
  }

  changed(names) {
    if (names.has("run")) {
      this.chooseRun(this.report, this.state);
      this.state.selected = this.sameNodes();
      this.run = this.state.run;
      names.add("selected");
    }
    if (names.has("view")) this.front();
    for (const each of this.shown) this.draw(each, names);
  }

  /** Draws a view, or remembers what changed until it is in front. */
  draw(each, names) {
    for (const name of names) each.stale.add(name);
    if (each.host.hidden) return;
    const changed = each.stale;
    each.stale = new Set();
    try {
      each.drawn.render(changed);
    } catch (error) { // a mistake in one view must not hide the others
      each.host.replaceChildren(Draw.element("p", { class: "quiet" }, `${each.view.title} cannot be drawn: ${error}`));
      console.error(error);
    }
  }

  /** The rows of the run now shown that have the names of the rows selected before. */
  sameNodes() {
    const [before, rows] = [this.report.rows(this.run), this.report.rows(this.state.run)];
    const names = new Set(this.state.selected.map((row) => before.title(row)));
    return Array.from({ length: rows.size }, (_, row) => row).filter((row) => names.has(rows.title(row)));
  }

  alongTabs(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tabs = [...this.tabList.children];
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
  }

  pressed(event) {
    const typing = event.target.matches?.("input, select, textarea");
    if (event.key === "Escape" && !typing) this.state.set({ selected: [] });
  }
}
