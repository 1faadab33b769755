// Elements, created without markup and updated only where they differ, so that unchanged elements keep their
// position, focus and selection.

export const get = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined));
  return node;
}

export function say(node, text) {
  const target = typeof node === "string" ? get(node) : node;
  if (target.textContent !== text) target.textContent = text;
}

export function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export const empty = (text) => make("p", { class: "empty" }, text);

// Table whose rows are identified by a key. A column has a title, and `text` or `fill` of an item. Numbers are
// aligned right. On a narrow screen, each row is a list of titles and values.
export class Table {
  constructor(place, { caption, columns, key, nothing }) {
    Object.assign(this, { place, columns, key, nothing, rows: new Map() });
    const head = columns.map((column) => make("th", { scope: "col", role: "columnheader", class: column.kind }, column.title));
    this.body = make("tbody", { role: "rowgroup" });
    this.node = make(
      "table",
      { role: "table" },
      make("caption", { class: "unseen" }, caption),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head)),
      this.body,
    );
    this.none = empty(nothing);
  }

  show(items) {
    const wanted = items.length ? this.node : this.none;
    if (this.place.firstElementChild !== wanted || this.place.childElementCount !== 1) this.place.replaceChildren(wanted);
    const old = this.rows;
    this.rows = new Map();
    items.forEach((item, at) => {
      const key = this.key(item);
      const row = old.get(key) ?? this.row();
      old.delete(key);
      this.rows.set(key, row);
      this.columns.forEach((column, n) => {
        const cell = row.cells[n];
        if (column.fill) column.fill(cell, item);
        else say(cell, column.text(item));
      });
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
    for (const row of old.values()) row.remove();
  }

  row() {
    const cells = this.columns.map((column) => make("td", { role: "cell", class: column.kind, "data-title": column.title }));
    return make("tr", { role: "row" }, ...cells);
  }
}

// Bar that shows how much of a resource is used, also in words.
export class Meter {
  constructor(title) {
    this.title = make("span", { class: "meter-title" }, title);
    this.words = make("span", { class: "meter-words" });
    this.fill = make("span", { class: "meter-fill" });
    this.track = make("span", { class: "meter", role: "meter", "aria-label": title, "aria-valuemin": "0", "aria-valuemax": "100" }, this.fill);
    this.node = make("div", { class: "meter-row" }, this.title, this.words, this.track);
  }

  show(share, words, level) {
    // Even a small usage stays visible.
    this.fill.style.width = share > 0 ? `max(2px, ${Math.min(share, 1) * 100}%)` : "0";
    mark(this.track, "aria-valuenow", String(Math.round(share * 100)));
    mark(this.track, "aria-valuetext", words);
    mark(this.track, "data-level", level);
    say(this.words, words);
  }
}
