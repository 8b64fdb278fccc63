// Texts of others are shown as text.
import { Tab } from "./browser.mjs";

export async function hostile(browser, { url }, paths) {
  const tab = await Tab.open(browser, 1280, "dark");
  const problems = [];
  let seen = 0;
  try {
    for (const path of paths) {
      await tab.visit(url + path);
      const state = await tab.page.evaluate(() => ({
        ran: window.pwned !== undefined,
        elements: document.querySelectorAll("[data-pwned], img, iframe, object, embed").length,
        text: document.body.innerText,
      }));
      if (state.ran) problems.push(`${path}: a script of the manifests ran`);
      if (state.elements > 0) problems.push(`${path}: ${state.elements} elements of the manifests`);
      if (/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/.test(state.text)) problems.push(`${path}: control characters`);
      if (state.text.includes("data-pwned")) seen++;
      problems.push(...(await tab.takeProblems()).map((problem) => `${path}: ${problem}`));
    }
    if (seen === 0) problems.push("no page shows a hostile text: the test tests nothing");
    return problems;
  } finally {
    await tab.close();
  }
}
