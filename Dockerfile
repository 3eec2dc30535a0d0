# For those who build their own image. Releases are built by "make image", without Docker and to the same bytes.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
ARG VERSION=0.0.0-dev
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /carillon ./dispatcher/cmd/carillon

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /carillon /src/LICENSE /src/NOTICE /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/carillon"]
CMD ["serve"]
