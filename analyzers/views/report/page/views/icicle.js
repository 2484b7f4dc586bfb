/* Modules as bars below each other, as wide as the sum of what they hold: an icicle. */

class Icicle {
  static id = "modules";
  static title = "Modules";
  static place = "picture";
  static order = 30;
  static line = 26; // pixels of a level
  static deepest = 16; // levels; deeper modules count for the one around them
  static fits = (report) => report.runs.some((run, at) => report.rows(at).has("module") && Icicle.amounts(report.rows(at)).length);

  /** The columns that add up over rows and hold anything, in the order of the table. */
  static amounts(rows) {
    const adds = (name) => rows.specs[name].fold === "sum" && rows.specs[name].header && !["calls", "nodes"].includes(name);
    return rows.names().filter((name) => adds(name) && rows.column(name).some((value) => value > 0));
  }

  constructor(host, report, state) {
    Object.assign(this, { host, report, state });
  }

  render(changed) {
    if (!["run", "amount", "inside"].some((name) => changed.has(name))) return this.marks?.show();
    this.rows = this.report.rows(this.state.run);
    const amounts = this.rows.has("module") ? Icicle.amounts(this.rows) : [];
    if (!amounts.length) return this.host.replaceChildren(Plot.empty("No node has a module; models written by tracer export do."));
    this.amount = amounts.includes(this.state.amount) ? this.state.amount : amounts[0];
    this.spec = this.rows.specs[this.amount];
    const root = this.tree();
    this.total = root.value;
    const names = this.state.inside.split(".").filter(Boolean);
    const inside = names.reduce((place, name) => place.parts.get(name) ?? place, root);
    this.host.replaceChildren(this.tools(amounts, inside), this.picture(inside));
  }

  /** Nested {name, path, value, rows, parts}: modules by the parts of their dotted path, then rows. */
  tree() {
    const values = this.rows.column(this.amount), modules = this.rows.column("module");
    const root = this.part("whole model", "");
    for (let row = 0; row < this.rows.size; row++) {
      const value = values[row] > 0 ? values[row] : 0;
      const names = modules[row] === null ? [Groups.unknown.module] : modules[row].split(".").filter(Boolean);
      let place = root;
      for (const name of [...names.slice(0, Icicle.deepest), null]) {
        place.value += value;
        place.rows.push(row);
        if (name === null) break;
        if (!place.parts.has(name)) place.parts.set(name, this.part(name, place.path ? `${place.path}.${name}` : name));
        place = place.parts.get(name);
      }
      if (value) place.parts.set(row, { ...this.part(this.rows.value("op_type", row) ?? "", null), value, rows: [row] });
    }
    return root;
  }

  part(name, path) {
    return { name, path, value: 0, rows: [], parts: new Map() };
  }

  tools(amounts, inside) {
    const options = amounts.map((name) => Draw.element("option", { value: name, selected: name === this.amount }, this.rows.specs[name].header));
    const choice = Draw.element("select", { onchange: (event) => this.state.set({ amount: event.target.value }) }, options);
    const out = inside.path ? Draw.button("Whole model", () => this.state.set({ inside: "" })) : null;
    const told = inside.path ? `inside ${inside.path}` : "Double-click or Enter looks inside a module.";
    return Draw.element("div", { class: "tools" }, Draw.element("label", {}, "Width ", choice), out, Draw.element("span", { class: "faint" }, told));
  }

  picture(inside) {
    const wide = Math.max(this.host.clientWidth, 280);
    this.root = Draw.svg("svg", { class: "plot icicle", width: wide, "aria-label": "Modules of the model" });
    this.list = [];
    const height = (this.draw(inside, 0, wide, 0) + 1) * Icicle.line + 2;
    this.root.setAttribute("height", height);
    this.marks = new Marks(this.root, this.state, { next: (mark, key) => mark.beside[key], entered: (mark) => this.enter(mark) });
    this.marks.set(this.list);
    this.root.addEventListener("dblclick", (event) => this.enter(this.marks.at(event)));
    return this.root;
  }

  /** Draws a part and what it holds from `left` on, the widest first; returns its deepest level. */
  draw(part, left, wide, level) {
    const mark = this.bar(part, left, wide, level);
    let deepest = level, at = left, before = null;
    for (const child of [...part.parts.values()].sort((one, other) => other.value - one.value)) {
      const width = (child.value / (part.value || 1)) * wide;
      if (width < 0.7) break; // all others are narrower
      const place = this.list.length;
      deepest = Math.max(deepest, this.draw(child, at, width, level + 1));
      const inner = this.list[place];
      inner.beside = { ...inner.beside, ArrowUp: mark, ArrowLeft: before };
      if (before) before.beside.ArrowRight = inner;
      else mark.beside.ArrowDown = inner;
      before = inner;
      at += width;
    }
    return deepest;
  }

  bar(part, left, wide, level) {
    const y = level * Icicle.line + 1, share = Format.percent(part.value / (this.total || 1));
    const element = Draw.svg("g", { class: part.path === null ? "bar row" : "bar" },
      Draw.svg("rect", { x: left + 0.5, y, width: Math.max(wide - 1, 0.5), height: Icicle.line - 2, rx: 2 }));
    const letters = Math.floor((wide - 8) / Plot.letter);
    const text = letters > part.name.length + share.length ? `${part.name} ${share}` : Plot.cut(part.name, letters);
    if (letters > 2) element.append(Draw.svg("text", { x: left + 5, y: y + 16 }, text));
    this.root.append(element);
    const name = part.path === null ? this.rows.title(part.rows[0]) : part.path || part.name;
    const label = `${name}: ${Format.whole(this.spec, part.value)}, ${share}`;
    const mark = { element, rows: part.rows, label, part, beside: {} };
    this.list.push(mark);
    return mark;
  }

  /** Looks inside a module; inside the one that fills the picture, looks at the one around it. */
  enter(mark) {
    if (!mark || mark.part.path === null) return false;
    const isOuter = mark === this.list[0];
    this.state.set({ inside: isOuter ? mark.part.path.split(".").slice(0, -1).join(".") : mark.part.path });
    return true;
  }
}

Views.add(Icicle);
