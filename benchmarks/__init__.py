"""Benchmarks: one module for each claim in the README; `portolan bench NAME [--quick]` runs it.

A benchmark is a module of this package whose name is its own, with a docstring (its first line is
shown by ``--list``) and

    async def run(options: Options) -> Measured

What they build on:

- `benchmarks.harness.report`: `Options` (quick, seed, say), `Result` (name, unit, figure, baseline,
  bar; ratio and met follow), and `Measured` (results, and the versions of the servers).
- `app.commands.demo.service`: `portolan(durability)` runs the embedded service in this process and
  gives a `Service`: clients of both APIs, `declare`, `set_schema`, `create`, `versions`; `succeed`
  awaits a request that must not be refused.
- `app.commands.demo.load`: `LoadProcess` is a generator in a process of its own. Its `drive(plan)`
  sends what the `LoadLane`s of a `LoadPlan` say for some seconds and returns a `LoadResult` for
  each lane: rate, percentiles, acknowledged requests. Requests are rendered beforehand
  (`http1.render`).
- `app.commands.demo.rounds`: `interleaved(rounds, measures)` measures A B A B …, so that a noisy
  machine disturbs figure and baseline alike; take medians.
- `app.commands.demo.workload`: also draws with Zipf's distribution.
"""
