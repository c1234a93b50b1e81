# An image that replaces envoyproxy/ratelimit: the same path, ports and variables. Other commands of Sluice:
# docker run IMAGE /bin/sluice check /rules
FROM golang:1.26 AS build
WORKDIR /src
COPY go.work go.work.sum go.mod go.sum ./
COPY cmd/go.mod cmd/go.sum cmd/
COPY examples/go.mod examples/go.sum examples/
COPY grpclimit/go.mod grpclimit/go.sum grpclimit/
COPY redisstore/goredis/go.mod redisstore/goredis/go.sum redisstore/goredis/
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/bin/sluice ./cmd/sluice && ln -s sluice /out/bin/ratelimit

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/bin /bin
USER 65532:65532
EXPOSE 8080 8081 6070 9090
CMD ["/bin/ratelimit"]
