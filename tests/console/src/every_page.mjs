// Every page, at each width and in both themes.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { THEMES, Tab, WIDTHS } from "./browser.mjs";

const MAX_BYTES = 200_000;

export async function everyPage(browser, server, paths, { widths = WIDTHS, themes = THEMES } = {}) {
  const problems = [];
  const folder = join(process.env.SHOTS, server.name);
  await mkdir(folder, { recursive: true });
  for (const path of paths) {
    const body = await (await fetch(server.url + path)).arrayBuffer();
    if (body.byteLength > MAX_BYTES) problems.push(`${path}: ${body.byteLength} bytes`);
  }
  const looks = widths.flatMap((width) => themes.map((theme) => ({ width, theme })));
  const seen = await Promise.all(looks.map((look) => at(browser, server, paths, folder, look)));
  return [...problems, ...seen.flat()];
}

// The problems of all pages at one width and in one theme.
async function at(browser, server, paths, folder, { width, theme }) {
  const problems = [];
  const tab = await Tab.open(browser, width, theme);
  for (const path of paths) {
    const note = (texts) => problems.push(...texts.map((text) => `${path} at ${width}px, ${theme}: ${text}`));
    try {
      await tab.visit(server.url + path);
      note(await tab.tooWide());
      // A wider window changes little.
      if (width !== 2560) note(await tab.inaccessible());
      note(await tab.takeProblems());
      const file = `${path.replace(/[^A-Za-z0-9.-]+/g, "_").slice(0, 80)}-${width}-${theme}.png`;
      await tab.page.screenshot({ path: join(folder, file) });
    } catch (error) {
      note([`${error}`]);
    }
  }
  await tab.close();
  return problems;
}
