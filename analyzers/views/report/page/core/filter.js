/* The filter of the table: words that a row must hold, and comparisons such as `time_us > 100`. */

class Filter {
  static comparison = /([^\s<>=!]+)\s*(<=|>=|!=|<|>|=)\s*([^\s<>=]+)/g;
  static searched = ["node", "op_type", "module", "source", "kernels"];
  static scales = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  static tests = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
  };

  constructor(text) {
    this.problem = "";
    this.comparisons = [...text.matchAll(Filter.comparison)].map(([, name, sign, value]) => ({ name, sign, value }));
    this.words = text.replace(Filter.comparison, " ").toLowerCase().split(/\s+/).filter(Boolean);
  }

  /** A test of rows of `table`; `nodes` are the rows of the nodes that they stand for. */
  test(table, nodes) {
    const tests = [...this.words.map((word) => this.word(word, table, nodes)), ...this.compared(table)];
    return (row) => tests.every((test) => test(row));
  }

  word(word, table, nodes) {
    const tests = Filter.searched.map((name) => nodes.holding(name, word));
    return (row) => table.members(row).some((member) => tests.some((test) => test(member)));
  }

  compared(table) {
    return this.comparisons.flatMap(({ name, sign, value }) => {
      const column = Filter.column(name, table);
      if (!column) {
        this.problem = `no column ${name}`;
        return [];
      }
      const wanted = table.isText(column) ? value : Filter.number(value);
      const values = table.column(column);
      return [(row) => Filter.tests[sign](values[row], wanted)];
    });
  }

  /** The column that files call `name`, or whose header it is, with or without its unit. */
  static column(name, table) {
    if (table.specs[name] && table.has(name)) return name;
    const headers = (spec) => [spec.header?.toLowerCase(), spec.header?.toLowerCase().replace(/ µs$/, "")];
    return table.names().find((each) => headers(table.specs[each]).includes(name.toLowerCase()));
  }

  /** 1500, 1.5k and 3M as numbers. */
  static number(text) {
    const [, digits, scale] = /^(.*?)([kMGT%]?)$/.exec(text);
    return Number(digits) * (scale === "%" ? 0.01 : (Filter.scales[scale] ?? 1));
  }
}
