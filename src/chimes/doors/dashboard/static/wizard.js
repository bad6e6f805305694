/* The wizard with scripts: messages at their fields, zones to pick, a sheet on phones. */
"use strict";
(() => {
  const form = document.querySelector("#wizard");
  if (!form) return;
  const $ = (selector) => form.querySelector(selector);
  const all = (selector) => [...form.querySelectorAll(selector)];
  const changed = (field) => field.dispatchEvent(new Event("input", { bubbles: true }));

  /* --- what the preview found wrong, at the fields -------------------------------------------- */
  function place() {
    const said = new Map(all("#preview .said li").map((each) => [each.dataset.for, each.textContent]));
    for (const slot of all("[data-error]")) {
      const text = said.get(slot.dataset.error) || "";
      if (slot.textContent !== text) slot.textContent = text;
      slot.hidden = !text;
      const field = document.getElementById(`f-${slot.dataset.error}`);
      if (text) field?.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
    }
    const head = $("#preview-head");
    head.textContent = $("#preview [data-head]")?.textContent ?? "";
  }
  document.addEventListener("htmx:after:swap", (event) => {
    const target = event.detail?.ctx?.target ?? event.target;
    if (!target || target.id === "preview" || target.closest?.("#preview")) place();
    if ($("#zones") && target?.id === "zones") openZones();
  });
  const head = $("#preview-head");
  head.textContent = $("#preview [data-head]")?.textContent ?? "";

  /* --- a guess that somebody touched is no guess any more ------------------------------------- */
  form.addEventListener("input", (event) => {
    const name = event.target.name;
    if (!name || !event.isTrusted && event.target.id !== "f-zone") return;
    const mark = $(`[data-guess="${CSS.escape(name)}"]`);
    if (!mark) return;
    mark.remove();
    const kept = $("[data-guessed]");
    kept.value = kept.value.split(",").filter((each) => each && each !== name).join(",");
  });

  /* --- words: Enter reads them, Shift+Enter is a new line -------------------------------------- */
  $("#f-words").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("#read").click();
  });

  /* --- choices that fill a field ---------------------------------------------------------------- */
  form.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-fill]");
    if (!chip) return;
    event.preventDefault();
    const field = $(`#f-${chip.dataset.fill}`);
    field.value = chip.dataset.value;
    changed(field);
    field.focus();
  });

  /* --- zones ------------------------------------------------------------------------------------ */
  const zone = $("#f-zone"), zones = $("#zones");
  const options = () => [...zones.querySelectorAll("[data-zone]")];
  function openZones() {
    const some = options().length > 0 && document.activeElement === zone;
    zones.hidden = !some;
    zone.setAttribute("aria-expanded", String(some));
    options().forEach((each, place) => { each.id = `zone-${place}`; each.tabIndex = -1; });
    zone.removeAttribute("aria-activedescendant");
  }
  function closeZones() {
    zones.hidden = true;
    zone.setAttribute("aria-expanded", "false");
    zone.removeAttribute("aria-activedescendant");
  }
  function take(option) {
    zone.value = option.dataset.zone;
    closeZones();
    zone.focus();
    // Only the preview is to hear of it, not the search.
    zone.dispatchEvent(new Event("change", { bubbles: true }));
    $('[data-guess="zone"]')?.remove();
  }
  zones.addEventListener("mousedown", (event) => event.preventDefault());
  zones.addEventListener("click", (event) => {
    const option = event.target.closest("[data-zone]");
    if (!option) return;
    event.preventDefault();
    take(option);
  });
  zone.addEventListener("focus", () => { if (options().length) openZones(); });
  zone.addEventListener("blur", closeZones);
  zone.addEventListener("keydown", (event) => {
    const found = options(), at = found.findIndex((each) => each.ariaSelected === "true");
    if (event.key === "Escape") return closeZones();
    if (zones.hidden || !found.length) return undefined;
    if (event.key === "Enter") {
      event.preventDefault();
      return take(found[Math.max(at, 0)]);
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return undefined;
    event.preventDefault();
    const next = found[(at + step + found.length) % found.length];
    found.forEach((each) => { each.ariaSelected = String(each === next); });
    zone.setAttribute("aria-activedescendant", next.id);
    next.scrollIntoView({ block: "nearest" });
    return undefined;
  });
  if (!zones.hidden) options().forEach((each, place) => { each.id = `zone-${place}`; });

  /* --- the part of a cron expression under the caret --------------------------------------------- */
  const expression = $("#f-expression"), legend = $(".cron-legend");
  function explain() {
    const parts = expression.value.trim().split(/\s+/);
    const before = expression.value.slice(0, expression.selectionStart ?? 0).trimStart();
    const seconds = parts.length > 5;
    const at = before.split(/\s+/).length - 1 + (seconds ? 0 : 1);
    legend.hidden = expression.value.startsWith("@");
    [...legend.children].forEach((each, place) => {
      each.hidden = place === 0 && !seconds;
      each.classList.toggle("on", place === at && document.activeElement === expression);
    });
  }
  for (const name of ["input", "keyup", "click", "focus", "blur"]) expression.addEventListener(name, explain);

  /* --- the preview is a sheet on phones ----------------------------------------------------------- */
  const preview = $(".preview");
  preview.classList.add("sheet");
  if (matchMedia("(max-width: 899px)").matches) preview.querySelector("details").open = false;

  const first = document.querySelector("#summary a, #question button, #conflict");
  if (first) first.scrollIntoView({ block: "center" });
})();
