// The configuration of the site: README, docs and the other pages of the repository, as on GitHub.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { posix as path } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const root = fileURLToPath(new URL('../..', import.meta.url))
const source = 'https://github.com/slidegate/slidegate/blob/main/'

/** Returns the contents of a file in the repository. */
const read = (file) => readFileSync(path.join(root, file), 'utf8')

/** Returns the plain text of Markdown, without links and markup. */
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]|^- /gm, '').replace(/\s+/g, ' ')

/** Returns the start of a page's first paragraph as its description. */
function description({ filePath }) {
  const text = plain(read(filePath).match(/^(?![#<[\s])[^]*?(?=\n\n)/m)[0])
  return { description: text.length > 160 ? text.slice(0, 160).replace(/\s+\S*$/, '…') : text }
}

/** Returns the list of pages: each heading in docs/README.md, with the links at the start of its items. */
function sidebar() {
  return read('docs/README.md').split(/^## /m).slice(1).map((part) => ({
    text: part.split('\n')[0],
    items: [...part.matchAll(/^- \[.*?\]\((.*?\.md)\)/gm)].map(([, file]) => ({
      text: plain(read(`docs/${file}`).match(/^# (.*)/m)[1]),
      link: `/docs/${file}`,
    })),
  }))
}

/** Returns where a page's link leads: to the site or, for a file that is not a page, to GitHub. */
function target(link, page) {
  if (/^(#|\w+:)/.test(link)) return link
  const [file, anchor] = path.join(path.dirname(page), link).split('#')
  if (!existsSync(path.join(root, file))) throw new Error(`${page}: the link ${link} leads to no file`)
  if (file.endsWith('.md')) return link.replace('README.md', 'index.md')
  return source + file + (anchor ? `#${anchor}` : '')
}

/** Removes badges, treats indented code like fenced code, keeps Vue out of inline code, and rewrites links. */
function config(md) {
  const { code_inline, fence, link_open } = md.renderer.rules
  md.core.ruler.before('normalize', 'badges', (state) => { state.src = state.src.replace(/^\[!\[.*/m, '') })
  md.renderer.rules.code_block = fence
  md.renderer.rules.code_inline = (tokens, i, ...rest) => {
    tokens[i].attrSet('v-pre', '')
    return code_inline(tokens, i, ...rest)
  }
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    tokens[i].attrSet('href', target(tokens[i].attrGet('href'), env.relativePath))
    return link_open(tokens, i, options, env, self)
  }
}

/** Writes llms.txt, the list of pages with links to their Markdown. */
function llms({ outDir }) {
  const link = (_, to) => `](${new URL(to, 'https://raw.githubusercontent.com/slidegate/slidegate/main/docs/')})`
  writeFileSync(`${outDir}/llms.txt`, read('docs/README.md').replace(/^# .*/, '# Slidegate').replace(/\]\(([^)]+)\)/g, link))
}

/** Resolves Vue for the pages, which are outside this directory. */
function fromHere(id, page) {
  return /^vue\b/.test(id) && page.endsWith('.md') ? this.resolve(id, fileURLToPath(import.meta.url)) : null
}

export default defineConfig({
  title: 'Slidegate',
  description: 'A distributed rate limiter for Go on Redis and Redis Cluster',
  base: '/slidegate/',
  srcDir: '..',
  rewrites: { 'README.md': 'index.md', 'docs/README.md': 'docs/index.md' },
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  markdown: {
    config,
    // The anchors are the same as on GitHub.
    anchor: { slugify: (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '').replaceAll(' ', '-') },
  },
  transformPageData: description,
  buildEnd: llms,
  themeConfig: {
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    editLink: { pattern: `${source}:path`, text: 'This page on GitHub' },
    socialLinks: [{ icon: 'github', link: 'https://github.com/slidegate/slidegate' }],
  },
  vite: { plugins: [{ name: 'pages', enforce: 'pre', resolveId: fromHere }] },
})
