# What the nodes of a cluster run: the packages of a lock, and this tree. `make images` builds it (docker/engine.sh,
# which falls back to a debootstrap base with the same packages where no registry answers).
#
#   LOCK         cpu, or gpu: torch and vLLM with CUDA's libraries; the host brings the driver and NVIDIA's runtime
#   TORCH_INDEX  options for the pip that installs torch, as in requirements/install.sh
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}
# gcc for what engines compile on a node, the rest for languages in a sandbox of namespaces; wget is Kubernetes' probe
ARG PACKAGES="python3-venv gcc g++ libc6-dev nodejs lua5.4 wget ca-certificates"
RUN dpkg -s $PACKAGES >/dev/null 2>&1 \
    || (apt-get update -qq && apt-get install -y -qq --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*)
ARG LOCK=cpu
ARG TORCH_INDEX=""
# where pip looks, if not in its own place; the image's history keeps it: no password in it
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
WORKDIR /opt/sparring
COPY requirements requirements
RUN TORCH_INDEX="$TORCH_INDEX" PIP_NO_CACHE_DIR=1 requirements/install.sh /opt/venv "$LOCK"
COPY . .
ENV PATH=/opt/venv/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["python", "driver.py", "--help"]
