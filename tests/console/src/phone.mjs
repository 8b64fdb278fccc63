// On a phone the header has one line, and a table's rows are cards.
import { Tab } from "./browser.mjs";

const MAX_HEADER_PX = 64;

export async function phone(browser, { url }) {
  const tab = await Tab.open(browser, 360, "light");
  const problems = [];
  try {
    for (const path of ["/bindings", "/decisions", "/gpu"]) {
      await tab.visit(url + path);
      const seen = await tab.page.evaluate(() => ({
        header: document.querySelector("header").getBoundingClientRect().height,
        row: getComputedStyle(document.querySelector("#live tbody td").parentElement).display,
        scrolls: [...document.querySelectorAll(".scroll")].some((table) => table.scrollWidth > table.clientWidth),
      }));
      if (seen.header > MAX_HEADER_PX) problems.push(`${path}: the header has ${seen.header} px`);
      if (seen.row !== "block") problems.push(`${path}: the rows are no cards: ${seen.row}`);
      if (seen.scrolls) problems.push(`${path}: a table is wider than the window`);
    }
    await tab.page.click("header a.find");
    await tab.page.fill("input[name=find] >> visible=true", "tracker");
    await tab.page.keyboard.press("Enter");
    await tab.page.waitForURL(/find=tracker/);
    if ((await tab.page.locator("ul.found a").count()) === 0) problems.push("the search finds nothing");
    return [...problems, ...(await tab.takeProblems())];
  } finally {
    await tab.close();
  }
}

// Rows without the text are hidden while one types, and after the page has shown itself again.
export async function filter(browser, { url }) {
  const tab = await Tab.open(browser, 1280, "light");
  const { page } = tab;
  const rows = () => page.locator("table.bindings tbody tr:not(.group) >> visible=true").allTextContents();
  const problems = [];
  try {
    await tab.visit(`${url}/bindings`);
    const all = await rows();
    await page.fill("input[name=q]", "TRACKER");
    for (const when of ["at once", "after a refresh"]) {
      const shown = await rows();
      const fits = shown.length > 0 && shown.length < all.length && shown.every((row) => row.includes("tracker"));
      if (!fits) problems.push(`${when}: ${shown.length} of ${all.length} rows: ${shown}`);
      if (when !== "at once") continue;
      await page.evaluate(() => (document.getElementById("live").dataset.old = ""));
      await page.waitForSelector("#live:not([data-old])", { state: "attached" });
    }
    await page.fill("input[name=q]", "");
    if ((await rows()).length !== all.length) problems.push("without a text, rows are still hidden");
    return [...problems, ...(await tab.takeProblems())];
  } finally {
    await tab.close();
  }
}
