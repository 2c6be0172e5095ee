// Increments the stock of all products of the service at PORTOLAN_DATA, and prints the summary.
import { Client } from "../../../../clients/js/src/index.js";

const { PORTOLAN_DATA: url, PORTOLAN_DATABASE: database } = process.env;
const summary = await new Client(url, database).updateWhere("products", "all", { stock: { inc: 1 } });
console.log(JSON.stringify(summary));
