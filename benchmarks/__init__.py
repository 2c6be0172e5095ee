"""Benchmarks: one module for each claim in the README; `portolan bench NAME [--quick]` runs it.

A benchmark is a module of this package that has its name, with a docstring (``--list`` shows its
first line) and

    async def run(options: Options) -> Measured

The building blocks:

- `benchmarks.harness.report`: `Options` (quick, seed, log), `Result` (name, unit, figure, baseline,
  bar; ratio and met follow), and `Measured` (results, and the versions of the servers).
- `app.commands.demo.service`: `portolan(durability)` runs the embedded service in this process and
  gives a `Service`: clients of both APIs, `declare`, `set_schema`, `create`, `versions`; `succeed`
  awaits a request that must not be refused.
- `app.commands.demo.load`: `LoadProcess` is a load generator in a separate process. Its
  `drive(plan)` sends the requests of the `LoadLane`s of a `LoadPlan` for some seconds and returns a
  `LoadResult` for each lane: rate, percentiles, acknowledged requests. Requests are rendered
  beforehand (`http1.render`).
- `app.commands.demo.rounds`: `interleaved(rounds, measures)` measures A B A B …, so that a noisy
  machine disturbs figure and baseline alike; take medians.
- `app.commands.demo.workload`: also draws with Zipf's distribution.
"""
