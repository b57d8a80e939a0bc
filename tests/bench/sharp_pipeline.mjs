// The same five outputs with Node's sharp: one decode, everything else from the master in memory, effort 4.
// Usage: node sharp_pipeline.mjs FILE ROUNDS OUTPUT_FOLDER; one JSON line per round: wall and CPU seconds, bytes.
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.cwd(), "package.json"));
const sharp = require("sharp");
const [file, rounds, output] = process.argv.slice(2);

sharp.cache(false);

async function render(input) {
  const { data, info } = await sharp(input, { failOn: "warning", limitInputPixels: 40_000_000 })
    .autoOrient()
    .resize({ width: 4096, height: 4096, fit: "inside", withoutEnlargement: true })
    .raw()
    .toBuffer({ resolveWithObject: true });
  const raw = { width: info.width, height: info.height, channels: info.channels };
  const master = () => sharp(data, { raw });
  const square = (edge) => ({ width: edge, height: edge, fit: "cover", position: "attention" });
  const inside = (edge) => ({ width: edge, height: edge, fit: "inside", withoutEnlargement: true });
  const webp = (quality) => ({ quality, effort: 4 });
  return Promise.all([
    master().webp(webp(90)).toBuffer(),
    master().resize(square(160)).webp(webp(80)).toBuffer(),
    master().resize(square(320)).webp(webp(80)).toBuffer(),
    master().resize(inside(640)).webp(webp(80)).toBuffer(),
    master().resize(inside(1280)).webp(webp(82)).toBuffer(),
  ]);
}

const input = await readFile(file);
let outputs = await render(input); // the first round loads code
for (let round = 0; round < Number(rounds); round += 1) {
  const cpu = process.cpuUsage();
  const started = process.hrtime.bigint();
  outputs = await render(input);
  const wall = Number(process.hrtime.bigint() - started) / 1e9;
  const used = process.cpuUsage(cpu);
  console.log(JSON.stringify({ wall, cpu: (used.user + used.system) / 1e6, sizes: outputs.map((each) => each.length) }));
}
const names = ["original", "p1-thumbnail", "p1-tile", "p1-card", "p1-detail"];
await Promise.all(outputs.map((data, index) => writeFile(path.join(output, `${names[index]}.webp`), data)));
