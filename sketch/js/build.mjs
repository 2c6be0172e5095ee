// Builds the shipped modules from src/, minified, with source maps: `node build.mjs`. With `--check` it
// only compares. The first line of each shipped module has the digest of its sources.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const here = new URL(".", import.meta.url);
const sources = readdirSync(new URL("src/", here)).sort();
const digest = createHash("sha256");
for (const name of sources) digest.update(`${name}\0`).update(readFileSync(new URL(`src/${name}`, here))).update("\0");
const banner = `// Apache-2.0. Built from src/ (sha256 ${digest.digest("hex")}).`;

const { outputFiles } = await build({
  absWorkingDir: new URL(".", import.meta.url).pathname,
  entryPoints: ["src/portolan.mjs", "src/transactions.mjs"],
  outdir: ".",
  outExtension: { ".js": ".mjs" },
  banner: { js: banner },
  bundle: true,
  // transactions.mjs is loaded beside portolan.mjs.
  external: ["./portolan.mjs"],
  format: "esm",
  target: "es2022",
  minify: true,
  sourcemap: true,
  write: false,
});
let differs = false;
for (const { path, text } of outputFiles) {
  if (!process.argv.includes("--check")) writeFileSync(path, text);
  else if (readFileSync(path, "utf8") !== text) differs = true;
}
if (differs) throw new Error("the shipped modules differ from the build of src/: run `npm run build`");
