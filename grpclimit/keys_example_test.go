package grpclimit_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/peer"

	"github.com/sluiceproject/sluice/grpclimit"
)

// All calls share one limit.
func ExampleGlobal() {
	key := grpclimit.Global()
	all, err := key(context.Background(), "/shop.Cart/Add")
	fmt.Printf("%q %v\n", all, err)
	// Output: "" <nil>
}

// A limit per IPv4 address or IPv6 /64 network.
func ExampleByPeer() {
	key := grpclimit.ByPeer()
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 443}})
	fmt.Println(key(ctx, "/shop.Cart/Add"))
	// Output: 2001:db8::/64 <nil>
}
