/* Rows as CSV, under the names that files give to columns. */

const Csv = {
  /** What a spreadsheet would run as a formula begins with one of these. */
  formula: /^[=+\-@]/,

  of(table, names, rows) {
    const line = (row) => names.map((name) => Csv.cell(table.value(name, row))).join(",");
    return [names.join(","), ...rows.map(line), ""].join("\n");
  },

  cell(value) {
    if (value === null || Number.isNaN(value)) return "";
    if (typeof value === "number") return String(value);
    const inert = Csv.formula.test(value) ? `'${value}` : value;
    return /[",\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  },
};
