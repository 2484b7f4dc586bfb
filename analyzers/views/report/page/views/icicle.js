/* Modules as bars below each other, in the order of the run, as wide as the sum of what they hold: an icicle. */

class Icicle extends Chart {
  static id = "modules";
  static title = "Modules";
  static order = 30;
  static depends = ["run", "amount", "inside"];
  static line = 26; // pixels of a level
  static deepest = 16; // levels; deeper modules count for the one around them
  static missing = "No node has a module; models written by tracer export do.";
  static has = (run, rows) => rows.has("module") && Icicle.amounts(rows).length > 0;

  /** The columns that add up over rows and hold anything. */
  static amounts(rows) {
    const adds = ({ fold, header }, name) => fold === "sum" && header && name !== "calls" && name !== "nodes";
    return rows.names().filter((name) => adds(rows.specs[name], name) && rows.column(name).some((value) => value > 0));
  }

  draw() {
    const amounts = Icicle.amounts(this.rows), { amount, inside } = this.state;
    this.amount = amounts.includes(amount) ? amount : amounts[0];
    this.heat = amounts.includes("time_us") ? "time_us" : this.amount;
    const root = this.tree();
    this.total = root.value;
    this.shade = new Palette({ fold: "sum", header: "" }, [0, 1]);
    const top = inside.split(".").reduce((place, name) => place.parts.get(name) ?? place, root);
    return [this.tools(amounts, top.path), this.picture(top)];
  }

  /** Nested {name, path, value, rows, parts}: modules by the parts of their dotted path, then rows. */
  tree() {
    const [values, heats] = [this.amount, this.heat].map((name) => this.rows.column(name)), modules = this.rows.column("module");
    const part = (name, path) => ({ name, path, value: 0, heat: 0, rows: [], parts: new Map() });
    const root = part("whole model", "");
    for (let row = 0; row < this.rows.size; row++) {
      const value = values[row] > 0 ? values[row] : 0, heat = heats[row] > 0 ? heats[row] : 0;
      const names = (modules[row] ?? Groups.unknown.module).split(".").filter(Boolean).slice(0, Icicle.deepest);
      let place = root;
      for (const name of [...names, null]) {
        place.value += value;
        place.heat += heat;
        place.rows.push(row);
        if (name === null) break;
        if (!place.parts.has(name)) place.parts.set(name, part(name, place.path ? `${place.path}.${name}` : name));
        place = place.parts.get(name);
      }
      if (value) place.parts.set(row, { ...part(this.rows.value("op_type", row) ?? "", null), value, heat, rows: [row] });
    }
    return root;
  }

  tools(amounts, path) {
    return html.div({ class: "tools" },
      Chart.choice("Width ", amounts, this.rows.specs, this.amount, (amount) => this.state.set({ amount })),
      html.span({ class: "legend" }, "little", this.shade.strip(), `most ${this.heat === "time_us" ? "time" : "of it"} of its level`),
      path && Draw.button("Whole model", () => this.state.set({ inside: "" })),
      html.span({ class: "quiet" }, path ? `inside ${path}` : "Double-click or Enter looks inside a module."));
  }

  picture(top) {
    const width = Math.max(this.host.clientWidth, 280);
    const ondblclick = (event) => this.enter(this.marks.at(event));
    this.root = svg.svg({ class: "plot icicle", width, "aria-label": "Modules of the model", ondblclick });
    this.list = [];
    this.hottest = [];
    this.heatUp(top, 0);
    this.root.setAttribute("height", (this.part(top, 0, width, 0) + 1) * Icicle.line + 2);
    return this.mark(this.root, this.list, { next: (mark, key) => mark.beside[key], entered: (mark) => this.enter(mark) });
  }

  /** The most of each level, which has the brightest colour. */
  heatUp(part, level) {
    this.hottest[level] = Math.max(this.hottest[level] ?? 0, part.heat);
    for (const child of part.parts.values()) this.heatUp(child, level + 1);
  }

  /** Draws a part and what it holds from `left` on, in the order of the run; returns its deepest level. */
  part(part, left, wide, level) {
    const mark = this.bar(part, left, wide, level);
    let deepest = level, at = left, before = null;
    for (const child of part.parts.values()) {
      const width = (child.value / (part.value || 1)) * wide, place = this.list.length;
      if (width < 0.3) { // too narrow to see, but those after it stay where they are
        at += width;
        continue;
      }
      deepest = Math.max(deepest, this.part(child, at, width, level + 1));
      const inner = this.list[place];
      Object.assign(inner.beside, { ArrowUp: mark, ArrowLeft: before });
      (before ?? mark).beside[before ? "ArrowRight" : "ArrowDown"] = inner;
      before = inner;
      at += width;
    }
    return deepest;
  }

  bar({ name, path, value, heat, rows }, left, wide, level) {
    const y = level * Icicle.line + 1, share = Format.percent(value / (this.total || 1)), letters = (wide - 8) / Plot.letter;
    const text = letters > name.length + share.length ? `${name} ${share}` : Plot.cut(name, letters);
    const fill = this.shade.color(heat / (this.hottest[level] || 1)), gap = wide > 4 ? 0.5 : 0;
    const element = svg.g({ class: "bar" },
      Plot.rect(null, left + gap, y, Math.max(wide - 2 * gap, 0.5), Icicle.line - 2, { rx: 2 * gap, fill }),
      letters > 3 && Plot.text(null, left + 5, y + 16, "start", text, { fill: Palette.ink(fill) }));
    this.root.append(element);
    const title = path === null ? this.rows.title(rows[0]) : path || name;
    const label = `${title}: ${Format.complete(this.rows.specs[this.amount], value)}, ${share}`;
    const mark = { element, rows, path, label, beside: {} };
    this.list.push(mark);
    return mark;
  }

  /** Looks inside a module; from the one that fills the picture, into the one around it. */
  enter(mark) {
    if (!mark || mark.path === null) return false;
    const around = mark.path.split(".").slice(0, -1).join(".");
    this.state.set({ inside: mark === this.list[0] ? around : mark.path });
    return true;
  }
}

Views.add(Icicle);
