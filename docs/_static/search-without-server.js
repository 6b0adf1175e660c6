// Search works without a server, but excerpts do not: pages opened from disk may not read each other,
// and every attempt would log an error in the console.
if (window.location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
