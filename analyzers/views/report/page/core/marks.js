/* What can be picked in a picture: a list of marks, one of them current, each about some rows.

   The picture is one stop of the Tab key. Arrow keys walk its marks, Enter and Space pick the
   current one, a click picks what it hits; with Ctrl or Shift the rows are added. */

class Marks {
  static count = 0; // pictures of this page, so that every mark has an id of its own
  static steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

  /** `next(mark, key)` says which mark an arrow key leads to; by default the one before or after.
      `entered(mark)` says whether Enter did something else than to pick the mark. */
  constructor(root, state, { next, entered } = {}) {
    Object.assign(this, { root, state, list: [], current: null, prefix: `mark${Marks.count++}-` });
    this.next = next ?? ((mark, key) => this.list[this.list.indexOf(mark) + Marks.steps[key]]);
    this.entered = entered ?? (() => false);
    Draw.set(root, {
      tabindex: "0", role: "listbox", "aria-multiselectable": "true",
      onclick: (event) => this.clicked(event), onkeydown: (event) => this.pressed(event),
    });
  }

  /** Each mark is {element, rows, label}: an element of the picture, row numbers, words for readers.
      By its `key`, else by its label, the current mark is found again. */
  set(list) {
    const key = (mark) => mark.key ?? mark.label, before = this.current && key(this.current);
    this.list = list;
    this.current = list.find((mark) => key(mark) === before) ?? null;
    list.forEach(({ element, label }, index) => {
      Draw.set(element, { "data-mark": index, id: this.prefix + index, role: "option", "aria-label": label });
      element.prepend(svg.title(label));
    });
    this.show();
  }

  /** Outlines the marks all of whose rows are selected, and those that hold a selected row. */
  show() {
    const selected = new Set(this.state.selected);
    for (const { element, rows } of this.list) {
      const some = selected.size > 0 && rows.some((row) => selected.has(row)), all = some && rows.every((row) => selected.has(row));
      element.classList.toggle("selected", all);
      element.classList.toggle("holds", some && !all);
      element.setAttribute("aria-selected", all);
    }
    this.follow(this.current);
  }

  follow(mark) {
    this.current?.element.classList.remove("current");
    this.current = mark;
    mark?.element.classList.add("current");
    if (mark) this.root.setAttribute("aria-activedescendant", mark.element.id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  at(event) {
    return this.list[event.target.closest("[data-mark]")?.dataset.mark];
  }

  pick(mark, event) {
    this.follow(mark);
    this.state.pick(mark.rows, event);
  }

  clicked(event) {
    const mark = this.at(event);
    if (mark) this.pick(mark, event);
  }

  pressed(event) {
    const { key } = event, { current } = this;
    if (!this.list.length || event.altKey) return;
    if (key in Marks.steps) this.walk(current ? this.next(current, key) : this.start());
    else if (!current || (key !== "Enter" && key !== " ")) return;
    else if (key === " " || !this.entered(current)) this.pick(current, event);
    event.preventDefault();
  }

  start() {
    return this.list.find(({ element }) => element.classList.contains("selected")) ?? this.list[0];
  }

  walk(mark) {
    if (!mark) return;
    this.follow(mark);
    mark.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
