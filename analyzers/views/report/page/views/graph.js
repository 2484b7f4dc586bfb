/* The graph of the model: modules are boxes that open, and a column of the table gives the colours. */

class Graph {
  static id = "graph";
  static title = "Graph";
  static place = "picture";
  static order = 1;
  static most = 1500; // boxes at once; more would make the page slow
  static above = 18; // pixels for the names of inputs and outputs
  static units = { "µs": " µs", bits: " bits", B: " B" };
  static zooms = [0.1, 2.5];
  static kinds = 12; // values of a text that have colours
  static preferred = ["change_us", "time_share", "overflow_share", "bits_observed", "macs", "fate", "op_type"];
  static fits = (report) => report.runs.some((run) => run.graph !== null);

  constructor(host, report, state) {
    Object.assign(this, { host, report, state, scale: 0, rows: null });
    this.root = Draw.svg("svg", { class: "graph", "aria-label": "Graph of the model" });
    this.root.addEventListener("click", (event) => this.clicked(event));
    this.root.addEventListener("dblclick", (event) => this.toggle(this.marks.at(event)));
    this.marks = new Marks(this.root, state, { next: (mark, key) => this.next(mark, key), entered: (mark) => this.toggle(mark) });
    this.scroller = Draw.element("div", { class: "scroller" }, this.root);
    this.said = Draw.element("p", { class: "caption", role: "status" });
    this.legend = Draw.element("span", { class: "legend" });
    host.append(this.tools(), this.scroller, this.said);
    this.listen();
  }

  tools() {
    const button = (text, title, act) => Draw.button(text, act, { title, "aria-label": title });
    this.color = Draw.element("select", { onchange: () => this.state.set({ color: this.color.value }) });
    const find = (event) => event.key === "Enter" && this.find(event.target.value);
    return Draw.element("div", { class: "tools" },
      Draw.element("label", {}, "Colour ", this.color), this.legend,
      Draw.element("input", { type: "search", placeholder: "Find a node", "aria-label": "Find a node", onkeydown: find }),
      Draw.element("span", { class: "buttons" },
        button("−", "Smaller", () => this.zoom(this.scale / 1.25)), button("+", "Larger", () => this.zoom(this.scale * 1.25)),
        button("Fit", "Show the whole graph", () => this.fit()),
        button("Reset", "Close what was opened", () => this.state.set({ open: [] }))));
  }

  render(changed) {
    const graph = this.report.graphs[this.report.runs[this.state.run].graph];
    if (!graph) return this.leave();
    if (changed.has("run")) this.begin(graph);
    const opened = changed.has("selected") && this.reveal();
    if (opened || ["run", "color", "open"].some((name) => changed.has(name))) this.draw();
    if (!changed.has("selected")) return;
    this.outline();
    this.bringIntoView();
  }

  leave() {
    this.root.replaceChildren();
    this.marks.set([]);
    this.said.textContent = "There is no graph of this run: its file has none, or the model has too many nodes to draw.";
  }

  begin(graph) {
    this.graph = graph.boxes;
    this.ends = { source: graph.inputs, target: graph.outputs };
    this.rows = this.report.rows(this.state.run);
    this.geometry = new Geometry(graph);
    this.opened = new Set(graph.opened);
    this.held = new Map(); // rows of boxes
    this.boxes = new Map(); // boxes of rows
    this.graph.node.forEach((node, box) => {
      const row = node < 0 ? undefined : this.rows.ofNode(node);
      if (row !== undefined) this.boxes.set(row, box);
    });
    this.columns = this.rows.names().filter((name) => this.isColour(name));
    this.color.replaceChildren(...this.columns.map((name) => Draw.element("option", { value: name }, this.named(name))));
  }

  /** Whether a column can colour boxes: numbers that fold, or a text with few values. */
  isColour(name) {
    if (name === "op_type") return true; // there is always one column
    const { header, fold } = this.rows.specs[name];
    if (!header || name === "bar" || (!this.rows.isText(name) && fold === "none")) return false;
    const distinct = new Set(this.rows.column(name)).size;
    return distinct > 1 && (!this.rows.isText(name) || distinct <= Graph.kinds + 1);
  }

  named(name) {
    const { header, unit } = this.rows.specs[name];
    return !unit || header.endsWith(unit) ? header : `${header}, ${unit}`;
  }

  isOpen(box) {
    return this.opened.has(box) !== this.toggled.has(box);
  }

  /** Opens or closes the box of a mark; whether it is one that opens. */
  toggle(mark) {
    if (!mark || !this.geometry.children.has(mark.key)) return false;
    const before = this.shapes.get(mark.key), toggled = new Set(this.state.open);
    if (!toggled.delete(mark.key)) toggled.add(mark.key);
    this.state.set({ open: [...toggled] });
    const after = this.shapes.get(mark.key); // it stays where it was on the screen
    this.scroller.scrollLeft += (after.x + after.w / 2 - before.x - before.w / 2) * this.scale;
    this.scroller.scrollTop += (after.y - before.y) * this.scale;
    return true;
  }

  /** A click on the sign of a module opens or closes it, and does not select. */
  clicked(event) {
    if (this.dragged || event.target.closest(".sign")) event.stopImmediatePropagation();
    if (!this.dragged && event.target.closest(".sign")) this.toggle(this.marks.at(event));
  }

  /** The rows of all nodes in a box. */
  rowsOf(box) {
    if (!this.held.has(box)) {
      const own = this.graph.node[box] < 0 ? undefined : this.rows.ofNode(this.graph.node[box]);
      const inside = (this.geometry.children.get(box) ?? []).flatMap((child) => this.rowsOf(child));
      this.held.set(box, own === undefined ? inside : [own, ...inside]);
    }
    return this.held.get(box);
  }

  draw() {
    this.toggled = new Set(this.state.open);
    const wanted = [this.state.color, ...Graph.preferred, this.columns[0]];
    this.name = wanted.find((name) => this.columns.includes(name));
    this.color.value = this.name;
    const inside = this.geometry.inside(0, (box) => this.isOpen(box));
    this.shapes = new Map();
    this.lines = [];
    this.collect(inside, 0, Graph.above, 0);
    if (this.shapes.size > Graph.most && this.state.open.length) return this.refuse();
    this.said.textContent = "";
    Object.assign(this, { wide: inside.w, tall: inside.h + 2 * Graph.above });
    this.root.setAttribute("viewBox", `0 0 ${this.wide} ${this.tall}`);
    this.paint();
    this.zoom(this.scale || Math.min(1, Math.max(0.5, this.scroller.clientWidth / this.wide)));
    this.outline();
  }

  refuse() {
    this.state.open.pop();
    this.state.write();
    this.draw();
    this.said.textContent = `More than ${Format.grouped(String(Graph.most))} boxes would be open. Close a module first.`;
  }

  /** Lists what is drawn, from the outside in, at places in the whole picture. */
  collect(inside, x, y, parent) {
    const places = inside.boxes.map((shape) => ({ ...shape, x: shape.x + x, y: shape.y + y }));
    for (const shape of places) this.shapes.set(shape.box, shape);
    for (const edge of this.geometry.inner.get(parent) ?? []) {
      const [source, target] = [this.geometry.edges.source[edge], this.geometry.edges.target[edge]];
      const points = (inside.points.get(edge) ?? []).map(([at, top, bottom]) => [at + x, top + y, bottom + y]);
      const path = Geometry.path(this.shapes.get(source), this.shapes.get(target), points);
      this.lines.push({ source, target, points, parent, element: Draw.svg("path", { class: "edge", d: path }) });
    }
    for (const shape of places) {
      if (shape.inside) this.collect(shape.inside, shape.x, shape.y + Geometry.header, shape.box);
    }
  }

  paint() {
    const shapes = [...this.shapes.values()], closed = shapes.filter((shape) => !shape.inside);
    for (const shape of shapes) shape.value = this.value(this.rowsOf(shape.box));
    const palette = new Palette(this.rows.specs[this.name], closed.map((shape) => shape.value), this.rows.column(this.name));
    const marks = shapes.map((shape) => (shape.inside ? this.frame(shape) : this.box(shape, palette)));
    const drawn = (isFrame) => marks.filter((_, at) => Boolean(shapes[at].inside) === isFrame).map((mark) => mark.element);
    const edges = Draw.svg("g", {}, this.lines.map((line) => line.element));
    const names = [...this.names("source", 0), ...this.names("target", this.tall)];
    this.root.replaceChildren(...drawn(true), edges, ...drawn(false), ...names);
    this.marks.set(marks);
    this.legend.replaceChildren(...palette.legend().flat());
  }

  /** The names of the model's inputs (or outputs) where their edges begin (or end). */
  names(end, y) {
    const other = end === "source" ? "target" : "source", places = new Map();
    for (const line of this.lines.filter((each) => each.parent === 0 && each[end] < 0 && each.points.length)) {
      const x = line.points.at(end === "source" ? 0 : -1)[0];
      const named = Object.keys(this.ends[end]).filter((name) => this.ends[end][name].includes(line[other]));
      places.set(x, new Set([...(places.get(x) ?? []), ...named]));
    }
    const text = (names) => (names.length > 3 ? `${names.length} ${end === "source" ? "inputs" : "outputs"}` : names.join(", "));
    return [...places].map(([x, names]) => Draw.svg("text", { class: "faint", x, y: y + (y ? -5 : 13), "text-anchor": "middle" }, Plot.cut(text([...names]), 40)));
  }

  /** The value of one row or of several together; null where there is none. */
  value(rows) {
    const value = rows.length === 1 ? this.rows.value(this.name, rows[0]) : Groups.one(this.rows, rows).value(this.name, 0);
    return Number.isNaN(value) ? null : value;
  }

  /** The value as text; for a node in the kernel of another, that node. */
  written(shape) {
    const spec = this.rows.specs[this.name], [row, ...others] = this.rowsOf(shape.box);
    if (shape.value !== null) return this.isSaid(shape) ? "" : Format.cell(spec, shape.value) + (Graph.units[spec.unit] ?? "");
    const host = others.length || row === undefined ? null : this.rows.value("timed_in", row);
    return host && this.name.startsWith("time") ? `in ${host}` : "";
  }

  /** Whether the label of a node says its value already, as that of an operator does. */
  isSaid({ box, value }) {
    return typeof value === "string" && this.graph.label[box].startsWith(value);
  }

  label(box) {
    return this.graph.label[box] + (this.graph.repeat[box] > 1 ? ` ×${this.graph.repeat[box]}` : "");
  }

  described(shape) {
    const { box, inside } = shape, holds = this.geometry.children.has(box);
    const name = holds ? `${this.label(box)}, ${Format.plural(this.graph.count[box], "node")}` : this.rows.title(this.rowsOf(box)[0]) || this.label(box);
    return `${name}: ${this.named(this.name)} ${this.written(shape) || "–"}${holds ? (inside ? ", open" : ", closed") : ""}`;
  }

  /** An open box: a frame with its name above what it holds. */
  frame(shape) {
    const { x, y, w, h, box } = shape, text = `${this.label(box)}  ${this.written(shape)}`;
    const element = Draw.svg("g", { class: "open" },
      Draw.svg("rect", { x, y, width: w, height: h, rx: 8 }),
      Draw.svg("text", { class: "sign", x: x + 8, y: y + 18 }, "▾"),
      Draw.svg("text", { x: x + 26, y: y + 18 }, Plot.cut(text, Math.floor((w - 36) / Plot.letter))));
    return { key: box, rows: this.rowsOf(box), label: this.described(shape), element };
  }

  /** A node, or a closed box, which lies on a second sheet. */
  box(shape, palette) {
    const { x, y, w, h, box } = shape, holds = this.geometry.children.has(box);
    const fill = palette.color(shape.value), ink = fill && Draw.ink(fill), value = h < 30 ? "" : this.written(shape);
    const letters = Math.floor((w - (holds ? 28 : 10)) / Plot.letter);
    const middle = x + w / 2 + (holds ? 7 : 0), line = y + h / 2 + (value ? -2 : 4);
    const text = (attributes, words) => Draw.svg("text", { fill: ink, "text-anchor": "middle", x: middle, ...attributes }, words);
    const element = Draw.svg("g", { class: holds ? "closed" : "node" },
      holds ? Draw.svg("rect", { class: "sheet", x: x + 4, y: y + 4, width: w, height: h, rx: 6 }) : null,
      Draw.svg("rect", { class: fill ? null : "plain", x, y, width: w, height: h, rx: holds ? 6 : 4, fill }),
      holds ? text({ class: "sign", x: x + 12, y: line }, "▸") : null,
      text({ y: line }, Plot.cut(this.label(box), letters)),
      value ? text({ class: "value", y: line + 14 }, Plot.cut(value, letters)) : null);
    return { key: box, rows: this.rowsOf(box), label: this.described(shape), element };
  }

  /** Opens what holds the one selected row; many rows are only outlined. Whether anything opened. */
  reveal() {
    const { selected, open } = this.state, box = selected.length === 1 ? this.boxes.get(selected[0]) : undefined;
    const toggled = new Set(open);
    for (let around = this.graph.parent[box] ?? -1; around > 0; around = this.graph.parent[around]) {
      if (this.opened.has(around) !== toggled.has(around)) continue;
      if (!toggled.delete(around)) toggled.add(around);
    }
    if (toggled.size === open.length) return false;
    this.state.open = [...toggled]; // without an event: it follows from the selection
    this.state.write();
    return true;
  }

  /** Marks what is selected, and the edges at it. */
  outline() {
    this.marks.show();
    const chosen = this.marks.list.filter((mark) => mark.element.classList.contains("selected"));
    const lit = new Set(chosen.map((mark) => mark.key));
    for (const line of this.lines) line.element.classList.toggle("lit", lit.has(line.source) || lit.has(line.target));
  }

  /** Scrolls the graph alone, never the page, to the first selected box. */
  bringIntoView() {
    const having = (kind) => this.marks.list.findLast((mark) => mark.element.classList.contains(kind));
    const shape = this.shapes.get((having("selected") ?? having("holds"))?.key), view = this.scroller;
    if (!shape) return;
    const into = (start, size, from, room) => (start < from || start + size > from + room ? start + (Math.min(size, room) - room) / 2 : from);
    view.scrollLeft = into(shape.x * this.scale, shape.w * this.scale, view.scrollLeft, view.clientWidth);
    view.scrollTop = into(shape.y * this.scale, shape.h * this.scale, view.scrollTop, view.clientHeight);
  }

  /** The box that an arrow key leads to: along an edge, or beside in the same box. */
  next(mark, key) {
    const { parent } = this.graph, { source, target } = this.geometry.edges, shape = this.shapes.get(mark.key);
    const at = (box) => this.marks.list.find((each) => each.key === box);
    if (key === "ArrowDown" && shape.inside) return at(shape.inside.boxes[0].box);
    if (key === "ArrowDown" || key === "ArrowUp") {
      const [start, end] = key === "ArrowDown" ? [source, target] : [target, source];
      const edge = this.geometry.inner.get(parent[mark.key])?.find((each) => start[each] === mark.key && end[each] >= 0);
      return at(edge === undefined ? parent[mark.key] : end[edge]);
    }
    const beside = [...this.shapes.values()].filter((each) => parent[each.box] === parent[mark.key]);
    return at(beside[beside.indexOf(shape) + Marks.steps[key]]?.box);
  }

  /** Selects the next node that has the text in its name, operator or module. */
  find(text) {
    const word = text.trim().toLowerCase();
    if (!word || !this.rows) return;
    const tests = ["node", "op_type", "module"].map((name) => this.rows.holding(name, word));
    const found = [...this.boxes.keys()].filter((row) => tests.some((test) => test(row)));
    const at = (found.indexOf(this.state.selected[0]) + 1) % (found.length || 1);
    if (found.length) this.state.set({ selected: [found[at]] });
    this.said.textContent = found.length ? `${at + 1} of ${Format.plural(found.length, "node")}; Enter shows the next.` : `No node has '${text}' in its name, operator or module.`;
  }

  /** Sets the scale, and keeps the middle of what is seen. */
  zoom(scale) {
    const view = this.scroller, next = Math.min(Math.max(scale, Graph.zooms[0]), Graph.zooms[1]);
    const factor = next / (this.scale || next);
    const [x, y] = [view.scrollLeft + view.clientWidth / 2, view.scrollTop + view.clientHeight / 2];
    this.scale = next;
    this.root.setAttribute("width", this.wide * next);
    this.root.setAttribute("height", this.tall * next);
    if (factor !== 1) view.scrollTo(x * factor - view.clientWidth / 2, y * factor - view.clientHeight / 2);
  }

  fit() {
    this.zoom(Math.min(this.scroller.clientWidth / this.wide, this.scroller.clientHeight / this.tall, 1));
  }

  /** Ctrl and the wheel, or + - 0, zoom; dragging moves; the wheel alone scrolls, as everywhere. */
  listen() {
    const view = this.scroller;
    view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(this.scale * Math.exp(-event.deltaY / 300));
    }, { passive: false });
    this.root.addEventListener("keydown", (event) => {
      const zooms = { "+": () => this.zoom(this.scale * 1.25), "-": () => this.zoom(this.scale / 1.25), 0: () => this.fit() };
      if (event.key in zooms && !event.ctrlKey) zooms[event.key]();
    });
    view.addEventListener("pointerdown", () => { this.dragged = false; });
    view.addEventListener("pointermove", (event) => {
      if (event.buttons !== 1 || event.pointerType === "touch" || !(event.movementX || event.movementY)) return;
      this.dragged ||= Math.hypot(event.movementX, event.movementY) > 2;
      view.scrollBy(-event.movementX, -event.movementY);
    });
  }
}

Views.add(Graph);
