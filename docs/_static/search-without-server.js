// Results are found without a server. Their excerpts are not: pages opened from a disk may not read
// one another, and trying would put an error on the console for each.
if (window.location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
