# Two images: `api` serves, without Java and Spark; `worker` executes jobs on Spark.
#   docker build --target api -t portolan:0.1.0 .
#   docker build --target worker -t portolan-worker:0.1.0 .
# For a reproducible build, pin the base image by digest:
#   --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:...
# docs/deployment.md describes how to run them; the tests execute these steps without an engine.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv /opt/portolan
COPY requirements-build.lock requirements-api.lock ./
RUN /opt/build/bin/pip install --require-hashes -r requirements-build.lock
RUN /opt/portolan/bin/pip install --require-hashes -r requirements-api.lock
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY mediator mediator
COPY portolan portolan
COPY redis_connection redis_connection
COPY sketch sketch
COPY spark_jobs spark_jobs
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist
RUN /opt/portolan/bin/pip install --no-deps --no-index --find-links dist portolan

FROM build AS worker-build
COPY requirements-worker.lock ./
RUN /opt/portolan/bin/pip install --require-hashes -r requirements-worker.lock

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS base
LABEL org.opencontainers.image.title="Portolan" \
      org.opencontainers.image.description="Declare what your data needs; the right database serves it." \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 portolan \
    && useradd --system --uid 10001 --gid portolan --home-dir /var/lib/portolan --create-home portolan
# The root can be read-only: all writes go to these two directories.
ENV PATH=/opt/portolan/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/portolan \
    NUMBA_CACHE_DIR=/tmp/numba \
    PORTOLAN_HOST=0.0.0.0 \
    PORTOLAN_DATA_DIR=/var/lib/portolan
WORKDIR /var/lib/portolan
VOLUME ["/var/lib/portolan", "/tmp"]
USER 10001:10001
ENTRYPOINT ["portolan"]

FROM base AS worker
USER 0:0
# Debian packages are not pinned: a release keeps only their latest fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=worker-build /opt/portolan /opt/portolan
USER 10001:10001
# A worker has no port: without heartbeats it loses its run to another (PORTOLAN_WORKER_LEASE_S).
HEALTHCHECK NONE
CMD ["worker"]

FROM base AS api
COPY --from=build /opt/portolan /opt/portolan
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-m", "app.service.alive"]
CMD ["serve"]
