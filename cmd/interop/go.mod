module github.com/sluiceproject/sluice/cmd/interop

go 1.26.0

replace (
	github.com/sluiceproject/sluice => ../..
	github.com/sluiceproject/sluice/cmd => ../../cmd
	github.com/sluiceproject/sluice/redisstore/goredis => ../../redisstore/goredis
)

require (
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	github.com/sluiceproject/sluice v0.1.0
	github.com/sluiceproject/sluice/cmd v0.1.0
	go.yaml.in/yaml/v3 v3.0.5
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cncf/xds/go v0.0.0-20260202195803-dba9d589def2 // indirect
	github.com/envoyproxy/protoc-gen-validate v1.3.3 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
)
