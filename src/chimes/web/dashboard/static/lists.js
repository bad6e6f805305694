/* Lists: completion in the filter box, and live refresh of visible rows. */
"use strict";
(() => {
  const { fill } = window.chimes;

  /* --- filter box ---------------------------------------------------------------------------- */
  // A combobox (WAI-ARIA): arrows choose, Enter takes, Escape closes; otherwise Enter filters.
  class FilterBox extends HTMLElement {
    connectedCallback() {
      this.field = this.querySelector("input");
      this.field.removeAttribute("list");
      this.list = document.createElement("ul");
      Object.assign(this.list, { id: "filter-words", className: "words", hidden: true });
      this.list.setAttribute("role", "listbox");
      this.list.setAttribute("aria-label", this.dataset.words);
      this.status = document.createElement("span");
      this.status.className = "hidden";
      this.status.setAttribute("role", "status");
      this.append(this.list, this.status);
      for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-expanded", "false"], ["aria-controls", "filter-words"]]) this.field.setAttribute(name, value);
      this.request = 0;
      this.field.addEventListener("input", () => { clearTimeout(this.waiting); this.waiting = setTimeout(() => this.complete(), 120); });
      this.field.addEventListener("keydown", (event) => this.press(event));
      this.field.addEventListener("blur", () => this.close());
      this.list.addEventListener("mousedown", (event) => {
        // mousedown, because the field loses its focus before click.
        event.preventDefault();
        const option = event.target.closest("[role=option]");
        if (option) this.take(option);
      });
    }
    /* The word at the cursor and its position. Quotes keep blanks together. */
    word() {
      const before = this.field.value.slice(0, this.field.selectionStart ?? this.field.value.length);
      const found = /(?:[^\s"]|"[^"]*(?:"|$))*$/.exec(before)[0];
      return { start: before.length - found.length, end: before.length, text: found };
    }
    async complete() {
      const mine = this.request += 1, { text } = this.word();
      if (!text) return void this.close();
      const answer = await fetch(`${this.dataset.address}&word=${encodeURIComponent(text)}`, { headers: { Accept: "application/json" } }).catch(() => null);
      if (!answer?.ok || mine !== this.request) return;
      const { items } = await answer.json();
      if (mine !== this.request || document.activeElement !== this.field) return;
      this.show(items.filter((each) => each.text !== text));
    }
    show(items) {
      this.list.replaceChildren(...items.map((item, index) => {
        const option = document.createElement("li");
        Object.assign(option, { id: `filter-word-${index}`, textContent: item.title });
        option.dataset.text = item.text;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        return option;
      }));
      this.list.hidden = !items.length;
      this.field.setAttribute("aria-expanded", String(items.length > 0));
      this.field.removeAttribute("aria-activedescendant");
      this.status.textContent = items.length ? fill(this.dataset.hint, { count: items.length }) : "";
    }
    close() { clearTimeout(this.waiting); this.request += 1; this.show([]); }
    choose(step) {
      const options = [...this.list.children], at = options.findIndex((each) => each.ariaSelected === "true");
      const next = options[(at + step + options.length + (at < 0 && step < 0 ? 1 : 0)) % options.length];
      options.forEach((each) => each.setAttribute("aria-selected", String(each === next)));
      this.field.setAttribute("aria-activedescendant", next.id);
      next.scrollIntoView({ block: "nearest" });
    }
    take(option) {
      const { start, end } = this.word(), text = option.dataset.text, open = text.endsWith(":");
      this.field.setRangeText(open ? text : `${text} `, start, end, "end");
      this.close();
      if (open) this.complete();
    }
    press(event) {
      if (this.list.hidden) return;
      const chosen = this.list.querySelector("[aria-selected=true]");
      if (event.key === "ArrowDown" || event.key === "ArrowUp") this.choose(event.key === "ArrowDown" ? 1 : -1);
      else if (event.key === "Enter" && chosen) this.take(chosen);
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    }
  }
  customElements.define("filter-box", FilterBox);

  /* --- rows ---------------------------------------------------------------------------------- */
  // At most one refresh in two seconds, of at most 100 rows.
  const MIN_INTERVAL = 2000, MAX_ROWS = 100;

  // Replaces the parts named by data-live; rows are neither added nor removed nor moved. Parts with
  // the focus or an open menu are skipped.
  class LiveRows extends HTMLElement {
    connectedCallback() {
      this.contents = new WeakMap();
      this.onChange = () => this.schedule();
      this.topics = this.dataset.topics.split(" ").map((topic) => `${topic}.changed`);
      for (const topic of this.topics) document.addEventListener(topic, this.onChange);
    }
    disconnectedCallback() {
      clearTimeout(this.waiting);
      for (const topic of this.topics) document.removeEventListener(topic, this.onChange);
    }
    schedule() {
      if (this.waiting) return;
      const wait = Math.max(0, (this.last ?? -MIN_INTERVAL) + MIN_INTERVAL - performance.now());
      this.waiting = setTimeout(async () => {
        this.last = performance.now();
        try { await this.refresh(); } finally { this.waiting = 0; }
      }, wait);
    }
    visibleRows() {
      const near = [...this.querySelectorAll("[data-row-id]")].map((row) => [row, row.getBoundingClientRect()]);
      const inSight = near.filter(([, box]) => box.bottom > -200 && box.top < innerHeight + 200);
      return inSight.slice(0, MAX_ROWS).map(([row]) => row);
    }
    async refresh() {
      if (document.hidden) return;
      const rows = new Map(this.visibleRows().map((row) => [row.dataset.rowId, row]));
      if (!rows.size) return;
      const address = new URL(this.dataset.address, location.href);
      for (const id of rows.keys()) address.searchParams.append("id", id);
      address.searchParams.set("back", location.pathname + location.search);
      const answer = await fetch(address, { headers: { "HX-Request": "true" } }).catch(() => null);
      if (!answer?.ok) return;
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      for (const fresh of holder.content.querySelectorAll("[data-row-id]")) {
        const row = rows.get(fresh.dataset.rowId);
        rows.delete(fresh.dataset.rowId);
        if (row) this.update(row, fresh);
      }
      for (const gone of rows.values()) gone.classList.add("gone");
    }
    update(row, fresh) {
      row.classList.remove("gone");
      for (const part of fresh.querySelectorAll("[data-live]")) {
        const old = row.querySelector(`[data-live="${part.dataset.live}"]`), text = part.innerHTML;
        if (!old || this.contents.get(old) === text) continue;
        if (old.contains(document.activeElement) || old.querySelector("details[open]")) continue;
        old.replaceChildren(...part.childNodes);
        this.contents.set(old, text);
        window.htmx?.process?.(old);
      }
    }
  }
  customElements.define("live-rows", LiveRows);
})();
