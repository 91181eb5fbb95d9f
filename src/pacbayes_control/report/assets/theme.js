// The colours that a reader has chosen, before anything is shown. A page that is opened from a
// disk may have no storage: then the choice lasts as long as the page.
"use strict";

const theme = {
  key: "pbc-theme",
  get: () => document.documentElement.dataset.theme ?? "auto",
  set(choice) {
    if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
    else delete document.documentElement.dataset.theme;
  },
  stored() {
    try { return localStorage.getItem(theme.key); } catch { return null; }
  },
  store(choice) {
    try { localStorage.setItem(theme.key, choice); } catch { /* no storage */ }
  },
};
theme.set(theme.stored());
