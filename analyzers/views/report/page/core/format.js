/* Numbers as people read them: the same texts as analyzers/views/text.py, by the format of a column. */

const Format = {
  units: [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]],

  /** The text of a cell of a column; "" for a missing value. */
  cell(spec, value) {
    if (typeof value === "string") return value;
    return Number.isNaN(value ?? NaN) ? "" : Format[spec.format](value);
  },

  /** The same with every digit and the unit. */
  complete(spec, value) {
    if (spec.format === "micros") return Format.duration(value);
    const isLong = typeof value === "number" && ["si", "number"].includes(spec.format) && !Number.isNaN(value);
    const text = isLong ? Format.full(value) : Format.cell(spec, value);
    return text && spec.unit && !spec.unit.startsWith("of ") && value !== Infinity ? `${text} ${spec.unit}` : text;
  },

  whole: (value) => Format.fixed(value, 0),
  tenths: (value) => Format.fixed(value, 1),
  thousands: (value) => Format.grouped(Format.fixed(value, 0)),
  decibels: (value) => (Number.isFinite(value) ? Format.fixed(value, 1) : value > 0 ? "exact" : "nothing left"),
  noise: (value) => `${Format.general(100 * value, 2)} %`,

  size(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], whole = Math.trunc(value) || 0;
    const at = whole < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(whole) / 10));
    return `${Format.fixed(whole / 1024 ** at, at && 1)} ${units[at]}`;
  },

  exponent(value) {
    if (value === 0) return "0";
    const [short, power] = value.toExponential(1).split("e"), [long] = value.toExponential(30).split("e"), exponent = Number(power);
    return `${Format.even(short, long.slice(long.indexOf(".") + 2))}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  },

  /** A ratio with three digits: 0.983, 12.4, 1,234. */
  times(value) {
    if (!Number.isFinite(value)) return "";
    if (value >= 1000) return Format.grouped(Format.fixed(value, 0));
    const text = Format.general(value, 3), [mantissa, power] = text.split("e"), digits = mantissa.replace(/^[-0.]+|\./g, "").length;
    const zeros = "0".repeat(Math.max(0, 3 - (value ? digits : 1))), dot = zeros && !mantissa.includes(".") ? "." : "";
    return `${mantissa}${dot}${zeros}${power === undefined ? "" : `e${power}`}`;
  },

  name: String,
  path: String,
  count: (value) => Format.general(value, 6),
  nonzero: (value) => (value ? Format.count(value) : ""),
  difference: (value) => Format.general(value, 3),
  cosine: (value) => Format.fixed(value, 6),
  width: (value) => (value > 64 ? ">64" : Format.count(value)),
  bar: (value) => Format.percent(value),
  percent: (value) => `${Format.fixed(value * 100, 1)}%`,
  number: (value) => (Math.abs(value) < 1e7 ? Format.grouped(Format.fixed(value, 0)) : Format.si(value)),

  steps: [[1e6, "s"], [1e3, "ms"]],
  time: [1, "µs"], // the unit of all columns of times, and how many µs it is

  /** Chooses the unit of columns whose times are up to `largest` µs. */
  fitTime(largest) {
    Format.time = Format.steps.find(([scale]) => largest >= 10 * scale) ?? [1, "µs"];
  },

  micros(value) {
    const size = value / Format.time[0];
    if (Format.time[0] > 1 && size > 0 && size < 0.005) return Format.fixed(size, Math.min(-Math.floor(Math.log10(size)), 4));
    return Format.grouped(Format.fixed(size, size >= 1000 ? 0 : size >= 100 ? 1 : 2));
  },

  /** A time of µs with the unit that fits it: 217.5 µs, 28.2 ms, 1.24 s. */
  duration(value) {
    if (Number.isNaN(value ?? NaN)) return "";
    const [scale, unit] = Format.steps.find(([scale]) => Math.abs(value) >= 0.9995 * scale) ?? [1, "µs"], size = Math.abs(value) / scale;
    const decimals = scale === 1 ? (value >= 100 ? 1 : 2) : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return `${Format.grouped(Format.fixed(value / scale, decimals))} ${unit}`;
  },
  roof: (value) => (value < 1.005 ? `${Format.fixed(value * 100, 0)}%` : `${Format.fixed(value, 1)}x`),

  /** 2.36 M */
  si(value) {
    const rounded = Number(Format.general(value, 3)), [scale, unit] = Format.units.find(([scale]) => Math.abs(rounded) >= scale) ?? [1, ""];
    const text = Math.abs(rounded / scale) >= 100 && unit ? Format.fixed(rounded / scale, 0) : Format.general(rounded / scale, 3);
    return unit ? `${text} ${unit}` : text;
  },

  /** A number with a unit: 2.36 MB, 144 B. */
  quantity(value, unit) {
    const text = Format.si(value);
    return text.includes(" ") ? `${text}${unit}` : `${text} ${unit}`;
  },

  /** 1 node, 2,000 nodes. */
  plural: (count, noun) => `${Format.grouped(count)} ${noun}${count === 1 ? "" : "s"}`,

  full(value) {
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 1e5) return Format.grouped(Format.fixed(value, 0));
    return size >= 1 ? Format.grouped(Format.general(value, 6)) : Format.general(value, 3);
  },

  grouped(text) {
    const [, sign, whole, rest] = /^(-?)(\d*)(.*)$/.exec(text);
    return sign + whole.replace(/\B(?=(\d{3})+$)/g, ",") + rest;
  },

  /** A number with so many decimals. JavaScript rounds a tie up, Python to the even digit. */
  fixed(value, decimals) {
    if (!Number.isFinite(value)) return Format.infinite(value);
    if (Math.abs(value) >= 1e21) return BigInt(value) + (decimals ? `.${"0".repeat(decimals)}` : "");
    const short = value.toFixed(decimals);
    const long = value.toFixed(Math.min(100, decimals + 30));
    const text = Format.even(short, long.slice(long.indexOf(".") + 1 + decimals));
    return (value < 0 || Object.is(value, -0)) && !text.startsWith("-") ? `-${text}` : text;
  },

  /** At most so many significant digits, as Python's %g writes them. */
  general(value, digits) {
    if (!Number.isFinite(value)) return Format.infinite(value);
    if (value === 0) return Object.is(value, -0) ? "-0" : "0";
    const [long] = value.toExponential(Math.min(100, digits + 29)).split("e");
    const [short, power] = value.toExponential(digits - 1).split("e");
    const mantissa = Format.even(short, long.slice(long.indexOf(".") + digits));
    const exponent = Number(power), bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    if (exponent >= -4 && exponent < digits) {
      return bare(Number(`${mantissa}e${exponent}`).toFixed(Math.max(0, digits - 1 - exponent)));
    }
    return `${bare(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  },

  /** `short`, whose last digit was rounded up where `rest`, all that follows, is exactly a half. */
  even(short, rest) {
    if (!/^50*$/.test(rest)) return short;
    const last = Number(short.at(-1));
    return last % 2 ? short.slice(0, -1) + (last - 1) : short;
  },

  infinite: (value) => (Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf"),
};
