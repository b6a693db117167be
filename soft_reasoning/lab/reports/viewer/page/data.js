// The page's data: the index, unpacked when it opens, and shards of details, unpacked when one is needed.

const shards = new Map();
const KEPT = 8;

async function unpack(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function unpackShard(text) {
  const shard = await unpack(text);
  for (const [source, formula] of Object.entries(shard.formulas)) formulas.set(source, formula);
  return shard.details;
}

// The details of the problem in row `i` of the index.
async function detailOf(index, i) {
  const shard = Math.floor(i / index.shard);
  if (!shards.has(shard)) {
    const waiting = unpackShard(document.getElementById(`shard-${shard}`).textContent);
    waiting.catch(() => shards.delete(shard));
    shards.set(shard, waiting);
    if (shards.size > KEPT) shards.delete(shards.keys().next().value);
  }
  return (await shards.get(shard))[i % index.shard];
}
