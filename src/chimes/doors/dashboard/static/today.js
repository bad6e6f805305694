/* A fire of the timeline opens as a card beside it; without scripts it is a page. */
"use strict";
document.addEventListener("click", (event) => {
  const mark = event.target.closest?.('.timeline a[href^="/ui/fires/"]');
  if (!mark || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const back = encodeURIComponent(location.pathname + location.search);
  window.htmx.ajax("GET", `${mark.getAttribute("href")}&back=${back}`, { target: "#asking", swap: "innerHTML" });
});
