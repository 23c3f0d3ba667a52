// The colours of theme.css for what is drawn on a canvas, and the colour map of the spectrogram.

const NAMES = {
  page: "--page",
  surface: "--surface",
  sunken: "--sunken",
  ink: "--ink",
  muted: "--muted",
  line: "--line",
  scoreLine: "--score-line",
  scoreFill: "--score-fill",
  threshold: "--threshold",
  event: "--event",
  eventLine: "--event-line",
  eventInk: "--event-ink",
  chosen: "--chosen",
};

/** The colours in force, as canvas takes them; `dark` says which set, `font` is the family. */
export const colours = { dark: false, font: "sans-serif" };

/** Read the colours again, after the theme has changed. */
export function readColours() {
  // A custom property with light-dark() is resolved only where it is used.
  const probe = document.createElement("span");
  document.body.append(probe);
  for (const [name, property] of Object.entries(NAMES)) {
    probe.style.color = `var(${property})`;
    colours[name] = getComputedStyle(probe).color;
  }
  colours.font = getComputedStyle(probe).fontFamily;
  probe.remove();
  const [r, g, b] = colours.page.match(/\d+/g).map(Number);
  colours.dark = r + g + b < 384;
}

// Steps of "mako" (seaborn): lightness rises evenly, so it reads the same without hue, in print and
// for colour-blind readers. In the light theme loud is dark, in the dark theme loud is bright.
const MAKO = [
  [11, 4, 5], [29, 17, 30], [45, 29, 56], [57, 43, 87], [64, 61, 120], [59, 86, 142], [54, 108, 153],
  [52, 129, 162], [52, 152, 169], [59, 175, 173], [86, 197, 173], [137, 215, 178], [189, 231, 204],
  [222, 245, 229],
];

/** 256 colours as RGBA in one array; what is below `low` is as quiet as it, and so on. */
export function colourMap(dark, [low, high]) {
  const table = new Uint8ClampedArray(1024);
  const quiet = dark ? [15, 21, 26] : [250, 251, 251];
  for (let k = 0; k < 256; k++) {
    const x = Math.min(Math.max((k - low) / Math.max(1, high - low), 0), 1);
    const at = (dark ? 0.05 + 0.95 * x : 1 - 0.92 * x) * (MAKO.length - 1);
    const i = Math.min(Math.floor(at), MAKO.length - 2);
    const blend = Math.min(1, x * 4); // the quietest quarter fades into the page
    for (let c = 0; c < 3; c++) {
      const own = MAKO[i][c] + (at - i) * (MAKO[i + 1][c] - MAKO[i][c]);
      table[4 * k + c] = quiet[c] + blend * (own - quiet[c]);
    }
    table[4 * k + 3] = 255;
  }
  return table;
}
