/* The graph of the model: modules are boxes that open, and a column of the table gives the colours. */

class Graph extends Chart {
  static id = "graph";
  static title = "Graph";
  static order = 1;
  static depends = ["run", "color", "open"];
  static most = 1500; // boxes at once; more would make the page slow
  static readable = 60; // boxes that a reader takes in at first
  static repeated = 3; // the kind of a box of equal blocks
  static above = 18; // pixels for the names of inputs and outputs
  static zooms = [0.1, 2.5];
  static kinds = 12; // values of a text that has colours
  static preferred = ["change_us", "time_share", "overflow_share", "bits_observed", "macs", "fate", "op_type"];
  static units = { bits: " bits", B: " B", dB: " dB" };
  static missing = "There is no graph of this run: its file has none, or the model is too large to draw.";
  static has = (run) => run.graph !== null;

  draw(changed) {
    if (this.drawn !== this.run) this.begin();
    if (changed.has("selected") || changed.has("run")) this.reveal(); // what is closed by hand stays closed
    const wanted = [this.state.color, ...Graph.preferred], step = (factor) => () => this.zoom(this.scale * factor);
    this.columns = this.rows.names().filter((name) => this.isColour(name));
    this.name = wanted.find((name) => this.columns.includes(name));
    this.spec = this.rows.specs[this.name];
    this.place();
    this.paint();
    this.zoom(this.scale ?? Math.min(1, Math.max(0.5, this.host.clientWidth / this.wide)));
    const button = (text, title, act) => Draw.button(text, act, { title, "aria-label": title });
    this.tools.replaceChildren(
      Chart.choice("Colour ", this.columns, this.rows.specs, this.name, (color) => this.state.set({ color })),
      html.span({ class: "legend" }, this.palette.legend()), this.query,
      html.span({ class: "buttons" }, button("−", "Smaller", step(0.8)), button("+", "Larger", step(1.25)),
        button("Fit", "Show the whole graph", () => this.fit()), button("Reset", "Close what was opened", () => this.state.set({ open: [] }))));
    return [this.tools, this.scroller, this.said];
  }

  update(changed) {
    if (changed.has("selected") && this.run.graph !== null && this.reveal()) return this.render(new Set(["open", "selected"]));
    if (!this.marks) return;
    super.update();
    const lit = new Set(this.marks.list.filter(({ element }) => element.classList.contains("selected")).map(({ key }) => key));
    for (const { source, target, element } of this.lines) element.classList.toggle("lit", lit.has(source) || lit.has(target));
    if (changed.has("selected")) this.bringIntoView();
  }

  begin() {
    const { boxes } = (this.graph = this.report.graphs[this.run.graph]);
    Object.assign(this, boxes, { drawn: this.run, geometry: new Geometry(this.graph), held: new Map() });
    this.boxOf = new Map(boxes.node.map((node, box) => [node < 0 ? undefined : this.rows.ofNode(node), box]));
    this.boxOf.delete(undefined);
    this.opened = this.openedAtFirst();
    if (this.root) return;
    this.root = svg.svg({ class: "graph", "aria-label": "Graph of the model" });
    this.tools = html.div({ class: "tools" });
    this.scroller = html.div({ class: "scroller" }, this.root);
    this.said = html.p({ class: "caption", role: "status" });
    const find = ({ key, target }) => key === "Enter" && this.find(target.value.trim());
    this.query = html.input({ type: "search", placeholder: "Find a node", "aria-label": "Find a node", onkeydown: find });
    this.keep = new Marks(this.root, this.state, { next: (mark, key) => this.next(mark, key), entered: (mark) => this.toggle(mark) });
    this.listen();
  }

  /** Whether a column can colour boxes: numbers that fold, or a text with few values. */
  isColour(name) {
    if (name === "op_type") return true; // there is always one column
    const { header, fold } = this.rows.specs[name], isText = this.rows.isText(name);
    if (!header || ["bar", "time_us_plus_minus"].includes(name) || (!isText && fold === "none" && !(name in Groups.derived))) return false;
    const distinct = new Set(this.rows.column(name)).size;
    return distinct > 1 && (!isText || distinct <= Graph.kinds + 1);
  }

  holds(box) {
    return this.geometry.children.has(box);
  }

  /** What is selected at first is seen; then the boxes open that hold most, while there is room. Of equal blocks one opens. */
  openedAtFirst() {
    const inside = (box) => this.geometry.children.get(box) ?? [], open = new Set([0]), amounts = new Map();
    const first = this.report.leading(this.state.run).find((row) => this.boxOf.has(row)), whole = this.amount(0);
    for (const box of this.around(this.boxOf.get(first))) open.add(box);
    for (;;) {
      const parents = [...open], room = Graph.readable - parents.reduce((sum, box) => sum + inside(box).length - 1, 0);
      const isOneOpen = (parent) => this.kind[parent] === Graph.repeated && inside(parent).some((box) => open.has(box));
      const closed = parents.filter((box) => !isOneOpen(box)).flatMap(inside).filter((box) => this.holds(box) && !open.has(box));
      for (const box of closed) if (!amounts.has(box)) amounts.set(box, this.amount(box));
      closed.sort((one, other) => amounts.get(other) - amounts.get(one));
      const next = closed.find((box) => inside(box).length <= room || amounts.get(box) > whole / 2);
      if (next === undefined) return open;
      open.add(next);
    }
  }

  /** How much of what the report is about a box holds: the column that sorts the table, or nodes. */
  amount(box) {
    const name = this.report.sortedBy(this.rows);
    return name ? Math.abs(this.value(this.rowsOf(box), name)) || 0 : this.count[box];
  }

  /** The boxes around a box, from the inside out, without the whole model. */
  around(box) {
    const boxes = [];
    for (let each = this.parent[box] ?? 0; each > 0; each = this.parent[each]) boxes.push(each);
    return boxes;
  }

  isOpen(box) {
    return this.opened.has(box) !== this.state.open.includes(box);
  }

  /** Opens or closes the box of a mark; whether it is one that opens. */
  toggle(mark) {
    if (!mark || !this.holds(mark.key)) return false;
    const before = this.shapes.get(mark.key), open = new Set(this.state.open);
    if (!open.delete(mark.key)) open.add(mark.key);
    this.state.set({ open: [...open] });
    const after = this.shapes.get(mark.key); // it stays where it was on the screen
    this.scroller.scrollBy((after.x + after.w / 2 - before.x - before.w / 2) * this.scale, (after.y - before.y) * this.scale);
    return true;
  }

  rowsOf(box) {
    if (!this.held.has(box)) {
      const own = this.node[box] < 0 ? [] : [this.rows.ofNode(this.node[box])].filter((row) => row !== undefined);
      this.held.set(box, [...own, ...(this.geometry.children.get(box) ?? []).flatMap((child) => this.rowsOf(child))]);
    }
    return this.held.get(box);
  }

  place() {
    for (;;) {
      const inside = this.geometry.inside(0, (box) => this.isOpen(box));
      Object.assign(this, { shapes: new Map(), lines: [], wide: inside.w, tall: inside.h + 2 * Graph.above });
      this.collect(inside, 0, Graph.above, 0);
      this.said.textContent = "";
      if (this.shapes.size <= Graph.most || !this.state.open.length) return;
      this.state.open.pop();
      this.said.textContent = `More than ${Graph.most} boxes would be open. Close a module first.`;
    }
  }

  /** Lists what is drawn, from the outside in, at places in the whole picture. */
  collect(inside, x, y, parent) {
    const places = inside.boxes.map((shape) => ({ ...shape, x: shape.x + x, y: shape.y + y }));
    for (const shape of places) this.shapes.set(shape.box, shape);
    for (const edge of this.geometry.inner.get(parent) ?? []) {
      const [source, target] = [this.graph.edges.source[edge], this.graph.edges.target[edge]];
      const points = (inside.points.get(edge) ?? []).map(([at, top, bottom]) => [at + x, top + y, bottom + y]);
      const path = Geometry.path(this.shapes.get(source), this.shapes.get(target), points);
      this.lines.push({ source, target, points, parent, element: svg.path({ class: "edge", d: path }) });
    }
    for (const shape of places) {
      if (!shape.inside) continue; // a frame may be wider than its inside, for its name
      this.collect(shape.inside, shape.x + (shape.w - shape.inside.w) / 2, shape.y + Geometry.header, shape.box);
    }
  }

  paint() {
    const shapes = [...this.shapes.values()];
    for (const shape of shapes) shape.value = this.value(this.rowsOf(shape.box));
    this.palette = new Palette(this.spec, shapes.filter(({ inside }) => !inside).map(({ value }) => value), this.rows.column(this.name));
    this.marks = this.keep;
    this.marks.set(shapes.map((shape) => {
      shape.element = shape.inside ? this.frame(shape) : this.box(shape);
      return { key: shape.box, rows: this.rowsOf(shape.box), label: this.described(shape), element: shape.element };
    }));
    const drawn = (isFrame) => shapes.filter(({ inside }) => Boolean(inside) === isFrame).map(({ element }) => element);
    const edges = svg.g(this.lines.map(({ element }) => element));
    this.root.setAttribute("viewBox", `0 0 ${this.wide} ${this.tall}`);
    const names = [...this.names("source", "target", 13), ...this.names("target", "source", this.tall - 5)];
    this.root.replaceChildren(...drawn(true), edges, ...drawn(false), ...names);
  }

  /** The names of the model's inputs (or outputs) where their edges begin (or end). */
  names(end, other, y) {
    const [named, last] = end === "source" ? [this.graph.inputs, 0] : [this.graph.outputs, -1], places = new Map();
    for (const line of this.lines.filter((each) => each.parent === 0 && each[end] < 0 && each.points.length)) {
      const [x] = line.points.at(last), here = Object.keys(named).filter((name) => named[name].includes(line[other]));
      places.set(x, [...(places.get(x) ?? []), ...here]);
    }
    return [...places].map(([x, names]) => Plot.text("faint", x, y, "middle", Plot.cut([...new Set(names)].join(", "), 40)));
  }

  /** The value of one row or of several together; null where there is none. */
  value(rows, name = this.name) {
    const value = rows.length === 1 ? this.rows.value(name, rows[0]) : new Groups(this.rows, "node", [rows]).value(name, 0);
    return Number.isNaN(value) ? null : value;
  }

  /** The value as text; for a node in the kernel of another, that node. */
  written({ box, value }) {
    const [row, ...others] = this.rowsOf(box);
    if (typeof value === "string" && this.label[box].startsWith(value)) return ""; // it says so already
    if (value !== null && this.spec.unit === "µs") return new Groups(this.rows, "node", [this.rowsOf(box)]).text(this.name, 0, Format.complete);
    if (value !== null) return Format.cell(this.spec, value) + (value === Infinity ? "" : Graph.units[this.spec.unit] ?? "");
    const host = others.length || row === undefined ? null : this.rows.value("timed_in", row);
    return host && this.name.startsWith("time") ? `in ${host}` : "";
  }

  titled(box) {
    return this.label[box] + (this.repeat[box] > 1 ? ` ×${this.repeat[box]}` : "");
  }

  described(shape) {
    const { box, inside } = shape, [row] = this.rowsOf(box), value = `${this.spec.header} ${this.written(shape) || "–"}`;
    if (!this.holds(box)) return `${row === undefined ? this.titled(box) : this.rows.title(row)}: ${value}`;
    return `${this.titled(box)}, ${Format.plural(this.count[box], "node")}: ${value}, ${inside ? "open" : "closed"}`;
  }

  /** An open box: a frame with its name above what it holds. */
  frame(shape) {
    const { x, y, w, h, box } = shape, text = Plot.cut(`${this.titled(box)}  ${this.written(shape)}`, (w - 36) / Plot.letter);
    return svg.g({ class: "open" }, Plot.rect(null, x, y, w, h, { rx: 8 }),
      Plot.text("sign", x + 8, y + 18, "start", "▾"), Plot.text(null, x + 26, y + 18, "start", text));
  }

  /** A node, or a closed box, which lies on a second sheet. */
  box(shape) {
    const { x, y, w, h, box } = shape, holds = this.holds(box), color = this.palette.color(shape.value), fill = color && Palette.ink(color);
    const value = this.written(shape), letters = (w - (holds ? 22 : 6)) / Plot.letter;
    const middle = x + w / 2 + (holds ? 7 : 0), line = y + h / 2 + (value ? -2 : 4), rx = holds ? 6 : 4;
    const text = (kind, left, top, words) => Plot.text(kind, left, top, "middle", words, { fill });
    return svg.g({ class: holds ? "closed" : "node" },
      holds && Plot.rect("sheet", x + 4, y + 4, w, h, { rx }), Plot.rect(color ? null : "plain", x, y, w, h, { rx, fill: color }),
      holds && text("sign", x + 12, line, "▸"), text(null, middle, line, Plot.cut(this.titled(box), letters)),
      value && text("value", middle, line + 14, Plot.cut(value, letters)));
  }

  /** Opens what holds the selected row or kernel; other rows are only outlined. Whether anything opened. */
  reveal() {
    const { selected, open } = this.state, whole = this.rows.folded.find((rows) => rows.includes(selected[0])) ?? [];
    const isOne = selected.length === 1 || selected.every((row) => whole.includes(row));
    const box = isOne ? this.boxOf.get(selected.find((row) => this.boxOf.has(row))) : undefined;
    const closed = this.around(box).filter((each) => !this.isOpen(each)), other = new Set(open);
    if (!closed.length) return false;
    for (const each of closed) if (!other.delete(each)) other.add(each); // a box that is open at first was closed by hand
    this.state.open = [...other]; // without an event: it follows from the selection
    this.state.write();
    return true;
  }

  /** Scrolls the graph alone, never the page, to the first selected box. */
  bringIntoView() {
    const having = (kind) => this.marks.list.findLast(({ element }) => element.classList.contains(kind));
    const shape = this.shapes.get((having("selected") ?? having("holds"))?.key), view = this.scroller;
    if (!shape) return;
    const into = (start, size, from, room) => (start < from || start + size > from + room ? start + (Math.min(size, room) - room) / 2 : from);
    view.scrollLeft = into(shape.x * this.scale, shape.w * this.scale, view.scrollLeft, view.clientWidth);
    view.scrollTop = into(shape.y * this.scale, shape.h * this.scale, view.scrollTop, view.clientHeight);
  }

  /** The box that an arrow key leads to: along an edge, or beside in the same box. */
  next({ key: box }, key) {
    const parent = this.parent[box], { inside } = this.shapes.get(box), at = (wanted) => this.marks.list.find((mark) => mark.key === wanted);
    if (key === "ArrowDown" && inside) return at(inside.boxes[0].box);
    const along = (start, end) => at(this.lines.find((line) => line[start] === box && line[end] >= 0)?.[end] ?? parent);
    if (key === "ArrowDown") return along("source", "target");
    if (key === "ArrowUp") return along("target", "source");
    const beside = [...this.shapes.keys()].filter((each) => this.parent[each] === parent);
    return at(beside[beside.indexOf(box) + Marks.steps[key]]);
  }

  /** Selects the next node that has the text in its name, operator or module. */
  find(text) {
    const tests = ["node", "op_type", "module"].map((name) => this.rows.holding(name, text.toLowerCase()));
    const found = text ? [...this.boxOf.keys()].filter((row) => tests.some((test) => test(row))) : [];
    const at = (found.indexOf(this.state.selected[0]) + 1) % (found.length || 1);
    this.said.textContent = `No node has '${text}' in its name, operator or module.`;
    if (!found.length) return;
    this.state.set({ selected: [found[at]] });
    this.said.textContent = `${at + 1} of ${Format.plural(found.length, "node")}; Enter shows the next.`;
  }

  /** Sets the scale, and keeps the middle of what is seen. */
  zoom(scale) {
    const view = this.scroller, [least, most] = Graph.zooms, before = this.scale;
    this.scale = Math.min(Math.max(scale, least), most);
    this.root.setAttribute("width", this.wide * this.scale);
    this.root.setAttribute("height", this.tall * this.scale);
    const moved = (from, room) => ((from + room / 2) * this.scale) / (before ?? this.scale) - room / 2;
    if (before !== this.scale) view.scrollTo(moved(view.scrollLeft, view.clientWidth), moved(view.scrollTop, view.clientHeight));
  }

  fit() {
    this.zoom(Math.min(this.scroller.clientWidth / this.wide, this.scroller.clientHeight / this.tall, 1));
  }

  /** Ctrl and the wheel, or + - 0, zoom; dragging moves; the wheel alone scrolls, as everywhere. */
  listen() {
    const on = (type, act) => this.scroller.addEventListener(type, act, { passive: false, capture: true });
    on("click", (event) => {
      const isSign = event.target.closest(".sign"); // it opens or closes, and does not select
      if (this.dragged || isSign) event.stopImmediatePropagation();
      if (isSign && !this.dragged) this.toggle(this.marks.at(event));
    });
    on("dblclick", (event) => this.toggle(this.marks.at(event)));
    on("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(this.scale * Math.exp(-event.deltaY / 300));
    });
    on("keydown", ({ key }) => {
      if (key === "0") this.fit();
      else if (key === "+" || key === "-") this.zoom(this.scale * (key === "+" ? 1.25 : 0.8));
    });
    on("pointerdown", () => { this.dragged = false; });
    on("pointermove", ({ buttons, pointerType, movementX, movementY }) => {
      if (buttons !== 1 || pointerType === "touch") return;
      this.dragged ||= Math.hypot(movementX, movementY) > 2;
      this.scroller.scrollBy(-movementX, -movementY);
    });
  }
}

Views.add(Graph);
