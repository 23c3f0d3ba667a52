// Light, dark, or as the system: set before the first paint, so this is no module.
"use strict";
{
  const THEMES = ["system", "light", "dark"];
  const KEY = "earmark-theme";
  let theme = "system";
  try {
    const stored = localStorage.getItem(KEY);
    if (THEMES.includes(stored)) theme = stored;
  } catch {
    // storage is switched off: the choice lasts until the page is closed
  }

  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  apply();
  globalThis.earmarkTheme = {
    current: () => theme,
    next() {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // as above
      }
      apply();
      return theme;
    },
  };
}
