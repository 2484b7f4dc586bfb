/* Places of boxes and edges while some boxes are open.

   Python has laid out the inside of every box with all boxes in it closed. An open box grows around
   its middle: boxes beside it in its row move aside, rows below it move down, and the box that
   holds them grows in turn. So nothing overlaps that did not before. */

class Geometry {
  static margin = 16;
  static header = 26;

  constructor({ boxes, edges }) {
    const [children, inner] = [Columns.positions(boxes.parent), Columns.positions(edges.parent)];
    Object.assign(this, { boxes, edges, children, inner, rows: new Map() });
  }

  /** The rows of a box from its upper to its lower border: its boxes, and points of edges, by x. */
  rowsOf(parent) {
    if (this.rows.has(parent)) return this.rows.get(parent);
    const { band, x, y, h, inner_h } = this.boxes, children = this.children.get(parent);
    const last = Math.max(...children.map((box) => band[box])) + 2;
    const rows = Array.from({ length: last + 1 }, (_, row) => ({ items: [], top: row ? inner_h[parent] : 0, height: 0 }));
    for (const box of children) {
      const row = rows[band[box] + 1];
      row.items.push({ x: x[box], box });
      row.top = y[box];
      row.height = Math.max(row.height, h[box]);
    }
    for (const edge of this.inner.get(parent) ?? []) {
      const { source, points } = this.edges, first = source[edge] < 0 ? 0 : band[source[edge]] + 2;
      for (let at = 0; 2 * at < points[edge].length; at++) rows[first + at].items.push({ x: points[edge][2 * at], edge });
    }
    for (const row of rows) row.items.sort((one, other) => one.x - other.x);
    this.rows.set(parent, rows);
    return rows;
  }

  /** The inside of a box while boxes in it are open: places relative to its corner. */
  inside(parent, isOpen) {
    const { w } = this.boxes, boxes = [], points = new Map();
    let down = 0, left = Infinity, right = -Infinity, height = 0;
    for (const row of this.rowsOf(parent)) {
      const sizes = new Map(row.items.filter(({ box }) => box !== undefined).map(({ box }) => [box, this.size(box, isOpen)]));
      const tall = Math.max(row.height, ...[...sizes.values()].map((size) => size.h)), top = row.top + down;
      let aside = [...sizes].reduce((sum, [box, size]) => sum + (w[box] - size.w) / 2, 0);
      for (const { x, box, edge } of row.items) {
        const size = sizes.get(box), at = x + aside;
        const free = size && (tall - size.h) / 2;
        if (size) boxes.push({ ...size, box, free, x: at, y: top + free });
        else points.get(edge)?.push([at, top, top + tall]) ?? points.set(edge, [[at, top, top + tall]]);
        if (size) aside += size.w - w[box];
        left = Math.min(left, at);
        right = Math.max(right, at + (size?.w ?? 0));
      }
      down += tall - row.height;
      height = top + tall;
    }
    const across = Geometry.margin - left;
    for (const box of boxes) box.x += across;
    for (const list of points.values()) for (const point of list) point[0] += across;
    return { w: right - left + 2 * Geometry.margin, h: height, boxes, points };
  }

  size(box, isOpen) {
    const { w, h } = this.boxes;
    if (!this.children.has(box) || !isOpen(box)) return { w: w[box], h: h[box], inside: null };
    const inside = this.inside(box, isOpen);
    return { w: Math.max(inside.w, w[box] + 50), h: inside.h + Geometry.header, inside };
  }

  /** A line from the foot of a box to the head of another. It bends between rows alone: `free` is
      the room above and below a box in its row. On a border it begins or ends at a point. */
  static path(from, to, points) {
    const stops = [...points];
    if (from) stops.unshift([from.x + from.w / 2, from.y + from.h, from.y + from.h + from.free]);
    if (to) stops.push([to.x + to.w / 2, to.y - to.free, to.y]);
    if (stops.length < 2) return "";
    return stops.reduce((text, [x, top, bottom], at) => {
      if (!at) return `M${x},${top}V${bottom}`;
      const [before, , foot] = stops[at - 1], middle = (foot + top) / 2;
      return text + (Math.abs(x - before) < 1 ? `V${bottom}` : `C${before},${middle} ${x},${middle} ${x},${top}V${bottom}`);
    }, "");
  }
}
