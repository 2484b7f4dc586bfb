/* The page: a place for every view, the tabs of the pictures, and who hears of a change. */

class Page {
  constructor(main, report, state) {
    Object.assign(this, { main, report, state, shown: [] });
    this.chooseRun();
    for (const place of ["head", "findings", "picture", "details", "table"]) this.build(place);
    this.pictures = this.shown.filter(({ tab }) => tab);
    main.hidden = false;
    this.front();
    for (const each of this.shown) this.draw(each, Object.keys(State.first));
    state.addEventListener("change", (event) => this.changed(event.detail));
    document.addEventListener("keydown", ({ key, target }) => {
      if (key === "Escape" && !target.matches?.("input, select, textarea")) state.set({ selected: [] });
    });
  }

  /** A fragment may name a run of another report. */
  chooseRun() {
    if (!(this.state.run in this.report.runs)) this.state.run = 0;
    this.run = this.state.run;
  }

  build(place) {
    const views = Views.fitting(this.report, place);
    if (!views.length) return;
    const region = html.section({ class: place, "aria-label": place });
    this.main.append(region);
    if (place === "picture") {
      this.tabs = html.div({ class: "tabs", role: "tablist", onkeydown: (event) => this.alongTabs(event) });
      region.append(this.tabs);
      new ResizeObserver(([entry]) => this.fit(entry.contentRect.width)).observe(region);
    }
    for (const view of views) {
      const panel = place === "picture" ? { role: "tabpanel", "aria-labelledby": `tab-${view.id}` } : {};
      const host = html.div({ class: `view ${view.id}`, id: `view-${view.id}`, ...panel });
      region.append(host);
      this.shown.push({ view, host, tab: place === "picture" && this.tab(view), stale: new Set(), drawn: new view(host, this.report, this.state) });
    }
  }

  tab({ id, title }) {
    const open = () => this.state.set({ view: id });
    const tab = Draw.button(title, open, { role: "tab", id: `tab-${id}`, "aria-controls": `view-${id}` });
    this.tabs.append(tab);
    return tab;
  }

  front() {
    const chosen = this.pictures.find(({ view }) => view.id === this.state.view) ?? this.pictures[0];
    for (const each of this.pictures) {
      each.host.hidden = each !== chosen;
      each.tab.setAttribute("aria-selected", each === chosen);
      each.tab.tabIndex = each === chosen ? 0 : -1;
    }
  }

  /** Draws the pictures again where they have more or less room than before. */
  fit(width) {
    if (this.width && this.width !== width) for (const each of this.pictures) this.draw(each, ["run"]);
    this.width = width;
  }

  changed(names) {
    if (names.has("run")) {
      const before = this.report.rows(this.run);
      this.chooseRun();
      const same = this.sameNodes(before, this.report.rows(this.run));
      this.state.selected = same.length ? same : this.report.leading(this.run);
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
      each.host.replaceChildren(html.p({ class: "quiet" }, `${each.view.title} cannot be drawn: ${error}`));
      console.error(error);
    }
  }

  /** The rows of the run now shown that have the names of the rows selected before. */
  sameNodes(before, rows) {
    const names = new Set(this.state.selected.map((row) => before.title(row)));
    return Array.from({ length: rows.size }, (_, row) => row).filter((row) => names.has(rows.title(row)));
  }

  alongTabs({ key }) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key], tabs = [...this.tabs.children];
    if (!step) return;
    const next = tabs.at((tabs.indexOf(document.activeElement) + step) % tabs.length);
    next.click();
    next.focus();
  }
}
