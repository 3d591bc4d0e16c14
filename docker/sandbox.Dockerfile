# What a sandbox container runs. Built by docker/engine.sh, which falls back to a debootstrap base with the same
# packages where no registry answers.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}
ARG PACKAGES="nodejs lua5.4 gcc libc6-dev"
RUN dpkg -s $PACKAGES >/dev/null 2>&1 \
    || (apt-get update -qq && apt-get install -y -qq --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*)
COPY sandbox_workers/runner/*.py /opt/sparring/runner/
RUN mkdir -p /jobs && chmod -R a+rX,go-w /jobs /opt/sparring \
    && python3 -c "import sys, json, ctypes, resource, decimal; assert sys.version_info >= (3, 11)"
WORKDIR /
CMD ["python3", "-s", "-P", "-B", "-c", "import sys; sys.path.insert(0, '/opt/sparring'); from runner.supervisor import main; main()"]
