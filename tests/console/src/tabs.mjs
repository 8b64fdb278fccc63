// Tabs that are not seen ask for nothing; one that is seen again is live.
import { Tab } from "./browser.mjs";

const TABS = 8;

function show(page, state) {
  return page.evaluate((state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
}

export async function tabs(browser, { url }) {
  const first = await Tab.open(browser, 1280, "light");
  const context = first.page.context();
  const problems = [];
  try {
    await first.visit(`${url}/bindings`);
    await show(first.page, "hidden");
    for (let i = 1; i < TABS; i++) {
      const page = await context.newPage();
      await page.goto(`${url}/bindings`, { timeout: 10_000 }).catch(() => problems.push(`tab ${i + 1} does not load`));
      await show(page, "hidden");
    }
    // Back in the first one: it is live again.
    const asked = first.page.waitForResponse((response) => response.request().headers()["hx-target"] === "live", { timeout: 10_000 });
    await show(first.page, "visible");
    await asked.catch(() => problems.push("a tab that is seen again does not show changes"));
    return [...problems, ...(await first.takeProblems())];
  } finally {
    await first.close();
  }
}
