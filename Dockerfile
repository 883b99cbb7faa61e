# Pointsman alone, on a small Debian: see docker-compose.yml for a cluster.
# Not the slim variant: it has no make, which the allocator's build needs.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY crates crates
COPY tests tests
RUN cargo build --release --locked -p pointsman

FROM debian:bookworm-slim
RUN useradd --system --no-create-home pointsman
COPY --from=build /src/target/release/pointsman /usr/local/bin/pointsman
USER pointsman
EXPOSE 27017
ENTRYPOINT ["/usr/local/bin/pointsman"]
