// A client of Portolan, for Node and browsers.
export { Client } from "./client.js";
export { BrokenReply, PortolanError, Problem, Unreachable } from "./problems.js";
