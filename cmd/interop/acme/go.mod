module github.com/sluiceproject/sluice/cmd/interop/acme

go 1.26.0

replace (
	github.com/sluiceproject/sluice => ../../..
	github.com/sluiceproject/sluice/cmd => ../../../cmd
	github.com/sluiceproject/sluice/redisstore/goredis => ../../../redisstore/goredis
)

require (
	github.com/letsencrypt/challtestsrv v1.4.2
	github.com/letsencrypt/pebble/v2 v2.10.1
	github.com/sluiceproject/sluice/cmd v0.1.0
)

require (
	github.com/go-jose/go-jose/v4 v4.1.4 // indirect
	github.com/miekg/dns v1.1.62 // indirect
	github.com/sluiceproject/sluice v0.1.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
