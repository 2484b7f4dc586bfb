/* What is selected and shown. All views share it, and the fragment of the address keeps it. */

class State extends EventTarget {
  /** Every name that the fragment may hold, its type, and its value at first. */
  static first = {
    run: 0,
    selected: [], // rows of the run
    view: "", // the picture in front
    color: "", // the column that colours the graph
    open: [], // boxes of the graph that were opened or closed by hand
    by: "", // what a row of the table is
    sort: "",
    descending: true,
    filter: "",
    every: false, // whether the table has all columns
    width: 0, // bits
    amount: "", inside: "", // the column and the module that the icicle shows
  };

  static pause = 150; // milliseconds

  /** `first` is what a page of this kind shows at first, where it differs from `State.first`. */
  constructor(first) {
    super();
    this.first = { ...State.first, ...first };
    const told = () => ({ ...structuredClone(this.first), ...State.read(location.hash) });
    Object.assign(this, told());
    addEventListener("hashchange", () => this.set(told()));
  }

  /** The state that a fragment tells; what it does not tell, or tells wrongly, is left out. */
  static read(hash) {
    const told = [...new URLSearchParams(hash.slice(1))].map(([name, text]) => [name, State.parsed(text, State.first[name])]);
    return Object.fromEntries(told.filter(([, value]) => value !== undefined));
  }

  static parsed(text, first) {
    if (typeof first === "string") return text;
    if (typeof first === "boolean") return text === "true";
    const numbers = text === "" ? [] : text.split(",").map(Number);
    if (first === undefined || !numbers.every(Number.isFinite)) return undefined;
    return Array.isArray(first) ? numbers : numbers[0];
  }

  /** Changes the state; views hear of the names whose values are other than before, all at once. */
  set(changes) {
    const names = Object.keys(changes).filter((name) => String(this[name]) !== String(changes[name]));
    if (!names.length) return;
    Object.assign(this, changes);
    clearTimeout(this.timer); // browsers refuse to change the address with every key that is typed
    this.timer = setTimeout(() => this.write(), State.pause);
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(names) }));
  }

  /** Selects rows; with Ctrl, Shift or the command key, adds them to the others or takes them away. */
  pick(rows, event) {
    const isAdded = event?.ctrlKey || event?.metaKey || event?.shiftKey, before = new Set(isAdded ? this.selected : []);
    const all = rows.every((row) => before.has(row));
    for (const row of rows) isAdded && all ? before.delete(row) : before.add(row);
    this.set({ selected: [...before] });
  }

  write() {
    if (location.protocol === "about:") return; // the frame of a notebook has no address of its own
    const told = Object.entries(this.first).filter(([name, first]) => String(this[name]) !== String(first));
    const text = new URLSearchParams(told.map(([name]) => [name, this[name]])).toString();
    history.replaceState(null, "", `#${text.replaceAll("%2C", ",")}`);
  }
}
