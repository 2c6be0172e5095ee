"""Benchmarks: one module for each claim in the README; `portolan bench NAME [--quick]` runs it.

A benchmark is a module of this package whose name is its own, with a docstring (its first line is
shown by ``--list``) and

    async def run(options: Options) -> Measured

What it can build on:

- `benchmarks.measured`: `Options` (quick, seed, say), `Result` (name, unit, figure, baseline, bar;
  ratio and met follow), `Measured` (results and the versions of the servers they ran on), and
  `Failed` for what makes a figure meaningless.
- `benchmarks.service`: `portolan(durability)` runs the embedded service in this process and gives
  a `Service`: clients of both APIs, `declare`, `set_schema`, `create`, `versions`; `succeed` awaits
  a request that must not be refused.
- `benchmarks.load`: `LoadProcess` is a generator in a process of its own. Its `drive(plan)` sends
  what the `Lane`s of a `Plan` say for some seconds and returns a `Tally` for each lane: rate,
  percentiles, acknowledged requests. Requests are rendered beforehand (`benchmarks.http1.render`).
- `benchmarks.rounds`: `interleaved(rounds, sides)` measures A B A B …, so that a noisy machine
  disturbs figure and baseline alike; take medians.
- `benchmarks.zipf`: draws with Zipf's distribution.

The runner adds the machine, the time of a fixed loop (`calibration`) and prints the report as one
JSON object on the last line of standard output.
"""
