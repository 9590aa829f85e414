// What the theme leaves out for readers with a screen reader or without a mouse: the names of the two columns beside
// the text, and keys to scroll what is wider than its place.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  for (const block of document.querySelectorAll("pre, .diagram, .table-wrapper")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
});
