/* The table of all rows: sorted, filtered, grouped, as wide as its place, and the way to copy it. */

class Table extends View {
  static id = "table";
  static title = "Table";
  static place = "table";
  static depends = ["run", "by", "sort", "descending", "filter", "every"];
  static step = 100; // rows drawn at first, and with every "more"
  static pinned = 20; // selected rows shown although their place is further down
  static longest = 34; // characters of a name before it is cut, where there is room
  static glyph = 7.4; // pixels of a character, about
  static gap = 18; // pixels between columns

  constructor(host, report, state) {
    super(host, report, state);
    this.members = new WeakMap();
    this.filter = html.input({
      type: "search", "aria-label": "filter rows", placeholder: "filter: conv, time_us > 100",
      oninput: () => state.set({ filter: this.filter.value }),
    });
    this.by = html.select({ onchange: () => state.set({ by: this.by.value, sort: "" }) });
    this.every = html.input({ type: "checkbox", onchange: () => state.set({ every: this.every.checked }) });
    this.status = html.output();
    this.choice = html.label("a row is a ", this.by);
    const tools = html.div({ class: "tools" }, this.filter, this.choice, html.label(this.every, " all columns"), Draw.button("copy as CSV", () => this.copy()), this.status);
    this.head = html.thead();
    this.body = html.tbody({ onkeydown: (event) => this.pressed(event) });
    this.more = Draw.button("", () => this.extend(), { class: "more" });
    this.scroller = html.div({ class: "scroller" }, html.table(this.head, this.body));
    host.append(html.h2(Table.title), tools, this.scroller, this.more);
    new ResizeObserver(() => this.resized()).observe(host);
  }

  draw() {
    this.limit = Table.step;
    this.arrange();
    this.list();
    return [...this.host.childNodes];
  }

  update(changed) {
    if (changed.has("selected")) this.mark();
  }

  arrange() {
    const groupings = this.report.groupings(this.state.run);
    const by = groupings.includes(this.state.by) ? this.state.by : groupings[0];
    this.by.replaceChildren(...groupings.map((each) => html.option({ value: each, selected: each === by }, each)));
    this.choice.hidden = groupings.length < 2;
    if (this.filter.value !== this.state.filter) this.filter.value = this.state.filter;
    this.every.checked = this.state.every;
    this.rows = this.report.grouped(this.state.run, by);
    this.key = this.rows.key ?? "node";
    const filter = new Filter(this.state.filter);
    this.order = this.sorted().filter(filter.test(this.rows, this.report.rows(this.state.run)));
    const all = Format.plural(this.rows.size, "row"), shown = this.order.length;
    this.status.textContent = filter.problem || (shown < this.rows.size ? `${Format.number(shown)} of ${all}` : all);
  }

  get sortedBy() {
    return this.report.sortedBy(this.rows, this.state.sort);
  }

  /** All rows in their order, which is kept: filters are typed faster than rows are sorted. */
  sorted() {
    const key = [this.state.run, this.by.value, this.sortedBy, this.state.descending].join();
    if (this.sortedAs !== key) Object.assign(this, { sortedAs: key, inOrder: this.rows.ordered(this.sortedBy, this.state.descending) });
    return this.inOrder;
  }

  /** The columns that fit, those with the lowest rank first; or all. */
  columns(drawn) {
    const specs = this.rows.specs;
    const full = (name) => drawn.some((row) => this.rows.text(name, row) !== "");
    const names = this.rows.names().filter((name) => name !== this.key && (this.state.every || specs[name].header !== null));
    if (this.state.every) return [this.key, ...names.filter((name) => name !== "bar" && full(name))];
    let room = this.host.clientWidth - this.width(this.key, drawn);
    const chosen = new Set();
    for (const name of names.filter(full).sort((a, b) => specs[a].rank - specs[b].rank)) {
      room -= this.width(name, drawn);
      if (room < 0) break;
      chosen.add(name);
    }
    return [this.key, ...names.filter((name) => chosen.has(name))];
  }

  width(name, drawn) {
    if (name === "bar") return 90;
    const lengths = drawn.map((row) => this.rows.text(name, row).length);
    const longest = Math.max((this.rows.specs[name].header ?? name).length + 2, ...lengths);
    return Table.gap + Table.glyph * Math.min(longest, this.rows.isText(name) ? this.longest : Infinity);
  }

  list() {
    const drawn = this.order.slice(0, this.limit);
    this.drawnWidth = this.host.clientWidth;
    this.longest = Math.max(12, Math.min(Table.longest, this.drawnWidth / 18));
    this.host.style.setProperty("--name", `${Table.glyph * this.longest + Table.gap}px`);
    this.names = this.columns(drawn.length ? drawn : [0]);
    this.head.replaceChildren(html.tr(this.names.map((name) => this.header(name))));
    this.lines = new Map(drawn.map((row) => [row, this.line(row)]));
    this.body.replaceChildren(...this.lines.values());
    this.first = drawn.length;
    this.mark();
    const rest = this.order.length - drawn.length;
    this.more.hidden = rest <= 0;
    this.more.textContent = `show ${Math.min(rest, Table.step)} more of ${Format.number(rest)}`;
  }

  header(name) {
    const spec = this.rows.specs[name], direction = this.state.descending ? "descending" : "ascending";
    if (name === "bar") return html.td();
    const button = Draw.button(spec.header ?? name, () => this.sort(name), { title: spec.sentence });
    return html.th({ scope: "col", class: !this.rows.isText(name) && "number", "aria-sort": name === this.sortedBy && direction }, button);
  }

  sort(name) {
    const again = name === this.sortedBy;
    const descending = again ? !this.state.descending : !this.rows.isText(name) && name !== "index";
    this.state.set({ sort: name, descending });
  }

  line(row) {
    const cells = this.names.map((name, at) => this.cell(name, row, at === 0));
    const line = html.tr({ tabindex: -1, onclick: (event) => this.pick(line, event) }, cells);
    this.members.set(line, this.rows.members(row));
    return line;
  }

  cell(name, row, isFirst) {
    if (name === "bar") {
      const share = Math.max(0, this.rows.value(name, row)) || 0;
      return html.td({ class: "bar" }, html.span({ style: { width: `${100 * share}%` } }));
    }
    const text = this.rows.text(name, row), isText = this.rows.isText(name);
    const attributes = { class: isText ? "name" : "number", title: isText && text.length > this.longest && text };
    const { prefix } = this.rows, isCut = name === "node" && attributes.title && prefix && text.startsWith(prefix);
    return html[isFirst ? "th" : "td"]({ ...attributes, scope: isFirst && "row" }, isCut ? `…${text.slice(prefix.length)}` : text);
  }

  /** Marks the selected rows; those whose place is further down are shown below the others. */
  mark() {
    const selected = new Set(this.state.selected), holds = (row) => this.rows.members(row).some((member) => selected.has(member));
    for (const line of [...this.body.children].slice(this.first)) line.remove();
    const below = selected.size ? this.order.slice(this.first).filter(holds).slice(0, Table.pinned) : [];
    const pinned = new Map(below.map((row) => [row, this.line(row)]));
    const gap = html.tr({ class: "gap" }, html.td({ colspan: this.names.length }, "selected, further down"));
    if (below.length) this.body.append(gap, ...pinned.values());
    let current = null;
    for (const [row, line] of [...this.lines, ...pinned]) {
      const isSelected = selected.size > 0 && holds(row);
      line.setAttribute("aria-selected", isSelected);
      line.tabIndex = -1;
      if (isSelected) current ??= line;
    }
    (current ?? this.body.firstElementChild)?.setAttribute("tabindex", "0");
    if (current) this.reveal(current);
  }

  /** Scrolls inside the table alone: the page stays where the reader is. */
  reveal(line) {
    if (this.body.contains(document.activeElement)) return;
    const [frame, place] = [this.scroller.getBoundingClientRect(), line.getBoundingClientRect()];
    const under = this.head.getBoundingClientRect().height;
    if (place.top < frame.top + under) this.scroller.scrollTop += place.top - frame.top - under;
    else if (place.bottom > frame.bottom) this.scroller.scrollTop += place.bottom - frame.bottom;
  }

  pick(line, event) {
    this.state.pick(this.members.get(line), event);
    const shown = this.body.contains(line) ? line : this.body.querySelector('[tabindex="0"]');
    shown?.focus({ preventScroll: event.type === "click" });
  }

  pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], lines = [...this.body.querySelectorAll("tr:not(.gap)")];
    const at = lines.indexOf(event.target.closest("tr"));
    if (!step || at < 0) return;
    event.preventDefault();
    if (lines[at + step]) this.pick(lines[at + step], event);
  }

  extend() {
    this.limit += Table.step;
    this.list();
  }

  resized() {
    if (this.rows && Math.abs(this.host.clientWidth - this.drawnWidth) > 1) this.list();
  }

  async copy() {
    const names = this.rows.names().filter((name) => name !== "bar" && name !== this.key);
    const text = Csv.of(this.rows, [this.key, ...names], this.order);
    try {
      await navigator.clipboard.writeText(text);
      this.status.textContent = `copied ${Format.plural(this.order.length, "row")}`;
    } catch {
      this.offer(text); // a frame, or a program without a clipboard
    }
  }

  offer(text) {
    const area = html.textarea({ readonly: true, "aria-label": "CSV", rows: 8 });
    area.value = text;
    this.host.querySelector("textarea")?.remove();
    this.scroller.before(area);
    area.select();
    this.status.textContent = "selected: copy it with Ctrl+C";
  }
}

Views.add(Table);
