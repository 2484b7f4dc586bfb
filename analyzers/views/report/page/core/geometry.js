/* Places of boxes and edges while some boxes are open.

   Python has laid out the inside of every box with all boxes in it closed. An open box grows around
   its middle: boxes beside it in its band move aside, bands below it move down, and the box that
   holds them grows in turn. So nothing overlaps that did not before. */
class Geometry {
  static pad = 14;
  static header = 26;

  constructor(graph) {
    this.graph = graph;
    this.root = -1;
    this.children = new Map([[-1, []]]);
    this.edges = new Map();
    graph.parent.forEach((parent, box) => Geometry.push(this.children, parent, box));
    graph.edges.parent.forEach((parent, edge) => Geometry.push(this.edges, parent, edge));
    this.bands = new Map(); // by parent, made when it is first opened
  }

  static push(lists, key, item) {
    const list = lists.get(key);
    if (list) list.push(item);
    else lists.set(key, [item]);
  }

  /** What lies in each band of a box: its boxes and the points of passing edges, by x. */
  bandsOf(parent) {
    if (this.bands.has(parent)) return this.bands.get(parent);
    const { band, x, y, h, edges } = this.graph, bands = [];
    const at = (rank) => (bands[rank] ??= { items: [], top: Infinity, bottom: -Infinity });
    for (const box of this.children.get(parent) ?? []) {
      const place = at(band[box]);
      place.items.push({ x: x[box], box });
      place.top = Math.min(place.top, y[box]);
      place.bottom = Math.max(place.bottom, y[box] + h[box]);
    }
    for (const edge of this.edges.get(parent) ?? []) {
      const points = edges.points[edge], first = band[edges.from[edge]] + 1;
      for (let point = 0; 2 * point < points.length; point++) {
        at(first + point).items.push({ x: points[2 * point], edge, point });
      }
    }
    for (const place of bands) place?.items.sort((one, other) => one.x - other.x);
    this.bands.set(parent, bands.filter(Boolean));
    return this.bands.get(parent);
  }

  /** The inside of a box while `isOpen(box)` boxes in it are open: places relative to its corner. */
  inside(parent, isOpen) {
    const { w, h, y } = this.graph, boxes = [], points = new Map();
    let down = 0, left = Infinity, right = -Infinity, bottom = 0;
    for (const band of this.bandsOf(parent)) {
      const sizes = new Map();
      for (const { box } of band.items) if (box !== undefined) sizes.set(box, this.size(box, isOpen));
      const grown = [...sizes].reduce((sum, [box, size]) => sum + size.w - w[box], 0);
      const tall = Math.max(band.bottom - band.top, ...[...sizes.values()].map((size) => size.h));
      const taller = tall - (band.bottom - band.top), top = band.top + down;
      let aside = -grown / 2;
      for (const item of band.items) {
        const size = sizes.get(item.box);
        if (size) {
          const sink = (taller - (size.h - h[item.box])) / 2;
          boxes.push({ ...size, box: item.box, x: item.x + aside, y: Math.max(y[item.box] + down + sink, top) });
          aside += size.w - w[item.box];
        } else Geometry.push(points, item.edge, [item.x + aside, top, top + tall]);
        const edge = item.x + aside + (size ? w[item.box] : 0);
        left = Math.min(left, size ? boxes.at(-1).x : edge);
        right = Math.max(right, edge);
      }
      down += taller;
      bottom = Math.max(bottom, top + tall);
    }
    return this.framed(boxes, points, left, right, bottom);
  }

  /** Moves everything so that the inside begins at its padding. */
  framed(boxes, points, left, right, bottom) {
    if (!boxes.length) return { w: 2 * Geometry.pad, h: 2 * Geometry.pad, boxes, points };
    const high = Math.min(...boxes.map((box) => box.y));
    const across = Geometry.pad - left, down = Geometry.pad - high;
    for (const box of boxes) {
      box.x += across;
      box.y += down;
    }
    for (const list of points.values()) {
      for (const point of list) {
        point[0] += across;
        point[1] += down;
        point[2] += down;
      }
    }
    return { w: right - left + 2 * Geometry.pad, h: bottom - high + 2 * Geometry.pad, boxes, points };
  }

  size(box, isOpen) {
    if (!this.children.has(box) || !isOpen(box)) return { w: this.graph.w[box], h: this.graph.h[box], inside: null };
    const inside = this.inside(box, isOpen);
    return { w: Math.max(inside.w, this.graph.w[box] + 50), h: inside.h + Geometry.header, inside };
  }

  /** A line from the foot of one box to the head of another, straight along the bands it passes. */
  path(from, to, points) {
    const start = [from.x + from.w / 2, from.y + from.h], end = [to.x + to.w / 2, to.y];
    if (end[1] < start[1]) return this.back(from, to);
    const stops = [...points.map(([x, top, bottom]) => [x, top, bottom]), [end[0], end[1], end[1]]];
    let text = `M${start[0]},${start[1]}`, at = start;
    for (const [x, top, bottom] of stops) {
      const middle = (at[1] + top) / 2;
      text += x === at[0] ? `V${bottom}` : `C${at[0]},${middle} ${x},${middle} ${x},${top}V${bottom}`;
      at = [x, bottom];
    }
    return text;
  }

  /** A line to a box above, around the right side. */
  back(from, to) {
    const x = Math.max(from.x + from.w, to.x + to.w), aside = x + 30;
    return `M${from.x + from.w},${from.y + from.h / 2}C${aside},${from.y + from.h / 2} ${aside},${to.y + to.h / 2} ${to.x + to.w},${to.y + to.h / 2}`;
  }
}
