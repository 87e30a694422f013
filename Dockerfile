# The course in JupyterLab, on the emulated GPU:
#
#   docker build --tag cnn-numba .
#   docker run --publish 8888:8888 --name course cnn-numba    # open the address with the token that it prints
#   docker start --attach course                              # the next day: what you wrote is still there
#
# Without PyTorch, which the course only compares with. For all there is, six times the size:
#
#   docker build --build-arg EXTRAS=torch-cu13,roads,test --tag cnn-numba .
FROM python:3.12-slim AS base

# make, with which the notebooks are opened as in a clone; OpenMP, with which Numba runs loops on all cores
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 reader \
    && install --directory --owner 1000 --group 1000 /home/reader/cnn-numba
USER 1000


# What .devcontainer works in: a clone is mounted there, and `make` installs into that.
FROM base AS devcontainer
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
USER 1000


FROM base
WORKDIR /home/reader/cnn-numba

# What is installed depends on these few files alone: a change of anything else does not install it again.
COPY --chown=1000:1000 pyproject.toml README.md LICENSE ./
COPY --chown=1000:1000 gpuless/pyproject.toml gpuless/README.md gpuless/LICENSE ./gpuless/
ARG EXTRAS=cu13
RUN python -m venv .venv \
    && .venv/bin/python -m pip install --no-cache-dir --upgrade 'pip>=24.1' \
    && .venv/bin/python -m pip install --no-cache-dir --editable ./gpuless --editable ".[${EXTRAS}]"

COPY --chown=1000:1000 . .

ENV PATH=/home/reader/cnn-numba/.venv/bin:$PATH \
    container=docker
EXPOSE 8888
# `ALL=` leaves the installation as it is; `container` tells make to listen on all addresses, with no browser.
CMD ["make", "lab", "ALL=", "ARGS=--port 8888"]
