package goredis_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/redisstore/goredis"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	commander, err := goredis.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := redisstore.Open(redisstore.Config{Commander: commander})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	fmt.Println("ready")
	// Output: ready
}

// Dialer bounds the size of a server's replies.
func ExampleDialer() {
	options := &redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true}
	options.Dialer = goredis.Dialer(redis.NewDialer(options))
	client := redis.NewClient(options)
	defer client.Close()
	_, err := goredis.New(client)
	fmt.Println(err)
	// Output: <nil>
}
