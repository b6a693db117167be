// The list of problems: filters, search, sorting, and a selection that keys move.

const STEP = 60;
const order = new Intl.Collator("en", { numeric: true });

// What the address says of the list; `change` writes it back without a new step in the history.
function stateOf() {
  return new URLSearchParams(location.hash.slice(1));
}

function addressOf(changes) {
  const state = stateOf();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") state.delete(key);
    else state.set(key, value);
  }
  return `#${state}`;
}

function change(changes) {
  history.replaceState(null, "", addressOf(changes));
}

class List {
  // rows: what there is; columns: {key, title, cell(row), value(row), num}; filters: {key, label, of(row)};
  // words(row): what a search looks through; idOf(row): what a problem's address says.
  constructor({ rows, columns, filters, words, idOf }) {
    Object.assign(this, { rows, columns, filters, idOf });
    this.searched = rows.map((row) => words(row).join("\n").toLowerCase());
    this.selected = 0;
    this.body = el("tbody");
    this.told = el("p", { class: "told" });
    this.end = el("div", { class: "end" });
    new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.more(), { rootMargin: "600px" }).observe(this.end);
  }

  render() {
    this.search = el("input", {
      type: "search", placeholder: "Search", "aria-label": "search questions, answers and ids", value: stateOf().get("q") ?? "",
      oninput: () => this.set({ q: this.search.value }),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === "Escape") this.search.blur(); },
    });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "filters" });
    this.sorting = el("select", { "aria-label": "sort by", class: "sorting", onchange: () => this.set({ sort: this.sorting.value }) },
      this.columns.flatMap((c) => [el("option", { value: c.key }, `${c.title} ↑`), el("option", { value: `-${c.key}` }, `${c.title} ↓`)]));
    this.head = el("tr");
    this.update();
    return el("div", { class: "list" },
      el("div", { class: "tools" }, this.chips, this.search, this.sorting), this.told,
      el("table", { class: "problems" }, el("thead", {}, this.head), this.body), this.end);
  }

  set(changes) {
    change(changes);
    this.selected = 0;
    this.update();
  }

  // The rows that filter and search leave, sorted; also where "next" leads on a problem's page.
  compute() {
    const state = stateOf();
    const filter = this.filters.find((one) => one.key === state.get("show")) ?? this.filters[0];
    const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const sort = state.get("sort") ?? this.columns[0].key;
    const down = sort.startsWith("-");
    const column = this.columns.find((c) => c.key === sort.replace(/^-/, "")) ?? this.columns[0];
    const found = this.rows.map((_, i) => i)
      .filter((i) => filter.of(this.rows[i]) && words.every((word) => this.searched[i].includes(word)));
    const values = new Map(found.map((i) => [i, column.value(this.rows[i])]));
    const empty = (value) => value === null || value === undefined;
    const compare = (a, b) => {
      const [one, two] = [values.get(a), values.get(b)];
      if (empty(one) || empty(two)) return empty(one) - empty(two);
      const sign = typeof one === "number" && typeof two === "number" ? one - two : order.compare(one, two);
      return down ? -sign : sign;
    };
    this.found = found.sort(compare);
    return { filter, column, down };
  }

  update() {
    const { filter, column, down } = this.compute();
    this.sorting.value = `${down ? "-" : ""}${column.key}`;
    this.chips.replaceChildren(...this.filters.map((one) => {
      const many = this.rows.reduce((sum, row) => sum + (one.of(row) ? 1 : 0), 0);
      return el("button", {
        type: "button", class: "chip", "aria-pressed": String(one === filter), title: one.title,
        disabled: many === 0 && one !== filter && one !== this.filters[0],
        onclick: () => this.set({ show: one === this.filters[0] ? null : one.key }),
      }, one.label, el("b", {}, many.toLocaleString("en")));
    }));
    this.head.replaceChildren(...this.columns.map((c) => el("th", {
      class: c.num ? "num" : "", scope: "col", "aria-sort": c === column ? (down ? "descending" : "ascending") : "none",
    }, el("button", { type: "button", onclick: () => this.set({ sort: c === column && !down ? `-${c.key}` : c.key }) },
      c.title, c === column ? el("span", { class: "arrow", "aria-hidden": "true" }, down ? "▾" : "▴") : null))));
    this.told.textContent = this.found.length === this.rows.length ? "" : `${count(this.found.length, "problem")} of ${this.rows.length.toLocaleString("en")}`;
    this.body.replaceChildren();
    this.more();
    this.select(Math.min(this.selected, this.found.length - 1), false);
  }

  more() {
    const from = this.body.children.length;
    this.body.append(...this.found.slice(from, from + STEP).map((i, place) => this.line(i, from + place)));
    this.end.hidden = this.body.children.length >= this.found.length;
  }

  line(i, place) {
    const row = this.rows[i];
    return el("tr", { onclick: (event) => { if (!event.target.closest("a")) this.open(place); } },
      this.columns.map((c) => el("td", { class: `c-${c.key} ${c.num ? "num" : ""}`.trim(), "data-title": c.title }, c.cell(row))));
  }

  select(place, scroll = true) {
    if (!this.found.length) return;
    this.selected = Math.max(0, Math.min(place, this.found.length - 1));
    while (this.body.children.length <= this.selected) this.more();
    for (const line of this.body.querySelectorAll(".selected")) line.classList.remove("selected");
    const line = this.body.children[this.selected];
    line.classList.add("selected");
    if (scroll) line.scrollIntoView({ block: "nearest" });
  }

  open(place = this.selected) {
    if (!this.found.length) return;
    this.selected = place;
    location.hash = addressOf({ problem: this.idOf(this.rows[this.found[place]]) });
  }

  // The problem with this id: its number in the index, and its neighbours' addresses under filter and sorting.
  at(id) {
    this.compute();
    const i = this.rows.findIndex((row) => this.idOf(row) === id);
    let place = this.found.indexOf(i);
    if (place < 0 && i >= 0) [this.found, place] = [this.rows.map((_, k) => k), i];
    this.selected = Math.max(0, place);
    const near = (step) => {
      const other = this.found[place + step];
      return other === undefined ? null : addressOf({ problem: this.idOf(this.rows[other]) });
    };
    return { i, place, of: this.found.length, previous: near(-1), next: near(1) };
  }

  key(event) {
    const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20 };
    if (event.key in moves) this.select(this.selected + moves[event.key]);
    else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(this.found.length - 1);
    else if (event.key === "Enter" || event.key === "o") this.open();
    else if (event.key === "/") this.search.focus();
    else return false;
    return true;
  }
}
