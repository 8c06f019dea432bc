// The scripted sale of ../../tests/clients.rs through ioredis or node-redis.
// Arguments: host port sale, then `ioredis`, `redis2` or `redis3` (node-redis with RESP 2 or 3).
const [host, port, sale, kind] = process.argv.slice(2);

async function open() {
  if (kind === "ioredis") {
    const { default: Redis } = await import("ioredis");
    const client = new Redis({ host, port: Number(port) });
    const call = (...words) => client.call(...words.map(String));
    const pipeline = async (commands) => {
      const pipeline = client.pipeline();
      for (const words of commands) pipeline.call(...words.map(String));
      return (await pipeline.exec()).map(([error, answer]) => error ?? answer);
    };
    return { call, pipeline, close: () => client.quit() };
  }
  const { createClient } = await import("redis");
  const socket = { host, port: Number(port) };
  const client = createClient({ socket, RESP: kind === "redis3" ? 3 : 2 });
  await client.connect();
  const call = (...words) => client.sendCommand(words.map(String));
  // Commands of one tick go out as one pipeline.
  const pipeline = (commands) => Promise.all(commands.map((words) => call(...words)));
  return { call, pipeline, close: () => client.close() };
}

function show(name, answer) {
  const parts = answer.map((part) => {
    if (Array.isArray(part)) return part.join(",");
    return typeof part === "boolean" ? (part ? "True" : "False") : String(part);
  });
  console.log([name, ...parts].join(" "));
}

const client = await open();
show("ping", [(await client.call("PING")) === "PONG"]);
const definition = {
  sale: Number(sale), name: "clients", opens_at: "now", hold_ms: 600000,
  skus: [{ sku: 1, stock: 1000, limit_per_user: 1 }],
};
show("put", (await client.call("STOCK.SALE.PUT", JSON.stringify(definition))).slice(0, 1));
const held = await client.call("STOCK.RESERVE", sale, 1, "first", 1, 1);
const order = held[1];
show("reserve", [held[0], order !== "0", held[2] > 0, held[3], held[4]]);
const again = await client.call("STOCK.RESERVE", sale, 1, "first", 1, 1);
show("again", [again[0], again[1] === order]);
const limit = await client.call("STOCK.RESERVE", sale, 1, "second", 1, 1);
show("limit", [limit[0], limit[1] === order, limit[4]]);
show("malformed", (await client.call("STOCK.RESERVE", sale, 1, "third", 1, "-1")).slice(0, 2));
show("confirm", [(await client.call("STOCK.CONFIRM", order, "pay-1"))[0]]);
show("cancel", [(await client.call("STOCK.CANCEL", order))[0]]);
const status = await client.call("STOCK.STATUS", sale, 1, "first");
show("status", [status[0], status[1] === order, status[5], status[6]]);
const users = Array.from({ length: 100 }, (_, at) => at + 2);
const answers = await client.pipeline(users.map((user) => ["STOCK.RESERVE", sale, user, "r", 1, 1]));
show("pipeline", [answers.filter((answer) => answer[0] === "held").length]);
show("sku", await client.call("STOCK.SKU", sale, 1));
try {
  await client.call("STOCK.NOTHING");
} catch (error) {
  show("unknown", [error.message.includes("unknown command")]);
}
await client.close();
