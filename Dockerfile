# One service's image, for those who build with Docker: docker build --build-arg SERVICE=recs --tag watertight/recs:0.1.0 .
# SERVICE is gateway, checkout, search, recs, inventory, payment, monolith or lab. `make images` needs no Docker, makes the broker and the database too,
# and gives the same bytes on every machine; this one takes its base from a registry.
FROM --platform=$BUILDPLATFORM golang:1.27.3 AS build
ARG SERVICE VERSION=0.1.0 TARGETOS TARGETARCH
WORKDIR /src
COPY . .
# Each module has its own versions: GOWORK=off.
RUN --mount=type=cache,target=/root/.cache --mount=type=cache,target=/go/pkg/mod \
    cd "$(dirname "$(dirname "$(ls -d */cmd/$SERVICE services/*/cmd/$SERVICE 2>/dev/null)")")" && \
    CGO_ENABLED=0 GOWORK=off GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags="-s -w -X example.com/watertight/platform/telemetry.release=$VERSION" -o /out/program ./cmd/$SERVICE && \
    printf 'nonroot:x:65532:65532:nonroot:/:/nologin\n' >/out/passwd

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/passwd /etc/passwd
COPY --from=build /out/program /program
USER 65532:65532
ENTRYPOINT ["/program"]
