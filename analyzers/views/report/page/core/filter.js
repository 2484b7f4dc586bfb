/* The filter of the table: words that a row must hold, and comparisons such as `time_us > 100`. */

class Filter {
  static comparison = /([^\s<>=!]+)\s*(<=|>=|!=|<|>|=)\s*([^\s<>=]+)/g;
  static searched = ["node", "op_type", "module", "source", "kernels"];
  static scales = { "%": 0.01, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  static tests = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
  };

  constructor(text) {
    this.problem = "";
    this.comparisons = [...text.matchAll(Filter.comparison)];
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
    const known = this.comparisons.filter(([, name]) => Filter.column(name, table) || !(this.problem = `no column ${name}`));
    return known.map(([, name, sign, value]) => {
      const column = Filter.column(name, table), values = table.column(column), unit = column !== name && table.specs[column].format === "micros" ? Format.time[0] : 1;
      const wanted = table.isText(column) ? value : unit * Filter.number(value); // a header has the unit of the table
      return (row) => Filter.tests[sign](values[row], wanted);
    });
  }

  /** The column that files call `name`, or whose header it is, with or without its unit. */
  static column(name, table) {
    const header = (each) => table.specs[each].header?.toLowerCase(), wanted = name.toLowerCase();
    if (table.specs[name] && table.has(name)) return name;
    return table.names().find((each) => [wanted, `${wanted} ${Format.time[1]}`].includes(header(each)));
  }

  /** 1500, 1.5k and 3M as numbers. */
  static number(text) {
    const [, digits, scale] = /^(.*?)([kMGT%]?)$/.exec(text);
    return Number(digits) * (Filter.scales[scale] ?? 1);
  }
}
