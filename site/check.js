// Opens every page of the site in Chromium, at two widths, and follows its links. `make site` runs
// it.
//
//	node check.js CHROMIUM
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'
import { serve } from 'vitepress'

const root = fileURLToPath(new URL('.', import.meta.url))
const faults = new Set()
const pages = new Map() // the ids and links of each page, by address
let site, page

/** Records a fault of a page, by default the open page, unless right is true. */
function check(right, fault, address = page.url()) {
  if (!right) faults.add(`${address.replace(site, '/')}: ${fault.replace(site, '/')}`)
}

/** Watches what the browser loads, and records its errors. */
function watch() {
  page.setDefaultTimeout(60_000)
  page.on('console', (message) => check(message.type() !== 'error', message.text()))
  page.on('pageerror', (error) => check(false, error.message))
  page.on('request', (request) => check(request.url().startsWith(site) || request.url().startsWith('data:'), `it loads ${request.url()}`))
  page.on('requestfailed', (request) => check(request.failure().errorText === 'net::ERR_ABORTED', `${request.url()} fails`))
}

/** Opens a page, and records its ids and links. */
async function open(file) {
  await page.goto(site + file.replace(/index\.html$/, ''))
  await page.waitForFunction(() => document.querySelector('#app').__vue_app__)
  for (const width of [390, 1280]) {
    await page.setViewportSize({ width, height: 800 })
    const wide = await page.evaluate(() => document.documentElement.scrollWidth)
    check(wide <= width, `it is ${wide} pixels wide on a screen of ${width}`)
  }
  pages.set(page.url(), await page.evaluate(() => ({
    ids: [...document.querySelectorAll('[id]')].map((e) => e.id),
    links: [...document.querySelectorAll('a[href]')].map((a) => a.href),
  })))
}

/** Checks that each link within the site leads to an existing page, and each anchor to an existing id. */
function follow() {
  for (const [address, { links }] of pages) {
    for (const link of links.filter((link) => link.startsWith(site))) {
      const [to, anchor] = link.split('#')
      check(pages.get(to)?.ids.includes(decodeURIComponent(anchor ?? 'app')), `the link ${link} is dead`, address)
    }
  }
}

/** Switches to dark mode, and uses the search. */
async function use() {
  await page.goto(site)
  const dark = () => page.evaluate(() => document.documentElement.classList.contains('dark'))
  check(!await dark(), 'it is dark at first')
  await page.locator('.VPNavBarAppearance button').click()
  check(await dark(), 'it does not become dark')
  await page.locator('.DocSearch-Button').click()
  await page.locator('#localsearch-input').fill('acl user')
  const found = await page.locator('a.result').first().getAttribute('href')
  check(found.endsWith('/docs/keys.html#the-acl-user'), `the search finds ${found}`)
}

const { server } = await serve({ root, port: 0 })
site = `http://127.0.0.1:${server.address().port}/slidegate/`
const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  timeout: 60_000,
})
page = await browser.newPage({ colorScheme: 'light' })
watch()
for (const file of readdirSync(`${root}/.vitepress/dist`, { recursive: true })) {
  if (file.endsWith('.html')) await open(file)
}
follow()
await use()
await browser.close()
server.close()
for (const fault of faults) console.log(fault)
console.log(`${pages.size} pages, ${faults.size} faults.`)
process.exitCode = faults.size ? 1 : 0
