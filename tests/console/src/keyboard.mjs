// Everything can be done without a mouse.
import { Tab } from "./browser.mjs";

const MAX_STEPS = 40;

// Presses Tab until `reached` holds of the focused element.
async function tabTo(page, what, reached) {
  for (let step = 0; step < MAX_STEPS; step++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(reached)) return;
  }
  throw new Error(`the keyboard does not reach ${what}`);
}

export async function keyboard(browser, { url }) {
  const tab = await Tab.open(browser, 1280, "light");
  const page = tab.page;
  try {
    await tab.visit(`${url}/`);
    await page.keyboard.press("Tab");
    const skip = await page.evaluate(() => document.activeElement.matches(".skip") && document.activeElement.getBoundingClientRect().x >= 0);
    if (!skip) throw new Error("the first stop is not the visible link to the content");
    await page.keyboard.press("Enter");
    if (!(await page.evaluate(() => document.activeElement.id === "main"))) throw new Error("the link to the content does not lead there");

    await tab.visit(`${url}/`);
    await tabTo(page, "the section Bindings", () => document.activeElement.getAttribute("href") === "/bindings");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    if (outline === "none") throw new Error("the focus is not visible");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/bindings");

    await tabTo(page, "the button of the theme", () => document.activeElement.id === "theme");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");

    await tabTo(page, "the search", () => document.activeElement.matches("input[name=q]"));
    await page.keyboard.type("detector");
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=detector/);
    return await tab.takeProblems();
  } finally {
    await tab.close();
  }
}
