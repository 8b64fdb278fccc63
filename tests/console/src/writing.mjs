// A page that shows itself again does not disturb who uses it.
import { Tab } from "./browser.mjs";
import { until } from "./servers.mjs";

// Times that the page shows itself again meanwhile.
const RELOADS = 1;

// Waits until the live part has been asked for so often.
async function reloads(page, run) {
  let count = 0;
  page.on("response", (response) => {
    if (response.request().headers()["hx-target"] === "live") count++;
  });
  await run();
  const from = count;
  await until("the page to show itself again", () => count >= from + RELOADS);
}

async function keepsText(page, selector) {
  const field = page.locator(selector);
  await reloads(page, async () => {
    await field.focus();
    await page.keyboard.type("half");
  });
  await page.keyboard.type(" a word");
  const text = await field.inputValue();
  return text === "half a word" ? [] : [`${selector} has ${JSON.stringify(text)}`];
}

async function keepsSelection(page) {
  await reloads(page, () =>
    page.evaluate(() => getSelection().selectAllChildren(document.querySelector("#live tbody tr"))),
  );
  const selected = await page.evaluate(() => `${getSelection()}`);
  await page.evaluate(() => getSelection().removeAllRanges());
  return selected === "" ? ["the selection is lost"] : [];
}

async function keepsDrag(page) {
  const box = await page.locator("#weight-0").boundingBox();
  const y = box.y + box.height / 2;
  await reloads(page, async () => {
    await page.mouse.move(box.x + 8, y);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2, y);
  });
  await page.mouse.up();
  await page.waitForURL(/weight\./, { timeout: 10_000 });
  return [];
}

export async function writing(browser, { url }) {
  const problems = [];
  for (const browserMovesElements of [true, false]) {
    const tab = await Tab.open(browser, 1280, "light");
    if (!browserMovesElements) await tab.page.addInitScript(() => delete Element.prototype.moveBefore);
    try {
      for (const [path, selector] of [["/latency", "#lat-limit input"], ["/decisions", "input[name=q]"]]) {
        await tab.visit(url + path);
        problems.push(...(await keepsText(tab.page, selector)).map((text) => `${text}${browserMovesElements ? "" : ", in an older browser"}`));
      }
      if (browserMovesElements) {
        await tab.visit(`${url}/latency`);
        problems.push(...(await keepsSelection(tab.page)));
        await tab.visit(`${url}/decisions/vision/detector-0`);
        problems.push(...(await keepsDrag(tab.page)));
      }
      problems.push(...(await tab.takeProblems()));
    } finally {
      await tab.close();
    }
  }
  return problems;
}
