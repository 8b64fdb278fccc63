// A page shows changes without being loaded again.
import { Tab } from "./browser.mjs";
import { until } from "./servers.mjs";

export async function live(browser, server) {
  const tab = await Tab.open(browser, 1280, "dark");
  try {
    await tab.visit(`${server.url}/bindings`);
    await tab.page.evaluate(() => (window.loadedOnce = true));
    const rows = () => tab.page.locator("table.bindings .state.good").count();
    // The first step of the demonstration placed a pod.
    const before = await until("the first compliant binding", rows);
    // What is being written stays.
    await tab.page.fill("input[name=q]", "half a wor");
    server.enter();
    await until("the next step, which places another pod", async () => (await rows()) > before);
    const state = await tab.page.evaluate(() => ({ loadedOnce: window.loadedOnce, text: document.querySelector("input[name=q]").value }));
    const problems = await tab.takeProblems();
    if (!state.loadedOnce) problems.push("the page was loaded again");
    if (state.text !== "half a wor") problems.push(`the search has lost its text: ${state.text}`);
    return problems;
  } finally {
    await tab.close();
  }
}
