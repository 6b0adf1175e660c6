// Search works without a server, but excerpts do not: pages opened from disk may not read each other,
// and every attempt would log an error in the console.
if (window.location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// Formulas that are wider than the screen can be scrolled with the keyboard.
function makeWideFormulasFocusable() {
  document.querySelectorAll("div.formula").forEach(formula => {
    formula.tabIndex = formula.scrollWidth > formula.clientWidth ? 0 : -1;
  });
}

window.addEventListener("DOMContentLoaded", () => {
  // The button's name for screen readers is its text, which is hidden on phones.
  document.querySelectorAll(".search-button-field").forEach(button => {
    button.setAttribute("aria-label", "Search Ctrl+K");
  });
  makeWideFormulasFocusable();
});
window.addEventListener("load", makeWideFormulasFocusable);
window.addEventListener("resize", makeWideFormulasFocusable);
