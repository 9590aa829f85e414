// The rectangles of one panel, at the level of detail that a part of the run needs. Rectangles that would be
// narrower than a pixel or two are drawn as one, which is described by the longest of them. So a browser draws
// a few thousand, however many there are, and every single one can be seen by zooming in.
"use strict";

const PIXELS = 1.5; // the least width of a rectangle
const MOST = 2500; // rectangles of a panel that are drawn for several, about

class Levels {
  constructor(source) {
    for (const name of ["left", "length", "row", "bottom", "top", "colour", "what", "detail", "count"]) {
      this[name] = source.get_column(name);
    }
    // The rectangles are in order of rows and of their left ends. Where those of a row overlap, an early one may
    // end late: the greatest right end so far is in order, too.
    this.reach = new Float64Array(this.left.length);
    this.rows = [];
    for (let at = 0; at < this.left.length; at++) {
      const isFirst = at === 0 || this.row[at] !== this.row[at - 1];
      if (isFirst) this.rows.push(at);
      const right = this.left[at] + this.length[at];
      this.reach[at] = isFirst ? right : Math.max(right, this.reach[at - 1]);
    }
    this.rows.push(this.left.length);
  }

  // Return the columns of what is drawn of the time from start to end on some pixels.
  between(start, end, pixels) {
    const width = (end - start) * Math.max(PIXELS / pixels, (this.rows.length - 1) / MOST);
    const drawn = { left: [], right: [], bottom: [], top: [], colour: [], what: [], detail: [], count: [], length: [] };
    for (let number = 0; number + 1 < this.rows.length; number++) {
      const last = this.rows[number + 1];
      const first = firstWhere(this.rows[number], last, (at) => this.reach[at] > start);
      this.addRow(drawn, first, firstWhere(first, last, (at) => this.left[at] >= end), width);
    }
    return drawn;
  }

  addRow(drawn, first, last, width) {
    let column = NaN; // of the rectangle that stands for the short ones
    let longest = 0;
    for (let at = first; at < last; at++) {
      const [length, place] = [this.length[at], Math.floor((this.left[at] + this.length[at] / 2) / width)];
      if (length >= width || place !== column) {
        this.add(drawn, at);
        [column, longest] = [length >= width ? NaN : place, length];
        continue;
      }
      const end = drawn.left.length - 1;
      drawn.right[end] = Math.max(drawn.right[end], this.left[at] + length);
      drawn.bottom[end] = Math.max(drawn.bottom[end], this.bottom[at]);
      drawn.top[end] = Math.min(drawn.top[end], this.top[at]);
      drawn.count[end] += this.count[at];
      drawn.length[end] = drawn.right[end] - drawn.left[end];
      drawn.detail[end] = -1;
      if (length > longest) {
        longest = length;
        drawn.colour[end] = this.colour[at];
        drawn.what[end] = this.what[at];
      }
    }
  }

  add(drawn, at) {
    drawn.left.push(this.left[at]);
    drawn.right.push(this.left[at] + this.length[at]);
    for (const name of ["bottom", "top", "colour", "what", "detail", "count", "length"]) drawn[name].push(this[name][at]);
  }
}

// Return the first number of a range for which a condition holds, if it holds for all after that; else the end.
function firstWhere(first, end, condition) {
  while (first < end) {
    const middle = (first + end) >> 1;
    if (condition(middle)) end = middle;
    else first = middle + 1;
  }
  return first;
}
