// Counts results as the suite does. Run in the suite's folder:
//
//   node score.mjs RESULTS...   results of the suite's client, as files
//
// Prints the suite's published results, and those of each file, as JSON: each test that needs no browser
// with its kind, what came of it by itself and with what it depends on, and why.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const load = file => import(pathToFileURL(path.resolve(file)))
const { default: suites } = await load('tests/index.mjs')
const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
const { default: publications } = await load('results/index.mjs')

const words = new Map(Object.entries(resultTypes).map(([word, type]) => [type, word]))
const tests = suites.flatMap(suite => suite.tests).filter(test => test.browser_only !== true)

function judge (results) {
  return tests.map(({ id, kind = 'required', depends_on: dependencies = [] }) => {
    const outcome = honours => words.get(determineTestResult(suites, id, results, honours))
    const why = Array.isArray(results[id]) ? results[id].join(': ') : ''
    return { id, kind, alone: outcome(false), dependent: outcome(true), dependencies, why }
  })
}

const read = file => judge(JSON.parse(fs.readFileSync(file, 'utf8')))
const published = publications
  .filter(({ type }) => type !== 'browser')
  .map(({ name, version, file }) => ({ name, version, tests: read(path.join('results', file)) }))
console.log(JSON.stringify({ published, runs: process.argv.slice(2).map(read) }))
