// Programs use the client with the types of a database; the compiler must find each mistake.
import { Client, type Page } from "../../../../clients/js/src/index.js";
import type { Shop } from "./shop.js";

declare const url: string;
const shop = new Client<Shop>(url, "shop");

export async function reads(): Promise<void> {
  const { value } = await shop.get("products", "lamp");
  const name: string = value.name;
  const price: string | null | undefined = value.price;
  // @ts-expect-error it may be missing
  const stock: number = value.stock;
  // @ts-expect-error there is no such field
  value.colour;
  // @ts-expect-error the service sets it
  value.updated = "2026-01-01T00:00:00Z";
  // @ts-expect-error there is no such class
  await shop.get("product", "lamp");
  const fragment = (await shop.get("products", "lamp", { fields: ["stock"] })).value;
  const id: string = fragment.id;
  // @ts-expect-error it was not read
  fragment.name;
  // @ts-expect-error there is no such field
  await shop.getMany("products", ["lamp"], { fields: ["colour"] });
  for await (const product of shop.iterate("products", { order: ["price"] })) product.kind === "a";
  const counts: Page<{ n: number }> = await shop.query("products", { aggregate: { compute: { n: { count: "*" } } } });
  void [name, price, stock, id, counts.items[0].n];
}

export async function writes(): Promise<void> {
  await shop.put("products", "lamp", { name: "Lamp", kind: "a", price: "30", names: { en: "1" } });
  await shop.put("products", "lamp", { stock: 1 }, { fields: ["stock"] });
  // @ts-expect-error a whole object needs its name
  await shop.put("products", "lamp", { price: "30" });
  // @ts-expect-error it is not one of the values
  await shop.create("products", { name: "Lamp", kind: "c" });
  // @ts-expect-error a decimal is a string
  await shop.create("products", { name: "Lamp", price: 30 });
  // @ts-expect-error the service sets it
  await shop.create("products", { name: "Lamp", updated: "2026-01-01T00:00:00Z" });
  const created = await shop.create("products", { id: "lamp", name: "Lamp" });
  const key: string = created.value.key;
  const noValue: null = (await shop.delete("products", "lamp")).value;
  void [key, noValue];
}

export async function changes(): Promise<void> {
  await shop.patch("products", "lamp", { price: null, names: { en: null } });
  await shop.patch("products", "lamp", [{ op: "replace", path: "/name", value: "Seat" }]);
  // @ts-expect-error it is required
  await shop.patch("products", "lamp", { name: null });
  await shop.update("products", "lamp", { stock: { inc: -1 }, tags: { add_to_set: "new" } });
  // @ts-expect-error a text has no such operator
  await shop.update("products", "lamp", { name: { inc: 1 } });
  // @ts-expect-error one operator for each field
  await shop.update("products", "lamp", { stock: { inc: 1, set: 2 } });
  await shop.patchBy("products", { name: "Lamp" }, { stock: 1 });
  await shop.updateBy("products", { name: "Lamp" }, { stock: { inc: 1 } });
  // @ts-expect-error there is no such field
  await shop.patchBy("products", { colour: "red" }, { stock: 1 });
  const { written } = await shop.patchWhere("products", { eq: ["kind", "a"] }, { stock: 0 }, { allowScan: true });
  // @ts-expect-error there is no such field
  await shop.updateWhere("products", "all", { colour: { set: "red" } });
  await shop.deleteWhere("makers", "all", { dryRun: true });
  void written;
}

export async function untyped(): Promise<void> {
  const any = new Client(url, "shop");
  const { value } = await any.get("products", "lamp", { fields: ["name"] });
  value.name.toUpperCase();
  await any.put("products", "lamp", { anything: 1 });
  await any.put("products", "lamp", { anything: 1 }, { fields: ["anything"] });
  await any.update("products", "lamp", { stock: { inc: 1 } });
  const [product] = (await any.query("products")).items;
  product.name.toUpperCase();
}
