// What does not exist any more, or cannot be asked, is not shown as if it did.
import { Tab } from "./browser.mjs";
import { until } from "./servers.mjs";

export async function gone(browser, { url }) {
  const tab = await Tab.open(browser, 1280, "light");
  const page = tab.page;
  const text = () => page.locator("#live").textContent();
  try {
    const { bindings } = await (await fetch(`${url}/bindings?format=json`)).json();
    const { namespace, name } = bindings.rows[0];
    await tab.visit(`${url}/bindings/${namespace}/${name}`);
    // As the server answers once the binding is deleted.
    const absent = await fetch(`${url}/bindings/${namespace}/gone`);
    const body = (await absent.text()).replaceAll(`/bindings/${namespace}/gone`, new URL(page.url()).pathname);
    await page.route("**/bindings/**", (route) => route.fulfill({ status: 404, contentType: "text/html", body }));
    await until("the page to say so", async () => (await text()).includes("there is no binding"));
    await page.unroute("**/bindings/**");
    await until("the page to come back", async () => (await text()).includes("Timeline"));
    // Another server at the port.
    await page.route("**/bindings/**", (route) => route.fulfill({ status: 200, contentType: "text/plain", body: "hello" }));
    await page.waitForResponse((response) => response.url().includes("/bindings/"), { timeout: 20_000 });
    const kept = (await page.locator("#live").count()) === 1;
    await tab.takeProblems();
    return kept ? [] : ["the answer of another server has replaced the page"];
  } finally {
    await tab.close();
  }
}
