// The theme's dialogs say nothing of themselves.
const names = {
  "pst-search-dialog": "Search the book",
  "pst-primary-sidebar-modal": "All pages",
  "pst-secondary-sidebar-modal": "This page's contents",
};
for (const [id, name] of Object.entries(names)) {
  document.getElementById(id)?.setAttribute("aria-label", name);
}
